// faults.md 26 and 27: few descriptors, and little address space.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/errno_error.h"
#include "base/fork.h"
#include "base/mapped_file.h"
#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::in_child;
using test::kSanitized;
using test::set_limit;
using test::Shards;
using test::wrong_with;

// Fault under test: tests/faults.md 26.
TEST(ResourceLimitTest, TwoHundredShardsAreReadWithThirtyTwoDescriptors) {
  const Shards shards(200, 3);
  EXPECT_EQ(in_child([&]() -> std::string {
              set_limit(RLIMIT_NOFILE, 32);
              const Dataset data = Dataset::open(shards.index_path());
              const std::size_t open = test::num_open_descriptors();
              if (std::string wrong = wrong_with(data); !wrong.empty()) return wrong;
              if (data.pool_stats().open_shards != 200) return "not all are mapped";
              if (test::num_open_descriptors() != open) return "a shard holds a descriptor";
              return {};
            }),
            "");
}

// Fault under test: tests/faults.md 26.
TEST(ResourceLimitTest, NoFreeDescriptorIsATypedErrorAndTheDatasetGoesOn) {
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they use the descriptors "
                    "that it counts";
  const Shards shards(3, 5);
  EXPECT_EQ(in_child([&]() -> std::string {
              const Dataset data = Dataset::open(shards.index_path());
              const Sample held = data[0];
              set_limit(RLIMIT_NOFILE, 3);
              while (::dup(0) >= 0) {
              }
              try {
                static_cast<void>(data[5]);
                return "no error";
              } catch (const Error& e) {
                const std::string text = e.what();
                if (e.code() != ErrorCode::kIo || text.find(shards.path(1)) == std::string::npos ||
                    text.find("(ulimit -n)") == std::string::npos) {
                  return text;
                }
              }
              if (std::string wrong = wrong_with(data, 4); !wrong.empty()) return wrong;
              set_limit(RLIMIT_NOFILE, 64);
              return wrong_with(data);
            }),
            "");
}

// Fault under test: tests/faults.md 26.
TEST(ResourceLimitTest, TwoHundredShardsAreReadUnmappedWithThirtyTwoDescriptors) {
  const Shards shards(200, 3);
  EXPECT_EQ(in_child([&]() -> std::string {
              set_limit(RLIMIT_NOFILE, 32);
              const Dataset data =
                  Dataset::open(shards.index_path(), {.access = Dataset::Access::kRead});
              std::vector<Sample> held;
              for (std::uint64_t i = 0; i < data.size(); ++i) {
                if (std::string wrong = wrong_with(data, i); !wrong.empty()) return wrong;
                // Keeps a shard's records in memory, but not its descriptor.
                held.push_back(data[i]);
              }
              if (test::num_open_descriptors() > 16) return "too many descriptors are kept";
              std::atomic<int> wrong{0};
              std::vector<std::thread> threads;
              for (std::uint64_t t = 0; t < 4; ++t) {
                threads.emplace_back([&, t] {
                  for (std::uint64_t i = t; i < data.size(); i += 3) {
                    if (!wrong_with(data, i).empty()) ++wrong;
                  }
                });
              }
              for (std::thread& thread : threads) thread.join();
              return wrong == 0 ? "" : "wrong in threads";
            }),
            "");
}

// Fault under test: tests/faults.md 26.
TEST(ResourceLimitTest, WithoutAFreeDescriptorOneOfOursIsClosed) {
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they use the descriptors "
                    "that it counts";
  const Shards shards(20, 3);
  EXPECT_EQ(in_child([&]() -> std::string {
              const Dataset data =
                  Dataset::open(shards.index_path(), {.access = Dataset::Access::kRead});
              for (std::uint64_t i = 0; i < 15; ++i) static_cast<void>(data[i]);  // from 5 shards
              set_limit(RLIMIT_NOFILE, 64);
              while (::dup(0) >= 0) {
              }
              if (std::string wrong = wrong_with(data); !wrong.empty()) return wrong;
              // Open descriptors stay open, but no new ones are available.
              set_limit(RLIMIT_NOFILE, 3);
              try {
                for (std::uint64_t i = 0; i < data.size(); ++i) static_cast<void>(data[i]);
                return "no error";
              } catch (const NoDescriptor& e) {
                const std::string text = e.what();
                return text.find("limit of open files") == text.npos ? text : "";
              }
            }),
            "");
}

/// Writes a sparse shard with a member "large" of 1 GiB, and `count` samples after it.
void write_large_shard(const std::string& path, std::uint64_t first, std::uint64_t count) {
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 30;
  test::write_file(path, test::TarBuilder::header("dir/large.bin", '0', kLarge));
  std::filesystem::resize_file(path, 512 + kLarge);
  const std::string rest = test::shard_bytes(first, count);
  std::ofstream(path, std::ios::binary | std::ios::app) << rest;
}

// Fault under test: tests/faults.md 27.
TEST(ResourceLimitTest, WithoutAddressSpaceAShardIsReadAndNotMapped) {
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they use the address space "
                    "that it limits";
  const test::TempDir dir;
  test::write_file(dir / "small.tar", test::shard_bytes(0, 5));
  write_large_shard(dir / "large.tar", 6, 5);
  build_index(dir / "x.idx", {dir / "small.tar", dir / "large.tar"}, {.threads = 1});
  EXPECT_EQ(in_child([&]() -> std::string {
              const Dataset data = Dataset::open(dir / "x.idx");
              set_limit(RLIMIT_AS, 512 << 20);
              for (std::uint64_t i = 0; i < data.size(); ++i) {
                if (i == 5) continue;
                if (std::string wrong = wrong_with(data, i); !wrong.empty()) return wrong;
              }
              // If there is no memory for a sample, the error says so.
              try {
                static_cast<void>(data[5]);
                return "no error";
              } catch (const Error& e) {
                const std::string text = e.what();
                for (const std::string& part :
                     {std::string("cannot allocate the 1.0 GiB"),
                      "sample 5 ('dir/large') in shard '" + dir / "large.tar" + "'",
                      std::string("Dataset::Access::kMap")}) {
                  if (text.find(part) == text.npos) return text;
                }
              }
              return data.pool_stats().open_bytes < (1 << 20) ? "" : "the large one is mapped";
            }),
            "");
}

std::size_t num_mappings(std::string_view of = {}) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(of) != line.npos ? 1 : 0;
  return count;
}

// Fault under test: tests/faults.md 27.
TEST(ResourceLimitTest, DatasetsOfAProcessShareABudgetOfMappings) {
  const Shards shards(40, 3);
  EXPECT_EQ(in_child([&]() -> std::string {
              const Dataset first = Dataset::open(shards.index_path());
              const Dataset second = Dataset::open(shards.index_path());
              const std::size_t others = num_mappings();
              MappedFile::set_budget(20);
              for (const Dataset* data : {&first, &second, &first}) {
                if (std::string wrong = wrong_with(*data); !wrong.empty()) return wrong;
                if (num_mappings(".tar") > 20) return "more than the budget is mapped";
              }
              if (first.pool_stats().open_bytes == 0) return "the first one maps nothing";
              // A dataset that exceeds the budget alone replaces its own mappings.
              const Sample held = first[3 * 39];
              if (first.pool_stats().evicted == 0) return "nothing was evicted";
              return num_mappings() <= others + 20 ? "" : "there are more mappings";
            }),
            "");
}

// Fault under test: tests/faults.md 27.
TEST(ResourceLimitTest, ManyIndexesTogetherDoNotExhaustTheKernelsMappings) {
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they have mappings";
  std::size_t max = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> max;
  if (max == 0 || max > 100'000) {
    GTEST_SKIP() << "needs a limit of at most 100,000 mappings; skipped because it is " << max;
  }
  constexpr std::size_t kManyShards = 1000;
  const Shards shards(kManyShards, 1);
  EXPECT_EQ(in_child([&]() -> std::string {
              std::vector<Dataset> all;
              while (all.size() * kManyShards < max + kManyShards) {
                all.push_back(Dataset::open(shards.index_path()));
                if (std::string wrong = wrong_with(all.back()); !wrong.empty()) return wrong;
              }
              std::vector<std::unique_ptr<char[]>> memory;  // malloc() can still map
              for (int i = 0; i < 1000; ++i) memory.push_back(std::make_unique<char[]>(1 << 20));
              return num_mappings() < max ? "" : "no mapping is left";
            }),
            "");
}

// Fault under test: tests/faults.md 27.
TEST(ResourceLimitTest, AFileThatCannotBeMappedIsATypedError) {
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they use the address space "
                    "that it limits";
  const test::TempDir dir;
  write_large_shard(dir / "large.tar", 0, 1);
  EXPECT_EQ(in_child([&]() -> std::string {
              set_limit(RLIMIT_AS, 512 << 20);
              try {
                MappedFile::open(dir / "large.tar");
                return "no error";
              } catch (const CannotMap& e) {
                const std::string text = e.what();
                for (const std::string& part :
                     {"cannot map: '" + (dir / "large.tar") + "' (Cannot allocate memory)",
                      std::string("(ulimit -v)"), std::string("(vm.max_map_count)")}) {
                  if (text.find(part) == text.npos) return text;
                }
                return "";
              }
            }),
            "");
}

// Fault under test: tests/faults.md 27.
TEST(ResourceLimitTest, AThreadThatCannotBeStartedIsATypedError) {
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they use the address space "
                    "that it limits";
  EXPECT_EQ(in_child([&]() -> std::string {
              set_limit(RLIMIT_AS, 256 << 20);
              WorkerThreads threads;
              std::string text = "no error";
              try {
                for (int i = 0; i < 10'000; ++i)
                  threads.start([] {}, "test");  // the threads' stacks remain until join()
              } catch (const Error& e) {
                text = e.what();
              }
              threads.join();
              for (const char* part : {"cannot start a thread", "Resource temporarily unavailable",
                                       "fewer threads", "(ulimit -u)"}) {
                if (text.find(part) == text.npos) return text;
              }
              return "";
            }),
            "");
}

}  // namespace
}  // namespace shardwise
