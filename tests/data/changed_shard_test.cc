// faults.md 8 and 9: a shard is not the one that was indexed. The error names the shard and a
// remedy, and the dataset still serves the other shards.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "base/text.h"
#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::content_of;
using test::error_code;
using test::error_text;
using test::read_file;
using test::set_old_time;
using test::Shards;
using test::write_file;
using test::wrong_with;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRemedy[] = "`shardwise index` again";

class ChangedShardTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kPerShard = 10;

  /// Checks that shard 1 of 3 fails repeatedly, with `code` and a text that contains `parts`, and
  /// that the other shards do not fail.
  void expect_only_shard_1_fails(const Dataset& data, ErrorCode code,
                                 const std::vector<std::string>& parts) {
    for (int round = 0; round < 2; ++round) {
      for (std::uint64_t i = 0; i < kPerShard; ++i) {
        EXPECT_EQ(wrong_with(data, i), "");
        EXPECT_EQ(error_code([&] { data[kPerShard + i]; }), code);
        EXPECT_EQ(wrong_with(data, 2 * kPerShard + i), "");
      }
    }
    const std::string text = error_text([&] { data[kPerShard]; });
    EXPECT_EQ(error_text([&] { static_cast<void>(data.find(test::key_of(kPerShard))); }), text);
    for (const std::string& part : parts) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(text, HasSubstr("'" + shards_.path(1) + "'"));
  }

  /// Returns another shard of the same size.
  std::string other_bytes() const { return test::shard_bytes(2 * kPerShard, kPerShard); }

  const Shards shards_{3, kPerShard};
};

TEST_F(ChangedShardTest, ReplacedByRenameBeforeTheFirstTouchIsStale) {
  write_file(shards_.dir() / "new", other_bytes() + std::string(512, '\0'));
  ASSERT_EQ(std::rename((shards_.dir() / "new").c_str(), shards_.path(1).c_str()), 0);
  const Dataset data = Dataset::open(shards_.index_path());
  expect_only_shard_1_fails(
      data, ErrorCode::kStaleIndex,
      {"since it was indexed: '",
       human_count(fs::file_size(shards_.path(1))) + " bytes now, " +
           human_count(fs::file_size(shards_.path(1)) - 512) + " when indexed)",
       kRemedy});
}

TEST_F(ChangedShardTest, ReplacedByRenameWhileMappedKeepsItsOldBytesUntilReopened) {
  const Dataset data = Dataset::open(shards_.index_path());
  const Sample held = data[kPerShard];
  write_file(shards_.dir() / "new", other_bytes());
  ASSERT_EQ(std::rename((shards_.dir() / "new").c_str(), shards_.path(1).c_str()), 0);
  EXPECT_EQ(wrong_with(data), "");
  EXPECT_EQ(held["bin"], content_of(kPerShard));
  expect_only_shard_1_fails(Dataset::open(shards_.index_path()), ErrorCode::kStaleIndex, {kRemedy});
}

TEST_F(ChangedShardTest, ReplacedWhileEvictedIsStaleAtTheNextTouch) {
  const Dataset data = Dataset::open(shards_.index_path(), {.max_open_shards = 1});
  EXPECT_EQ(wrong_with(data), "");
  write_file(shards_.dir() / "new", other_bytes());
  ASSERT_EQ(std::rename((shards_.dir() / "new").c_str(), shards_.path(1).c_str()), 0);
  expect_only_shard_1_fails(data, ErrorCode::kStaleIndex, {kRemedy});
}

TEST_F(ChangedShardTest, EditedInPlaceWithTheSameSizeIsStale) {
  std::string bytes = read_file(shards_.path(1));
  bytes[600] ^= 1;
  write_file(shards_.path(1), bytes);
  expect_only_shard_1_fails(
      Dataset::open(shards_.index_path()), ErrorCode::kStaleIndex,
      {"(modified ", ", 2001-09-09 01:46:40.000000000 UTC when indexed)", kRemedy});
}

TEST_F(ChangedShardTest, TouchedIsStaleForTheTimeIsAllThatIsKnown) {
  set_old_time(shards_.path(1), 1'000'000'001);
  expect_only_shard_1_fails(Dataset::open(shards_.index_path()), ErrorCode::kStaleIndex,
                            {"(modified 2001-09-09 01:46:41.000000000 UTC, "
                             "2001-09-09 01:46:40.000000000 UTC when indexed)",
                             kRemedy});
}

TEST_F(ChangedShardTest, ReplacedWithSizeAndTimeRestoredIsSeenByItsFirstHeader) {
  std::string bytes = read_file(shards_.path(1));
  bytes[0] = 'e';
  test::TarBuilder::fix_checksum(bytes.data());
  write_file(shards_.path(1), bytes);
  set_old_time(shards_.path(1));
  expect_only_shard_1_fails(
      Dataset::open(shards_.index_path()), ErrorCode::kStaleIndex,
      {"the shard changed", "size and time did not", "', offset 0", "`shardwise index` again"});
  EXPECT_EQ(update_index(shards_.index_path()).shards_scanned, 1u);
  const Dataset data = Dataset::open(shards_.index_path());
  const Sample first = data[kPerShard];
  EXPECT_EQ(first.key(), "eir/000010");
}

TEST_F(ChangedShardTest, WhatWasWrittenToStaysStaleThoughAnotherFileTakesItsName) {
  const Dataset data = Dataset::open(shards_.index_path());
  const Sample held = data[kPerShard];
  const std::string whole = read_file(shards_.path(1));
  std::string edited = whole;
  edited[512] ^= 1;
  write_file(shards_.path(1), edited);
  EXPECT_EQ(error_code([&] { held.copy("bin"); }), ErrorCode::kStaleIndex);
  write_file(shards_.dir() / "new", whole);
  ASSERT_EQ(std::rename((shards_.dir() / "new").c_str(), shards_.path(1).c_str()), 0);
  EXPECT_EQ(error_code([&] { held.copy("bin"); }), ErrorCode::kStaleIndex);
  EXPECT_THAT(error_text([&] { data[kPerShard].copy("bin"); }),
              AllOf(HasSubstr("while it was open"), HasSubstr("sample 10 ")));
  fs::remove(shards_.path(1));
  EXPECT_EQ(error_code([&] { held.copy("bin"); }), ErrorCode::kStaleIndex);
  EXPECT_EQ(wrong_with(data, 0), "");
}

// A new shard has the size and time of the old one if shards are packed reproducibly, or if a copy
// keeps the file's time.
TEST(ChangedCompressedShardTest, ANewOneOfTheSameSizeAndTimeIsNotTakenFromTheCache) {
  const test::TempDir dir;
  const auto cache = ShardCache::open({.directory = dir / "cache"});
  std::vector<std::string> came;
  for (const std::string content : {"old", "new"}) {
    std::string bytes =
        test::compress(test::TarBuilder().file("k.txt", content).end().bytes(), Compression::kGzip);
    ASSERT_LT(bytes.size(), 400u);
    bytes.resize(400);  // zeros may follow a compressed stream
    write_file(dir / "s.tar.gz", bytes);
    set_old_time(dir / "s.tar.gz");
    build_index(dir / (content + ".idx"), {dir / "s.tar.gz"});
    came.emplace_back(Dataset::open(dir / (content + ".idx"), {.cache = cache})[0].copy("txt"));
  }
  EXPECT_THAT(came, ::testing::ElementsAre("old", "new"));
}

TEST_F(ChangedShardTest, TruncatedBeforeTheFirstTouchIsStale) {
  const auto size = fs::file_size(shards_.path(1));
  ASSERT_EQ(::truncate(shards_.path(1).c_str(), 1000), 0);
  const Dataset data = Dataset::open(shards_.index_path());
  expect_only_shard_1_fails(data, ErrorCode::kStaleIndex,
                            {"(1,000 bytes now, " + human_count(size) + " when indexed)", kRemedy});
  ASSERT_EQ(::truncate(shards_.path(1).c_str(), 0), 0);
  expect_only_shard_1_fails(data, ErrorCode::kStaleIndex,
                            {"(0 bytes now, " + human_count(size) + " when indexed)", kRemedy});
}

TEST_F(ChangedShardTest, DeletedIsNotFound) {
  ASSERT_EQ(::unlink(shards_.path(1).c_str()), 0);
  const Dataset data = Dataset::open(shards_.index_path());
  expect_only_shard_1_fails(data, ErrorCode::kNotFound,
                            {"shard not found: '", "No such file", "1 of 3 shards", "relative"});
}

TEST_F(ChangedShardTest, ADirectoryInItsPlaceIsATypedError) {
  ASSERT_EQ(::unlink(shards_.path(1).c_str()), 0);
  fs::create_directory(shards_.path(1));
  expect_only_shard_1_fails(Dataset::open(shards_.index_path()), ErrorCode::kInvalidArgument,
                            {"is a directory, not a file"});
}

TEST_F(ChangedShardTest, BroughtBackIsServedAgainByTheSameDataset) {
  const std::string bytes = read_file(shards_.path(1));
  ASSERT_EQ(::unlink(shards_.path(1).c_str()), 0);
  const Dataset data = Dataset::open(shards_.index_path());
  EXPECT_EQ(error_code([&] { data[kPerShard]; }), ErrorCode::kNotFound);
  write_file(shards_.path(1), bytes);
  EXPECT_EQ(error_code([&] { data[kPerShard]; }), ErrorCode::kStaleIndex);
  set_old_time(shards_.path(1));
  EXPECT_EQ(wrong_with(data), "");
}

TEST_F(ChangedShardTest, IndexedAgainIsServedByANewDataset) {
  set_old_time(shards_.path(1), 1'000'000'001);
  const Dataset old = Dataset::open(shards_.index_path());
  EXPECT_EQ(error_code([&] { old[kPerShard]; }), ErrorCode::kStaleIndex);
  const BuildReport report = build_index(shards_.index_path(), shards_.paths(), {.threads = 1});
  EXPECT_EQ(report.shards_scanned, 1U);
  EXPECT_EQ(wrong_with(Dataset::open(shards_.index_path())), "");
  // `old` is a snapshot of the old index.
  EXPECT_EQ(error_code([&] { old[kPerShard]; }), ErrorCode::kStaleIndex);
}

}  // namespace
}  // namespace shardwise
