// faults.md 7 and 27: shards are truncated while a dataset has them open, with each value of
// Dataset::Access.
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "data/shards.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/data/dataset.h"
#include "support/process.h"
#include "support/support.h"

namespace {
std::atomic<int> pread_fails_with{0};
std::atomic<int> num_preads{0};
}  // namespace

/// Replaces the C library's pread() in this program, so that a test can simulate a failing disk.
extern "C" ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
  ++num_preads;
  if (pread_fails_with != 0) {
    errno = pread_fails_with;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, buffer, size, offset);
}

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::content_of;
using test::error_code;
using test::error_text;
using test::in_child;
using test::key_of;
using test::Shards;
using test::TarBuilder;
using test::TempDir;
using test::write_file;
using test::wrong_with;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kReadRemedy[] = "`shardwise index` again";

Dataset open(const Shards& shards, Dataset::Access access) {
  return Dataset::open(shards.index_path(), {.access = access});
}

/// Truncates a shard in place, so that it keeps its name and inode.
void cut(const std::string& path, std::uint64_t size) {
  if (::truncate(path.c_str(), static_cast<off_t>(size)) != 0) throw std::runtime_error("truncate");
}

class ReadAccessTest : public ::testing::Test {
 protected:
  void TearDown() override { pread_fails_with = 0; }
};

TEST(AccessTest, HasNames) {
  EXPECT_EQ(parse_access("map"), Dataset::Access::kMap);
  EXPECT_EQ(parse_access("read"), Dataset::Access::kRead);
  EXPECT_THAT(error_text([] { parse_access("Map"); }),
              AllOf(HasSubstr("access: 'Map'"), HasSubstr("map, read or range")));
}

TEST_F(ReadAccessTest, GivesWhatMappingGives) {
  const Shards shards(5, 13);
  const Dataset data = open(shards, Dataset::Access::kRead);
  EXPECT_EQ(wrong_with(data), "");
  for (std::uint64_t i = data.size(); i-- > 0;) {
    const Sample sample = data[i];
    ASSERT_EQ(sample.num_fields(), 2U);
    EXPECT_EQ(sample.field(0).name, "bin");
    EXPECT_EQ(sample.field(0).bytes, content_of(i));
    EXPECT_EQ(sample.find("cls"), std::to_string(i % 10) + "\n");
    EXPECT_EQ(sample.copy("bin"), content_of(i));
    EXPECT_EQ(data.get(key_of(i)).index(), i);
    EXPECT_THAT(error_text([&] { sample["png"]; }),
                AllOf(HasSubstr("no field 'png': " + sample.describe()), HasSubstr("bin, cls")));
  }
  EXPECT_EQ(data.pool_stats().open_bytes, 0U);
}

TEST_F(ReadAccessTest, ASampleIsReadAtOnce) {
  const Shards shards(1, 3);
  const Dataset data = open(shards, Dataset::Access::kRead);
  static_cast<void>(data[0]);
  num_preads = 0;
  const Sample sample = data[1];
  EXPECT_EQ(sample["bin"], content_of(1));
  const Sample copy = sample;
  EXPECT_EQ(copy["bin"].data(), sample["bin"].data());
  EXPECT_EQ(num_preads, 1);
}

TEST_F(ReadAccessTest, WhatLiesFarBetweenMembersIsNotRead) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.txt", "first").file("a.empty", "");
  for (int i = 0; i < 300; ++i) tar.entry("folder/", '5', "");
  tar.file("a.bin", std::string(1000, 'b')).file("a.cls", "7").file("z.txt", "last");
  write_file(dir / "x.tar", tar.end().bytes());
  build_index(dir / "x.idx", {dir / "x.tar"}, {.threads = 1});
  const Dataset data = Dataset::open(dir / "x.idx", {.access = Dataset::Access::kRead});
  const Sample z = data.get("z");
  num_preads = 0;
  const Sample a = data.get("a");
  EXPECT_EQ(num_preads, 2);
  ASSERT_EQ(a.num_fields(), 4U);
  EXPECT_EQ(a["txt"], "first");
  EXPECT_EQ(a["empty"], "");
  EXPECT_EQ(a["bin"], std::string(1000, 'b'));
  EXPECT_EQ(a.integer("cls"), 7);
  EXPECT_EQ(z["txt"], "last");
}

TEST_F(ReadAccessTest, BytesOutliveDatasetShardAndFile) {
  auto shards = std::make_unique<Shards>(2, 5);
  auto data = std::make_unique<Dataset>(open(*shards, Dataset::Access::kRead));
  const Sample held = (*data)[7];
  const std::string_view view = held["bin"];
  cut(shards->path(1), 0);
  data.reset();
  shards.reset();
  const Sample copy = held;
  EXPECT_EQ(view, content_of(7));
  EXPECT_EQ(copy["bin"], content_of(7));
  EXPECT_EQ(copy.key(), key_of(7));
}

// Fault under test: tests/faults.md 7.
TEST_F(ReadAccessTest, ATruncatedShardIsStaleAndTheOthersAreServed) {
  const Shards shards(3, 10);
  EXPECT_EQ(in_child([&]() -> std::string {
              const Dataset data = open(shards, Dataset::Access::kRead);
              if (std::string wrong = wrong_with(data); !wrong.empty()) return wrong;
              const Sample held = data[10];
              const auto size = fs::file_size(shards.path(1));
              cut(shards.path(1), 1000);
              for (std::uint64_t i = 10; i < 20; ++i) {
                try {
                  static_cast<void>(data[i]);
                  return "sample " + std::to_string(i) + ": no error";
                } catch (const StaleIndex& e) {
                  const std::string text = e.what();
                  const std::string place = "sample " + std::to_string(i) + " ('" + key_of(i) +
                                            "') in shard '" + shards.path(1) + "', offset ";
                  const std::string sizes =
                      " (1,000 bytes now, " + human_count(size) + " when opened)";
                  for (const std::string& part :
                       {std::string("while it was open"), place, sizes, std::string(kReadRemedy)}) {
                    if (text.find(part) == text.npos) return text;
                  }
                }
              }
              if (held["bin"] != content_of(10)) return "a held view changed";
              for (std::uint64_t i = 0; i < 10; ++i) {
                if (auto wrong = wrong_with(data, i); !wrong.empty()) return wrong;
                if (auto wrong = wrong_with(data, 20 + i); !wrong.empty()) return wrong;
              }
              return {};
            }),
            "");
}

TEST_F(ReadAccessTest, AShardThatIsWrittenToIsStale) {
  const Shards shards(2, 5);
  const Dataset data = open(shards, Dataset::Access::kRead);
  ASSERT_EQ(wrong_with(data), "");
  const auto size = fs::file_size(shards.path(1));
  cut(shards.path(1), 0);
  cut(shards.path(1), size);  // the old length again, filled with zeros
  EXPECT_THAT(error_text([&] { data[5]; }),
              AllOf(HasSubstr("time of the file changed"), HasSubstr(kReadRemedy)));
  EXPECT_EQ(error_code([&] { data[9]; }), ErrorCode::kStaleIndex);
  EXPECT_EQ(wrong_with(data, 0), "");
  // A dataset that is opened now reports the change on the first access.
  EXPECT_THAT(error_text([&] { open(shards, Dataset::Access::kRead)[5]; }),
              HasSubstr("since it was indexed: '" + shards.path(1) + "'"));
}

TEST_F(ReadAccessTest, TheFirstTouchChecksTheFirstHeader) {
  const Shards shards(2, 5);
  std::string bytes = test::read_file(shards.path(1));
  bytes[0] = 'e';
  TarBuilder::fix_checksum(bytes.data());
  write_file(shards.path(1), bytes);
  test::set_old_time(shards.path(1));
  const Dataset data = open(shards, Dataset::Access::kRead);
  EXPECT_EQ(wrong_with(data, 0), "");
  EXPECT_THAT(error_text([&] { data[5]; }),
              AllOf(StartsWith("the shard changed"), HasSubstr("size and time did not"),
                    HasSubstr("'" + shards.path(1) + "', offset 0")));
}

TEST_F(ReadAccessTest, ReplacedByRenameItsOldBytesAreReadWhileItIsOpen) {
  const Shards shards(3, 5);
  const Dataset data = open(shards, Dataset::Access::kRead);
  static_cast<void>(data[5]);
  write_file(shards.dir() / "new", "other");
  ASSERT_EQ(std::rename((shards.dir() / "new").c_str(), shards.path(1).c_str()), 0);
  EXPECT_EQ(wrong_with(data), "");
  EXPECT_EQ(error_code([&] { open(shards, Dataset::Access::kRead)[5]; }), ErrorCode::kStaleIndex);
}

TEST_F(ReadAccessTest, AMissingShardIsNotFoundUntilItIsBack) {
  const Shards shards(2, 5);
  const Dataset data = open(shards, Dataset::Access::kRead);
  fs::rename(shards.path(1), shards.dir() / "away");
  EXPECT_EQ(error_code([&] { data[5]; }), ErrorCode::kNotFound);
  fs::rename(shards.dir() / "away", shards.path(1));
  EXPECT_EQ(wrong_with(data), "");
}

TEST_F(ReadAccessTest, ADiskErrorNamesShardSampleAndOffset) {
  const Shards shards(1, 3);
  const Dataset data = open(shards, Dataset::Access::kRead);
  static_cast<void>(data[0]);
  const std::uint64_t offset = segment_of(data.index(), 0).members(2)[0].data_offset();
  pread_fails_with = EIO;
  EXPECT_EQ(error_code([&] { data[2]; }), ErrorCode::kIo);
  EXPECT_THAT(error_text([&] { data[2]; }),
              AllOf(HasSubstr("sample 2 ('" + key_of(2) + "') in shard '" + shards.path(0) +
                              "', offset " + std::to_string(offset)),
                    HasSubstr("cannot read: '" + shards.path(0) + "' (Input/output error)"),
                    HasSubstr("the disk")));
  pread_fails_with = 0;
  EXPECT_EQ(wrong_with(data), "");
}

// Fault under test: tests/faults.md 7.
TEST(MapAccessTest, CopiesFromATruncatedShardThrowAndTheProcessLives) {
  const Shards shards(3, 20);
  EXPECT_EQ(in_child([&]() -> std::string {
              const Dataset data = open(shards, Dataset::Access::kMap);
              if (std::string wrong = wrong_with(data); !wrong.empty()) return wrong;
              const Sample last = data[39];
              const auto size = fs::file_size(shards.path(1));
              cut(shards.path(1), 1000);
              int stale = 0;
              for (const auto& read : {std::function<void()>([&] { last.copy("bin"); }),
                                       std::function<void()>([&] { last.integer("cls"); }),
                                       std::function<void()>([&] { data[25].copy("bin"); }),
                                       std::function<void()>([&] { data[20].copy("cls"); })}) {
                try {
                  read();
                } catch (const StaleIndex& e) {
                  const std::string text = e.what();
                  ++stale;
                  if (text.find("while it was open") == text.npos ||
                      text.find("in shard '" + shards.path(1) + "', offset ") == text.npos ||
                      text.find(" (1,000 bytes now, " + human_count(size) + " when opened)") ==
                          text.npos ||
                      text.find(kReadRemedy) == text.npos) {
                    return text;
                  }
                }
              }
              if (stale != 4) return "only " + std::to_string(stale) + " reads were stale";
              if (last.key() != key_of(39)) return "another key";
              for (std::uint64_t i = 0; i < 20; ++i) {
                if (auto wrong = wrong_with(data, i); !wrong.empty()) return wrong;
                if (data[40 + i].copy("bin") != content_of(40 + i)) return "other bytes";
              }
              return {};
            }),
            "");
}

// Bytes after the truncation point in the same page read as zeros, without a signal.
TEST(MapAccessTest, ACopyIsNeverOfTheZerosBehindTheNewEnd) {
  const Shards shards(1, 3);
  ASSERT_LT(fs::file_size(shards.path(0)), 16384U);
  const Dataset data = open(shards, Dataset::Access::kMap);
  const Sample sample = data[0];
  EXPECT_EQ(sample.copy("bin"), content_of(0));
  cut(shards.path(0), 520);
  EXPECT_EQ(error_code([&] { static_cast<void>(sample.copy("bin")); }), ErrorCode::kStaleIndex);
  EXPECT_EQ(error_code([&] { sample.integer("cls"); }), ErrorCode::kStaleIndex);
}

TEST(MapAccessTest, CopiesOfAShardThatWasReplacedOrDeletedAreItsOldBytes) {
  const Shards shards(2, 5);
  const Dataset data = open(shards, Dataset::Access::kMap);
  const Sample first = data[1];
  const Sample second = data[6];
  write_file(shards.dir() / "new", "other");
  ASSERT_EQ(std::rename((shards.dir() / "new").c_str(), shards.path(0).c_str()), 0);
  ASSERT_EQ(::unlink(shards.path(1).c_str()), 0);
  EXPECT_EQ(first.copy("bin"), content_of(1));
  EXPECT_EQ(second.copy("bin"), content_of(6));
  EXPECT_EQ(second.integer("cls"), 6);
}

// faults.md 7: no sample is ever wrong, whatever the moment of the truncation.
class TruncationRaceTest : public ::testing::TestWithParam<Dataset::Access> {};
INSTANTIATE_TEST_SUITE_P(Accesses, TruncationRaceTest,
                         ::testing::Values(Dataset::Access::kMap, Dataset::Access::kRead),
                         [](const auto& param_info) {
                           return param_info.param == Dataset::Access::kMap ? "Map" : "Read";
                         });

TEST_P(TruncationRaceTest, FourThreadsReadWhileAnotherTruncates) {
  EXPECT_EQ(in_child([&]() -> std::string {
              for (int round = 0; round < 5; ++round) {
                const Shards shards(4, 40);
                const Dataset data = Dataset::open(shards.index_path(),
                                                   {.max_open_shards = 2, .access = GetParam()});
                std::atomic<int> stale{0};
                std::atomic<int> wrong{0};
                std::atomic<int> other{0};
                std::atomic<bool> is_cut{false};
                std::vector<std::thread> threads;
                for (std::uint64_t t = 0; t < 4; ++t) {
                  threads.emplace_back([&, t] {
                    int left = 400;  // number of reads after the truncation
                    for (std::uint64_t i = t; left > 0; i = (i * 5 + 7 + t) % data.size()) {
                      if (is_cut) --left;
                      try {
                        if (data[i].copy("bin") != content_of(i)) ++wrong;
                        if (data[i].integer("cls") != static_cast<std::int64_t>(i % 10)) ++wrong;
                      } catch (const StaleIndex&) {
                        ++stale;
                        if (i / 40 != 2) ++other;  // a sample of a shard that was not truncated
                      } catch (const std::exception&) {
                        ++other;
                      }
                    }
                  });
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                cut(shards.path(2), round % 2 == 0 ? 600 : 9000);
                is_cut = true;
                for (std::thread& thread : threads) thread.join();
                if (wrong != 0) return "wrong bytes";
                if (other != 0) return "another error";
                if (stale == 0) return "no read met the cut";
              }
              return {};
            }),
            "");
}

}  // namespace
}  // namespace shardwise
