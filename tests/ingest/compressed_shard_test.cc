#include <array>
#include <filesystem>
#include <random>

#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/verify.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::HasSubstr;

constexpr std::array kAll = {Compression::kGzip, Compression::kZstd, Compression::kXz,
                             Compression::kBzip2, Compression::kLz4};

/// Members of many sizes, in dialects that take both ways through the scanner.
std::string mixed_tar() {
  TarBuilder tar;
  tar.entry("dir/", '5', "");
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string key = "dir/s" + std::to_string(i);
    tar.file(key + ".txt", std::string(i * 777 % 9000, 'x'));
    if (i == 20) tar.pax({{"path", key + ".long.pth"}, {"comment", std::string(3000, 'c')}});
    tar.file(key + ".pth", std::string(i == 30 ? 3'000'000 : 0, 'y'));
    tar.file(key + ".json", R"({"width": )" + std::to_string(i) + "}");
    if (i == 25) tar.entry(key + ".link", '2', "", "elsewhere");
  }
  return tar.end().bytes();
}

std::string records_of(const Index& index) {
  std::string text;
  const SegmentView view = index.segment(0);
  for (std::uint32_t i = 0; i < view.num_samples(); ++i) {
    text += view.key(i);
    for (const MemberRecord& m : view.members(i)) {
      text += " " + std::string(view.field_name(m.field())) + "@" +
              std::to_string(m.data_offset()) + "+" + std::to_string(m.size_bytes);
    }
    for (std::uint32_t c = 0; c < view.num_columns(); ++c) {
      text += " " + std::to_string(view.value(c, i).integer);
    }
    text += "\n";
  }
  if (view.has_member_hashes()) {
    for (std::uint32_t j = 0; j < view.num_members(); ++j) {
      text += std::to_string(view.member_hash(j)) + "\n";
    }
  }
  return text;
}

TEST(CompressedShardTest, IsIndexedLikeTheTarThatItHolds) {
  const std::string tar = mixed_tar();
  for (const bool with_content : {false, true}) {
    const TempDir dir;
    BuildOptions options;
    if (with_content) {
      options.content.hashes = true;
      options.content.columns = {parse_column("json:$.width")};
    }
    test::write_file(dir / "plain.tar", tar);
    build_index(dir / "plain.idx", {dir / "plain.tar"}, options);
    const auto plain = Index::open(dir / "plain.idx");
    for (const Compression compression : kAll) {
      SCOPED_TRACE(compression_name(compression));
      test::write_file(dir / "named.tar", test::compress(tar, compression));
      build_index(dir / "c.idx", {dir / "named.tar"}, options);
      const auto index = Index::open(dir / "c.idx");
      index->check();
      EXPECT_EQ(records_of(*index), records_of(*plain));
      EXPECT_EQ(index->fingerprint(), plain->fingerprint()) << "expanding it changes nothing";
      EXPECT_EQ(index->shard(0).compression, compression);
      EXPECT_EQ(index->shard(0).expanded_bytes, tar.size());
      EXPECT_EQ(index->shard(0).size_bytes, std::filesystem::file_size(dir / "named.tar"));
      EXPECT_EQ(verify_shard(*index, 0, {.full = with_content}), std::nullopt);
      EXPECT_EQ(dir.list().size(), 6U) << "the temporary file is gone";
    }
  }
}

TEST(CompressedShardTest, DamageIsSaidWithTheExpandedOffset) {
  const TempDir dir;
  const auto error = [&](const std::string& bytes) {
    test::write_file(dir / "x.tar.gz", bytes);
    return test::error_text([&] { build_index(dir / "x.idx", {dir / "x.tar.gz"}); });
  };
  const std::string tar = mixed_tar();
  const std::string whole = test::compress(tar, Compression::kGzip);
  EXPECT_THAT(error(whole.substr(0, whole.size() / 2)),
              HasSubstr("the compressed file is damaged (truncated gzip input): "));
  std::string broken = tar;
  broken[512 + 100] ^= 1;  // in the second header
  EXPECT_THAT(error(test::compress(broken, Compression::kGzip)),
              HasSubstr("a header whose checksum is wrong: " + std::string("'") +
                        (dir / "x.tar.gz") + "', expanded offset 512"));
  EXPECT_THAT(error(test::compress("not a tar", Compression::kGzip)),
              HasSubstr("the file is not a tar archive"));
  EXPECT_THAT(error(test::compress(tar.substr(0, tar.size() / 2), Compression::kGzip)),
              HasSubstr("truncated"));
  EXPECT_THAT(error(test::compress(test::compress(tar, Compression::kXz), Compression::kGzip)),
              HasSubstr("the archive is compressed (xz)"));
}

TEST(CompressedShardTest, ATarWhoseFirstMemberLooksCompressedIsATar) {
  const TempDir dir;
  TarBuilder tar;
  test::write_file(dir / "x.tar", tar.file("BZh9.txt", "hello").end().bytes());
  build_index(dir / "x.idx", {dir / "x.tar"});
  EXPECT_EQ(Index::open(dir / "x.idx")->shard(0).compression, Compression::kNone);
}

TEST(CompressedShardTest, EveryDamagedHeaderGivesTheSameAsInThePlainTar) {
  const std::string tar = mixed_tar();
  const TempDir dir;
  const auto outcome = [&](const std::string& bytes) -> std::string {
    test::write_file(dir / "x.tar", bytes);
    try {
      build_index(dir / "x.idx", {dir / "x.tar"});
      return records_of(*Index::open(dir / "x.idx"));
    } catch (const Error& e) {
      std::string text = e.what();
      for (const std::string word : {"expanded "}) {
        if (const auto at = text.find(word); at != text.npos) text.erase(at, word.size());
      }
      return text;
    }
  };
  const std::uint64_t seed = 7;
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    std::string damaged = tar;
    // Headers begin at multiples of 512; half of the time their checksum is mended.
    const std::size_t block = random() % (tar.size() / 512 - 2) * 512;
    for (int i = 0; i < 2; ++i) damaged[block + random() % 512] = static_cast<char>(random() % 256);
    if (random() % 2 == 0) TarBuilder::fix_checksum(damaged.data() + block);
    ASSERT_EQ(outcome(damaged), outcome(test::compress(damaged, Compression::kLz4)))
        << "seed " << seed << " trial " << trial;
  }
}

}  // namespace
}  // namespace shardwise
