#include "shardwise/ingest/verify.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/ingest/index_builder.h"
#include "support/environment.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::HasSubstr;

/// Rewrites a file in place, and restores its time.
void rewrite(const std::string& path, std::string_view bytes) {
  struct stat before {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  {
    File file = File::open_or_create(path);
    file.write_at(0, bytes);
  }
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

struct IndexedTar {
  explicit IndexedTar(const std::string& tar) {
    test::write_file(shard, tar);
    BuildOptions options;
    options.content.hashes = true;
    build_index(dir / "x.idx", {shard}, options);
    index = Index::open(dir / "x.idx");
  }
  std::optional<std::string> problem_with(const std::string& bytes, bool full) {
    rewrite(shard, bytes);
    return verify_shard(*index, 0, {.full = full});
  }

  TempDir dir;
  std::string shard = dir / "x.tar";
  std::shared_ptr<const Index> index;
};

std::string small_tar() {
  TarBuilder tar;
  tar.file("a.txt", "first").file("a.cls", "1");
  tar.pax({{"path", "dir/" + std::string(120, 'n') + ".txt"}, {"mtime", "1.5"}})
      .file("x", "second");
  tar.entry("././@LongLink", 'L', "dir/" + std::string(120, 'm') + ".txt" + '\0').file("y", "3");
  tar.entry("link", '2', "", "a.txt").file("b.txt", std::string(600, 'b'));
  return tar.end().bytes();
}

TEST(VerifyTest, FindsEveryFlippedByteOfHeadersAndInFullOfData) {
  const std::string tar = small_tar();
  IndexedTar indexed(tar);
  ASSERT_EQ(indexed.problem_with(tar, true), std::nullopt);
  // True for members' data with its padding, and for the end marker.
  std::vector<bool> is_data(tar.size());
  for (const MemberRecord& m : segment_of(*indexed.index, 0).members()) {
    const std::size_t padded = (m.size_bytes + 511) / 512 * 512;
    for (std::size_t i = 0; i < padded; ++i) is_data[m.data_offset() + i] = true;
  }
  for (std::size_t i = tar.size() - 1024; i < tar.size(); ++i) is_data[i] = true;
  std::size_t num_headers = 0;
  for (std::size_t i = 0; i < tar.size(); ++i) {
    std::string flipped = tar;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x01);
    if (!is_data[i]) {
      ++num_headers;
      ASSERT_TRUE(indexed.problem_with(flipped, false)) << "byte " << i;
    }
    ASSERT_TRUE(indexed.problem_with(flipped, true)) << "byte " << i;
  }
  EXPECT_GT(num_headers, 9U * 512);
}

TEST(VerifyTest, SaysWhichMemberDiffers) {
  const std::string tar = small_tar();
  IndexedTar indexed(tar);
  std::string changed = tar;
  changed[512 + 2] = 'X';
  EXPECT_EQ(indexed.problem_with(changed, false), std::nullopt) << "headers are as they were";
  EXPECT_THAT(indexed.problem_with(changed, true).value_or(""),
              testing::AllOf(HasSubstr("content of"), HasSubstr("'a.txt' at offset 512")));
  changed = tar;
  changed[512 + 100] = 'X';  // in the padding
  EXPECT_THAT(indexed.problem_with(changed, true).value_or(""),
              testing::AllOf(HasSubstr("outside of headers"), HasSubstr("indexed")));
  changed = tar;
  changed[1024] = 'z';
  TarBuilder::fix_checksum(changed.data() + 1024);
  EXPECT_THAT(*indexed.problem_with(changed, false),
              testing::AllOf(HasSubstr("'z.cls' at offset 1536 with 1 byte"),
                             HasSubstr("'cls' of sample 'a' at offset 1536")));
}

TEST(VerifyTest, SaysWhatIsGoneOrOfAnotherTime) {
  const std::string tar = small_tar();
  IndexedTar indexed(tar);
  test::write_file(indexed.shard, tar + std::string(512, '\0'));
  EXPECT_THAT(*verify_shard(*indexed.index, 0), HasSubstr("bytes now"));
  std::remove(indexed.shard.c_str());
  EXPECT_THAT(*verify_shard(*indexed.index, 0), HasSubstr("x.tar"));
  EXPECT_EQ(test::error_code([&] { verify_shard(*indexed.index, 1); }), ErrorCode::kOutOfRange);
}

TEST(VerifyTest, InFullNeedsHashes) {
  const TempDir dir;
  build_index(dir / "t.idx", test::write_shards(dir, 1, 3));
  EXPECT_THAT(
      test::error_text([&] { verify_shard(*Index::open(dir / "t.idx"), 0, {.full = true}); }),
      HasSubstr("index holds no hashes"));
}

TEST(VerifyTest, AVariableThatNamesNoFolderForTemporaryFilesIsIgnored) {
  const TempDir dir;
  build_index(dir / "t.idx", test::write_shards(dir, 1, 3));
  test::Environment environment;
  environment.set("TMPDIR", dir / "missing");
  EXPECT_EQ(verify_shard(*Index::open(dir / "t.idx"), 0), std::nullopt);
}

TEST(VerifyTest, AnyNumberOfThreadsReportsTheShardsInOrder) {
  const TempDir dir;
  std::vector<std::string> shards;
  for (int i = 0; i < 40; ++i) {
    TarBuilder tar;
    shards.push_back(dir / (std::to_string(100 + i) + ".tar"));
    test::write_file(shards.back(), tar.file("key.txt", std::to_string(i)).end().bytes());
  }
  BuildOptions options;
  options.content.hashes = true;
  build_index(dir / "x.idx", shards, options);
  const auto index = Index::open(dir / "x.idx");
  std::vector<std::uint64_t> samples_done;
  index->validate({}, [&](std::uint64_t done) { samples_done.push_back(done); });
  EXPECT_THAT(samples_done, testing::SizeIs(40));
  EXPECT_EQ(samples_done.back(), 40u);
  const CancelToken::Flag cancelled = true;
  EXPECT_EQ(test::error_code([&] { index->validate(&cancelled); }), ErrorCode::kCancelled);
  rewrite(shards[7], TarBuilder().file("key.txt", "X").end().bytes());
  for (const unsigned threads : {0u, 1u, 5u}) {
    std::vector<std::uint64_t> numbers;
    Progress last;
    verify_shards(*index,
                  {.full = true,
                   .threads = threads,
                   .progress = [&](const Progress& progress) { last = progress; }},
                  [&](std::uint64_t shard, const std::optional<std::string>& problem) {
                    numbers.push_back(shard);
                    EXPECT_EQ(problem.has_value(), shard == 7) << threads;
                  });
    EXPECT_THAT(numbers, testing::SizeIs(40));
    EXPECT_TRUE(std::ranges::is_sorted(numbers));
    EXPECT_EQ(last.shards_done, 40u);
    EXPECT_EQ(last.bytes_done, index->summary().shard_bytes);
  }
}

}  // namespace
}  // namespace shardwise
