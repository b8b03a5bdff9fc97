#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/mapped_file.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "ingest/shard_scan.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/verify.h"
#include "support/process.h"
#include "support/shards.h"
#include "support/support.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::array kAll = {Compression::kGzip, Compression::kZstd, Compression::kXz,
                             Compression::kBzip2, Compression::kLz4};

/// Members of many sizes, in tar dialects that use both code paths of the scanner.
std::string mixed_tar() {
  TarBuilder tar;
  tar.entry("dir/", '5', "");
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string key = "dir/s" + std::to_string(i);
    tar.file(key + ".txt", std::string(i * 777 % 9000, 'x'));
    if (i == 20) tar.pax({{"path", key + ".long.pth"}, {"comment", std::string(3000, 'c')}});
    tar.file(key + ".pth", std::string(i == 30 ? 3'000'000 : 0, 'y'));
    tar.file(key + ".json", R"({"width": )" + std::to_string(i) + "}");
    if (i == 25) tar.entry(key + "_link", '2', "", "elsewhere");
  }
  return tar.end().bytes();
}

std::string records_of(const Index& index) {
  std::string text;
  const SegmentView view = segment_of(index, 0);
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
      index->validate();
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
              AllOf(HasSubstr("damaged (truncated"), HasSubstr("within a gzip stream")));
  std::string broken = tar;
  broken[512 + 100] ^= 1;  // in the second header
  EXPECT_THAT(error(test::compress(broken, Compression::kGzip)),
              AllOf(HasSubstr("checksum of a header"),
                    HasSubstr("'" + (dir / "x.tar.gz") + "', expanded offset 512")));
  EXPECT_THAT(error(test::compress("not a tar", Compression::kGzip)),
              HasSubstr("not a tar archive"));
  EXPECT_THAT(error(test::compress(tar.substr(0, tar.size() / 2), Compression::kGzip)),
              HasSubstr("truncated"));
  EXPECT_THAT(error(test::compress(test::compress(tar, Compression::kXz), Compression::kGzip)),
              HasSubstr("the archive is compressed (xz)"));
}

TEST(CompressedShardTest, ADamagedStreamIsRefused) {
  const TempDir dir;
  const std::string path = dir / "x.tar.z";
  const auto error = [&](const std::string& bytes) {
    test::write_file(path, bytes);
    return test::error_text([&] { build_index(dir / "x.idx", {path}); });
  };
  const std::string tar = mixed_tar();
  for (const Compression compression : kAll) {
    SCOPED_TRACE(compression_name(compression));
    // Split between two members, so that the first stream alone is a tar without an end marker.
    const std::string first = test::compress(tar.substr(0, 1024), compression);
    const std::string second = test::compress(tar.substr(1024), compression);
    test::write_file(path, first + second);
    EXPECT_EQ(build_index(dir / "x.idx", {path}).summary.num_members, 120U);
    std::string damaged = first + second;
    damaged[first.size()] ^= 1;
    EXPECT_THAT(error(damaged),
                AllOf(HasSubstr(std::string(compression_name(compression)) + " stream is neither"),
                      HasSubstr("nor zeros): '" + path + "', offset " +
                                std::to_string(first.size()) + ",")));
    EXPECT_THAT(error(first + second + "rubbish"), HasSubstr("nor zeros"));
    damaged = first + second;
    damaged[damaged.size() - 6] ^= 4;  // in the last stream's checksum, or in its length
    EXPECT_THAT(error(damaged), HasSubstr("the compressed file is damaged ("));
  }
}

TEST(CompressedShardTest, WithoutAChecksumItIsIndexedAndReported) {
  const TempDir dir;
  const std::string tar = mixed_tar();
  test::write_file(dir / "0.tar", tar);
  test::write_file(dir / "1.tar", test::compress(tar, Compression::kZstd));
  std::vector<std::string> shards{dir / "0.tar", dir / "1.tar"};
  for (const Compression compression : {Compression::kZstd, Compression::kXz, Compression::kLz4}) {
    shards.push_back(dir / std::string(compression_name(compression)));
    test::write_file(shards.back(), test::compress_unchecked(tar, compression));
  }
  EXPECT_THAT(build_index(dir / "x.idx", shards).without_checksum,
              testing::ElementsAre(shards[2], shards[3], shards[4]));
}

/// Returns random bytes, which no codec can compress.
std::string noise(std::size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(CompressedShardTest, WhatFollowsABadHeaderIsNeitherReadNorKept) {
  const TempDir dir;
  std::string tar = TarBuilder().file("a.txt", "a").file("b.txt", "b").bytes() + noise(24 << 20);
  tar[1024 + 100] ^= 1;  // in the second header
  const std::string path = dir / "x.tar.lz4";
  test::write_file(path, test::compress(tar, Compression::kLz4));
  std::uint64_t read = 0;
  const auto scan = [&](DefectPolicies policies) {
    read = 0;
    return scan_shard({.path = path}, {.policies = policies,
                                       .temporary = dir / "x",
                                       .progress = [&](std::uint64_t bytes) { read = bytes; }});
  };
  EXPECT_THAT(
      test::error_text([&] { scan({}); }),
      AllOf(HasSubstr("checksum of a header"), HasSubstr("'" + path + "', expanded offset 1024")));
  EXPECT_LT(read, 8U << 20) << "the expansion ends with the scan";
  const ShardPart lenient = scan(DefectPolicies::all(DefectPolicies::OnDefect::kSkip));
  EXPECT_EQ(lenient.row.num_samples, 1U);
  EXPECT_EQ(lenient.row.expanded_bytes, tar.size());
  EXPECT_GT(read, 24U << 20) << "the stream's checksum is looked at nevertheless";
}

/// Scans a tar, or an image of it, and returns the results as text.
std::string scan_text(std::string_view bytes, bool lenient) {
  std::string text;
  try {
    const TarScanReport report =
        scan_tar(bytes, "x.tar", {.lenient = lenient}, [&](const TarMember& member) {
          text += std::string(member.name) + "@" + std::to_string(member.data_offset) + " ";
        });
    text += "rubbish " + std::to_string(report.trailing_bytes) + " marker " +
            std::to_string(report.end_marker) + " " + to_string(report.header_hash);
    for (const TarProblem& problem : report.skipped) {
      text += " " + std::to_string(problem.offset) + problem.what;
    }
  } catch (const Error& e) {
    text += e.what();
  }
  return text;
}

TEST(CompressedShardTest, RubbishTakesNoScratchSpace) {
  const TempDir dir;
  const std::string members = TarBuilder().file("a.txt", "a").file("b.txt", "b").bytes();
  const std::string header = members.substr(0, 512);
  std::string headers;
  while (headers.size() < 8U << 20) headers += header;
  const std::string rubbish = noise(16 << 20);
  std::string bad = members;
  bad[1024 + 100] ^= 1;
  for (const std::string& tar : {
           bad + rubbish,
           bad + headers,
           members + std::string(1024, '\0') + rubbish,
           members + std::string(1024, '\0') + rubbish + "x",
           members + std::string(1024, '\0') + rubbish + header,
           members + std::string(1024, '\0') + rubbish + headers,
       }) {
    File file = File::create_exclusive(dir / "image");
    const SparseTarImage::Keep keep_none = [](std::string_view, std::uint64_t) { return false; };
    SparseTarImage::Writer writer(file, keep_none);
    for (std::size_t at = 0; at < tar.size(); at += 1000 * 1000) {
      writer.take(std::string_view(tar).substr(at, 1000 * 1000));
    }
    const std::uint64_t size = writer.finish();
    file.resize(size);
    struct stat st {};
    ASSERT_EQ(::fstat(file.fd(), &st), 0);
    EXPECT_LT(st.st_blocks * 512, 5 << 20);
    const MappedFile image = MappedFile::open(file);
    ASSERT_EQ(image.bytes().size(), tar.size());
    for (const bool lenient : {false, true}) {
      EXPECT_EQ(scan_text(image.bytes(), lenient), scan_text(tar, lenient));
    }
    std::filesystem::remove(dir / "image");
  }
}

TEST(CompressedShardTest, AProcessThatIsKilledLeavesNoScratchFile) {
  const TempDir dir, scratch;
  const std::string tar = mixed_tar();
  const std::string path = dir / "x.tar.zst";
  test::write_file(path, test::compress(tar, Compression::kZstd));
  BuildOptions options;
  options.content.hashes = true;
  build_index(dir / "x.idx", {path}, options);
  const std::vector<std::string> before = dir.list();
  const auto die = [](const auto&) { ::raise(SIGKILL); };

  test::Child scanning([&] {
    scan_shard({.path = path}, {.hash = true, .temporary = scratch / "x", .progress = die});
    return "it was not killed";
  });
  EXPECT_EQ(scanning.wait(), "killed by signal 9");
  test::Child verifying([&] {
    ::setenv("TMPDIR", scratch.path().c_str(), 1);
    verify_shard(*Index::open(dir / "x.idx"), 0, {.full = true, .progress = die});
    return "it was not killed";
  });
  EXPECT_EQ(verifying.wait(), "killed by signal 9");
  EXPECT_THAT(scratch.list(), testing::IsEmpty());
  EXPECT_EQ(dir.list(), before);
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
  std::mt19937_64 random(test::random_seed());
  for (int trial = 0; trial < test::repeats(60, 3000); ++trial) {
    std::string damaged = tar;
    // Headers begin at multiples of 512. In half of the cases the damaged header's checksum is
    // corrected.
    const std::size_t block = random() % (tar.size() / 512 - 2) * 512;
    for (int i = 0; i < 2; ++i) damaged[block + random() % 512] = static_cast<char>(random() % 256);
    if (random() % 2 == 0) TarBuilder::fix_checksum(damaged.data() + block);
    ASSERT_EQ(outcome(damaged), outcome(test::compress(damaged, Compression::kLz4)))
        << "trial " << trial;
  }
}

}  // namespace
}  // namespace shardwise
