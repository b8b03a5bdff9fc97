// Links, devices, and names that WebDataset reserves: which of them an index includes, and what it
// reports about skipped ones.

#include "index/offset_table.h"
#include "index/segment_of.h"
#include "ingest/shard_scan.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_export.h"
#include "shardwise/ingest/verify.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

BuildOptions with_links(DefectPolicies::OnLink link) {
  BuildOptions options;
  options.content.policies.link = link;
  return options;
}

/// Returns "kind name@offset: reason" for each entry that a scan skips.
std::vector<std::string> left_out(const std::string& path, const DefectPolicies& policies) {
  std::vector<std::string> texts;
  ShardScanOptions options;
  options.policies = policies;
  for (const Index::SkippedMember& member : scan_shard({.path = path}, options).skipped) {
    texts.push_back(std::string(left_out_name(member.kind)) + " " + member.name + "@" +
                    std::to_string(member.offset) + ": " + member.reason);
  }
  return texts;
}

TEST(LinksTest, ALinkNamedLikeAMemberIsAnErrorThatNamesItsTarget) {
  const TempDir dir;
  const auto error = [&](char type, const BuildOptions& options) {
    TarBuilder tar;
    tar.file("a.jpg", "x").entry("b.jpg", type, "", "a.jpg").end();
    test::write_file(dir / "x.tar", tar.bytes());
    const auto build = [&] { build_index(dir / "x.idx", {dir / "x.tar"}, options); };
    EXPECT_EQ(test::error_code(build), ErrorCode::kUnsupported);
    return test::error_text(build);
  };
  EXPECT_THAT(error('1', {}),
              AllOf(HasSubstr("hard link to 'a.jpg'"), HasSubstr("named like a member"),
                    HasSubstr("x.tar', offset 1024, member 'b.jpg'"),
                    HasSubstr("--on-link resolve"), HasSubstr("--on-link skip")));
  EXPECT_THAT(error('2', {}),
              AllOf(HasSubstr("symbolic link to 'a.jpg'"), HasSubstr("named like a member"),
                    HasSubstr("offset 1024, member 'b.jpg'"), HasSubstr("--on-link skip")));
  EXPECT_THAT(error('2', with_links(DefectPolicies::OnLink::kResolve)),
              HasSubstr("symbolic links are never followed"));
}

TEST(LinksTest, WhatIsNoMemberIsLeftOutAndRecorded) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.jpg", "x").entry("README", '2', "", "a.jpg").entry("__l.jpg__", '1', "", "a.jpg");
  tar.entry("fifo.jpg", '6', "").entry("d/", '5', "").file("__meta__/x.json", "{}").end();
  test::write_file(dir / "x.tar", tar.bytes());
  EXPECT_THAT(left_out(dir / "x.tar", {}),
              ElementsAre("link README@1024: a symbolic link to 'a.jpg'",
                          "link __l.jpg__@1536: a hard link to 'a.jpg'",
                          "special fifo.jpg@2048: a device or FIFO",
                          "meta __meta__/x.json@3072: a name that webdataset reserves"));
  build_index(dir / "x.idx", {dir / "x.tar"});
  const auto index = Index::open(dir / "x.idx");
  EXPECT_EQ(index->size(), 1u);
  EXPECT_EQ(index->summary().num_skipped, 4u);
  EXPECT_EQ(verify_shard(*index, 0), std::nullopt);
}

TEST(LinksTest, EveryKindOfWhatIsLeftOutIsTold) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.jpg", "x").file("A", "no field").file("a.JPG", "again").file("b.jpg", "y");
  tar.entry("b.txt", '1', "", "a.jpg").file("a.cls", "1").entry("s.x", 'Z', "").end();
  test::write_file(dir / "x.tar", tar.bytes());
  const std::vector<std::string> texts =
      left_out(dir / "x.tar", DefectPolicies::all(DefectPolicies::OnDefect::kSkip));
  std::vector<std::string> kinds;
  for (const std::string& text : texts) kinds.push_back(text.substr(0, text.find(':')));
  EXPECT_THAT(kinds, ElementsAre("no-field A@1024", "duplicate-field a.JPG@2048", "link b.txt@4096",
                                 "repeated-key a@4608", "damage s.x@5632"));
}

/// Returns all samples with the content of their members.
std::string content_of(const std::string& path, const Dataset::Options& options = {}) {
  const auto data = Dataset::open(path, options);
  std::string text;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    const Sample sample = data[i];
    text += std::string(sample.key()) + ":";
    for (const std::string field : {"jpg", "cls", "txt"}) {
      if (const auto bytes = sample.find(field)) text += " " + field + "=" + std::string(*bytes);
    }
    text += "\n";
  }
  return text;
}

std::string tar_with_links() {
  TarBuilder tar;
  tar.file("blob", "shared bytes").file("a.jpg", "image a").file("a.cls", "1");
  tar.entry("b.jpg", '1', "", "a.jpg").file("b.cls", "2");
  tar.entry("link", '1', "", "blob").entry("c.jpg", '1', "", "link").file("c.cls", "3");
  tar.file("c.txt", "of c").entry("d.txt", '1', "", "c.txt").entry("d.jpg", '1', "", "b.jpg");
  return tar.end().bytes();
}

TEST(LinksTest, ResolvedHardLinksHaveTheBytesOfTheirTargets) {
  const std::string expected =
      "a: jpg=image a cls=1\nb: jpg=image a cls=2\nc: jpg=shared bytes cls=3 txt=of c\n"
      "d: jpg=image a txt=of c\n";
  const TempDir dir;
  BuildOptions options = with_links(DefectPolicies::OnLink::kResolve);
  options.content.policies.no_field = DefectPolicies::OnDefect::kSkip;
  for (const bool with_content : {false, true}) {
    options.content.hashes = with_content;
    if (with_content) options.content.columns = {parse_column("cls"), parse_column("txt")};
    Hash128 fingerprint;
    for (const std::optional<Compression> compression :
         {std::optional<Compression>(), std::optional(Compression::kGzip),
          std::optional(Compression::kZstd)}) {
      test::write_file(dir / "x.tar", compression ? test::compress(tar_with_links(), *compression)
                                                  : tar_with_links());
      build_index(dir / "x.idx", {dir / "x.tar"}, options);
      const auto index = Index::open(dir / "x.idx");
      index->validate();
      EXPECT_EQ(verify_shard(*index, 0, {.full = with_content}), std::nullopt);
      if (with_content) {
        EXPECT_EQ(segment_of(*index, 0).value(1, 3).bytes, "of c")
            << "the column of a link's field";
        EXPECT_EQ(segment_of(*index, 0).member_hash(2), segment_of(*index, 0).member_hash(0));
      }
      if (compression) {
        EXPECT_EQ(index->fingerprint(), fingerprint);
        continue;
      }
      fingerprint = index->fingerprint();
      EXPECT_EQ(content_of(dir / "x.idx"), expected);
      EXPECT_EQ(content_of(dir / "x.idx", {.access = Dataset::Access::kRead}), expected);
      // Verifying the index also detects a link with another target.
      std::string changed = tar_with_links();
      changed.replace(changed.find("b.jpg") + 157, 5, "a.cls");
      TarBuilder::fix_checksum(changed.data() + changed.find("b.jpg"));
      const Index::Shard info = index->shard(0);
      test::write_file(dir / "copy.tar", changed);
      EXPECT_THAT(verify_copy(*index, 0, dir / "copy.tar").value_or("nothing"),
                  HasSubstr("index has 'jpg' of sample 'b'"));
    }
  }
}

TEST(LinksTest, AHardLinkToNothingEarlierIsAnErrorUnderResolve) {
  const TempDir dir;
  TarBuilder tar;
  tar.entry("a.jpg", '1', "", "b.jpg").file("b.jpg", "x").end();
  test::write_file(dir / "x.tar", tar.bytes());
  EXPECT_THAT(test::error_text([&] {
                build_index(dir / "x.idx", {dir / "x.tar"},
                            with_links(DefectPolicies::OnLink::kResolve));
              }),
              AllOf(HasSubstr("hard link to 'b.jpg'"), HasSubstr("named like a member"),
                    HasSubstr("no earlier member"), HasSubstr("offset 0, member 'a.jpg'")));
}

TEST(LinksTest, TheSecondPlaceOfAKeyIsWhereTheLinkStands) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.jpg", "x").file("b.jpg", "y").entry("a.cls", '1', "", "b.jpg").end();
  test::write_file(dir / "x.tar", tar.bytes());
  EXPECT_THAT(test::error_text([&] {
                build_index(dir / "x.idx", {dir / "x.tar"},
                            with_links(DefectPolicies::OnLink::kResolve));
              }),
              AllOf(HasSubstr("first at offset 0"), HasSubstr("offset 2048, member 'a'")));
}

TEST(LinksTest, ExportsGiveResolvedLinksOrRefuseThem) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.jpg", "image").entry("b.jpg", '1', "", "a.jpg").end();
  test::write_file(dir / "x.tar", tar.bytes());
  build_index(dir / "x.idx", {dir / "x.tar"}, with_links(DefectPolicies::OnLink::kResolve));
  const auto index = Index::open(dir / "x.idx");
  write_dali_index(*index, dir / "dali");
  EXPECT_EQ(test::read_file(dir / "dali/x.idx"), "v1.2 2\njpg 512 5 a.jpg\njpg 512 5 b.jpg\n");
  EXPECT_THAT(test::error_text([&] { write_wids_descriptor(*index, dir / "x.json"); }),
              HasSubstr("a hard link"));
}

TEST(LinksTest, WidsExportsMindWhatWidsWouldFind) {
  const TempDir dir;
  const auto export_of = [&](const TarBuilder& tar) {
    test::write_file(dir / "x.tar", tar.bytes());
    build_index(dir / "x.idx", {dir / "x.tar"}, with_links(DefectPolicies::OnLink::kSkip));
    write_wids_descriptor(*Index::open(dir / "x.idx"), dir / "x.json");
  };
  export_of(TarBuilder().file("a.jpg", "x").entry("latest", '2', "", "a.jpg").end());
  for (const TarBuilder& tar :
       {TarBuilder().file("a.jpg", "x").file("__info.json__", "{}").end(),
        TarBuilder().file("a.jpg", "x").entry("b.jpg", '1', "", "a").end()}) {
    EXPECT_THAT(test::error_text([&] { export_of(tar); }),
                HasSubstr("the index left out 1 member,"));
  }
}

}  // namespace
}  // namespace shardwise
