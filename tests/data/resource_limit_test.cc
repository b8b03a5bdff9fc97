// faults rows 26 and 27: few descriptors, little address space.
#include <unistd.h>

#include <string>

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

// faults row 26
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

// faults row 26
TEST(ResourceLimitTest, NoFreeDescriptorIsATypedErrorAndTheDatasetGoesOn) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer needs descriptors itself";
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
                    text.find("raise the limit of open files (ulimit -n)") == std::string::npos) {
                  return text;
                }
              }
              if (std::string wrong = wrong_with(data, 4); !wrong.empty()) return wrong;
              set_limit(RLIMIT_NOFILE, 64);
              return wrong_with(data);
            }),
            "");
}

// faults row 27
TEST(ResourceLimitTest, NoAddressSpaceIsATypedErrorAndTheDatasetGoesOn) {
  if (kSanitized) GTEST_SKIP() << "needs a limit on address space";
  const test::TempDir dir;
  test::write_file(dir / "small.tar", test::shard_bytes(0, 5));
  test::write_file(
      dir / "large.tar",
      test::TarBuilder().file("dir/large.bin", std::string(256 << 20, 'x')).end().bytes());
  build_index(dir / "x.idx", {dir / "small.tar", dir / "large.tar"}, {.num_threads = 1});
  EXPECT_EQ(in_child([&]() -> std::string {
              const Dataset data = Dataset::open(dir / "x.idx");
              set_limit(RLIMIT_AS, 192 << 20);
              try {
                static_cast<void>(data[5]);
                return "no error";
              } catch (const Error& e) {
                const std::string text = e.what();
                if (e.code() != ErrorCode::kIo ||
                    text.find("cannot map: '" + dir / "large.tar" + "'") == std::string::npos) {
                  return text;
                }
              }
              for (std::uint64_t i = 0; i < 5; ++i) {
                if (std::string wrong = wrong_with(data, i); !wrong.empty()) return wrong;
              }
              return {};
            }),
            "");
}

}  // namespace
}  // namespace shardwise
