// The optional content of an index, and how strict its build is.

#include <atomic>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hasher.h"
#include "base/json.h"
#include "base/text.h"
#include "index/offset_table.h"
#include "index/segment.h"
#include "index/segment_of.h"
#include "ingest/assembly.h"
#include "ingest/column_reader.h"
#include "ingest/quick_check.h"
#include "ingest/sample_check.h"
#include "ingest/shard_scan.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/verify.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using namespace std::string_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string one_shard(const TempDir& dir, TarBuilder& tar, const std::string& name = "x.tar") {
  test::write_file(dir / name, tar.end().bytes());
  return dir / name;
}

std::vector<std::string> keys_of(const Index& index) {
  std::vector<std::string> keys;
  for (std::uint64_t s = 0; s < index.num_shards(); ++s) {
    const SegmentView view = segment_of(index, s);
    for (std::uint32_t i = 0; i < view.num_samples(); ++i) keys.emplace_back(view.key(i));
  }
  return keys;
}

TEST(BadPoliciesTest, HaveTextsThatComeBack) {
  EXPECT_EQ(to_string(DefectPolicies{}), "error");
  EXPECT_EQ(to_string(DefectPolicies::all(DefectPolicies::OnDefect::kSkip)), "skip");
  const DefectPolicies mixed{.no_field = DefectPolicies::OnDefect::kSkip,
                             .repeated_key = DefectPolicies::OnDefect::kKeep};
  EXPECT_EQ(to_string(mixed), "damage=error,no-field=skip,duplicate-field=error,repeated-key=keep");
  DefectPolicies linked = mixed;
  linked.link = DefectPolicies::OnLink::kResolve;
  EXPECT_EQ(to_string(linked), to_string(mixed) + ",link=resolve");
  const DefectPolicies skipped{.link = DefectPolicies::OnLink::kSkip};
  for (const DefectPolicies& policies :
       {DefectPolicies{}, DefectPolicies::all(DefectPolicies::OnDefect::kSkip), mixed, linked,
        skipped}) {
    EXPECT_EQ(parse_defect_policies(to_string(policies)), policies);
  }
  EXPECT_THAT(test::error_text([] { parse_defect_policies("ignore"); }),
              AllOf(HasSubstr("policy: 'ignore'"), HasSubstr("error, skip or keep")));
  EXPECT_EQ(test::error_code([] { parse_defect_policies("damage=error,"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_THAT(test::error_text([&] { parse_defect_policies(to_string(mixed) + ",link=keep"); }),
              AllOf(HasSubstr("policy: 'keep'"), HasSubstr("error, skip or resolve")));
}

TEST(IndexContentTest, ACancelIsHeardInALongTailOfZeros) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const TempDir dir;
  test::write_file(dir / "x.tar", TarBuilder().file("a.txt", "1").end().bytes());
  std::filesystem::resize_file(dir / "x.tar", 1024 * kMiB);
  std::atomic<bool> cancel = false;
  std::uint64_t reached = 0;
  BuildOptions options;
  options.threads = 1;
  options.cancel = &cancel;
  options.progress = [&](const Progress& at) {
    reached = at.bytes_done;
    if (reached > 16 * kMiB) cancel = true;
  };
  EXPECT_EQ(test::error_code([&] { build_index(dir / "x.idx", {dir / "x.tar"}, options); }),
            ErrorCode::kCancelled);
  EXPECT_GT(reached, 16 * kMiB);
  EXPECT_LT(reached, 32 * kMiB);
}

TEST(IndexContentTest, EachKindOfBadMemberHasItsOwnPolicy) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.txt", "1")
      .file("README", "2")
      .file("a.TXT", "3")
      .file("b.txt", "4")
      .file("a.txt", "5");
  const std::string shard = one_shard(dir, tar);
  BuildOptions options;
  const auto build = [&] { build_index(dir / "x.idx", {shard}, options); };
  EXPECT_THAT(test::error_text(build), HasSubstr("member 'README'"));
  options.content.policies.no_field = DefectPolicies::OnDefect::kSkip;
  EXPECT_THAT(test::error_text(build),
              AllOf(HasSubstr("field 'TXT' occurs twice"), HasSubstr("sample 'a'")));
  options.content.policies.duplicate_field = DefectPolicies::OnDefect::kSkip;
  EXPECT_THAT(test::error_text(build), HasSubstr("two places of the shard"));
  options.content.policies.repeated_key = DefectPolicies::OnDefect::kSkip;
  build();
  auto index = Index::open(dir / "x.idx");
  EXPECT_THAT(keys_of(*index), ElementsAre("a", "b"));
  EXPECT_EQ(index->summary().num_skipped, 3U);
  options.content.policies.repeated_key = DefectPolicies::OnDefect::kKeep;
  build();
  index = Index::open(dir / "x.idx");
  index->validate();
  EXPECT_THAT(keys_of(*index), ElementsAre("a", "b", "a"));
  EXPECT_EQ(index->find("a"), 0U) << "the first";
  EXPECT_EQ(index->content().policies, options.content.policies);
  options.content.policies.damage = DefectPolicies::OnDefect::kKeep;
  EXPECT_THAT(test::error_text(build),
              AllOf(HasSubstr("policy `keep`"), HasSubstr("repeated keys only")));
}

TEST(IndexContentTest, AKeyInManyPlacesCostsNoMoreThanMany) {
  // Two keys alternate, so there are 10^9 pairs of samples with equal keys.
  constexpr std::uint64_t kSamples = 60'000;
  const TempDir dir;
  TarBuilder tar;
  for (std::uint64_t i = 0; i < kSamples; ++i) tar.file(i % 2 == 0 ? "a.txt" : "b.txt", "");
  const std::string shard = one_shard(dir, tar);
  BuildOptions options;
  options.content.policies.repeated_key = DefectPolicies::OnDefect::kKeep;
  build_index(dir / "x.idx", {shard}, options);
  auto index = Index::open(dir / "x.idx");
  index->validate();
  EXPECT_EQ(index->size(), kSamples);
  EXPECT_EQ(index->find("b"), 1U);
  const std::vector<std::uint64_t> all = index->find_all("b");
  ASSERT_EQ(all.size(), kSamples / 2);
  for (std::uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 2 * i + 1);

  options.content.unique_keys = true;
  EXPECT_TRUE(build_index(dir / "x.idx", {shard}, options).summary.content.unique_keys)
      << "within a shard the policy decides";

  options.content.policies.repeated_key = DefectPolicies::OnDefect::kSkip;
  build_index(dir / "x.idx", {shard}, options);
  index = Index::open(dir / "x.idx");
  EXPECT_THAT(keys_of(*index), ElementsAre("a", "b"));
  EXPECT_EQ(index->summary().num_skipped, kSamples - 2) << "each once";
  EXPECT_THAT(index->skipped(1).at(0).reason, HasSubstr("first at offset 0"));
}

TEST(IndexContentTest, ASampleOfManyFieldsCostsNoMoreThanMany) {
  // Names are a date with dots and a number, so there is one key with this many fields.
  constexpr int kMembers = 150'000;
  const TempDir dir;
  TarBuilder tar;
  for (int i = 0; i < kMembers; ++i) tar.file("2021.06." + std::to_string(i) + ".jpg", "");
  const BuildReport report = build_index(dir / "x.idx", {one_shard(dir, tar)});
  EXPECT_EQ(report.summary.num_samples, 1U);
  EXPECT_EQ(report.summary.fields.size(), std::size_t{kMembers});
  const auto index = Index::open(dir / "x.idx");
  EXPECT_EQ(index->num_members(), std::uint64_t{kMembers});
  EXPECT_EQ(verify_shard(*index, 0), std::nullopt);
}

TEST(IndexContentTest, UniqueKeysAreCheckedOverShards) {
  const TempDir dir;
  std::vector<std::string> shards;
  for (int s = 0; s < 3; ++s) {
    TarBuilder tar;
    for (int i = 0; i < 50; ++i) {
      tar.file("k" + std::to_string(s == 2 && i >= 48 ? i - 48 : s * 50 + i) + ".txt", "x");
    }
    shards.push_back(one_shard(dir, tar, "s" + std::to_string(s) + ".tar"));
  }
  BuildOptions options;
  options.content.unique_keys = true;
  const std::string text = test::error_text([&] { build_index(dir / "x.idx", shards, options); });
  EXPECT_THAT(text, HasSubstr("(and 1 more sample "));
  EXPECT_THAT(text, HasSubstr("in 's0.tar' and sample 14"));
  EXPECT_FALSE(std::filesystem::exists(dir / "x.idx"));
  EXPECT_FALSE(build_index(dir / "x.idx", shards).summary.content.unique_keys);
  EXPECT_EQ(Index::open(dir / "x.idx")->find("k0"), 0U) << "otherwise the first is found";
  shards.pop_back();
  EXPECT_TRUE(build_index(dir / "x.idx", shards, options).summary.content.unique_keys);
}

TEST(ColumnTest, IsReadFromText) {
  EXPECT_EQ(parse_column("cls"), (Index::Column{"cls", "cls", ""}));
  EXPECT_EQ(parse_column("JSON:$.Width"), (Index::Column{"width", "json", "$.Width"}));
  EXPECT_EQ(parse_column("w=meta.json:$.size[0]"), (Index::Column{"w", "meta.json", "$.size[0]"}));
  EXPECT_EQ(to_string(parse_column("json:$.a.b")), "b=json:$.a.b");
  const auto error = [](const char* text) { return test::error_text([&] { parse_column(text); }); };
  EXPECT_THAT(error("seg.png"),
              AllOf(HasSubstr("not valid in SQL"), HasSubstr("'seg.png'"), HasSubstr("name")));
  EXPECT_THAT(error("json:$.tags[0]"), HasSubstr("NAME=json:$.tags[0]"));
  for (const char* path :
       {"$.", "$..x", "$[", "$[]", "$[a]", "$[-1]", "$[#-]", "$[#+1]", "$[0", "$[0]x", "$a", "$ ",
        "$.a[", "$.a.", "$.\"a", "$.\"a\"x", "$.a[0]b", "$.a[1][x]"}) {
    EXPECT_THAT(error(("n=json:" + std::string(path)).c_str()),
                AllOf(HasSubstr("JSON path"), HasSubstr("malformed")))
        << path;
  }
  for (const char* path : {"$", "$.a-b", "$.a.b[2].c", "$[0]", "$[#]", "$[#-12]", "$.\"a.b[\"",
                           "$.\"a\".b", "$.a b", "$[1][2]"}) {
    EXPECT_EQ(parse_column("n=json:" + std::string(path)).json_path, path);
  }
  EXPECT_THAT(error("key"), HasSubstr("reserves this column name"));
  EXPECT_THAT(error(""), HasSubstr("names no field"));
  EXPECT_THAT(error("x=:$.a"), HasSubstr("names no field"));
}

TEST(IndexContentTest, ColumnsHoldWhatTheFieldsSay) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.cls", " 7\n").file("a.json", R"({"width": 640, "name": "x", "r": 0.5, "t": [1, 2]})");
  tar.file("b.CLS", "-2.5e1").file("b.json", R"({"width": null})");
  tar.file("c.cls", "cat \n").file("c.txt", "");
  tar.file("d.cls", std::string("\xff\0", 2));
  tar.file("e.cls", "inf").file("e.json", "true");
  const std::string shard = one_shard(dir, tar);
  BuildOptions options;
  for (const char* column : {"cls", "json:$.width", "json:$.name", "json:$.r", "json:$.t"}) {
    options.content.columns.push_back(parse_column(column));
  }
  build_index(dir / "x.idx", {shard}, options);
  const auto index = Index::open(dir / "x.idx");
  EXPECT_EQ(index->content().columns, options.content.columns);
  const SegmentView view = segment_of(*index, 0);
  const auto text = [&](std::uint32_t sample) {
    std::string out;
    for (std::uint32_t c = 0; c < view.num_columns(); ++c) {
      const MetadataValue value = view.value(c, sample);
      switch (value.type) {
        case ValueType::kNull:
          out += "null ";
          break;
        case ValueType::kInteger:
          out += std::to_string(value.integer) + " ";
          break;
        case ValueType::kReal:
          out += "r" + std::to_string(value.real) + " ";
          break;
        case ValueType::kText:
          out += "'" + std::string(value.bytes) + "' ";
          break;
        case ValueType::kBlob:
          out += "x" + hex(value.bytes) + " ";
          break;
      }
    }
    return out;
  };
  EXPECT_EQ(text(0), "7 640 'x' r0.500000 '[1,2]' ");
  EXPECT_EQ(text(1), "r-25.000000 null null null null ");
  EXPECT_EQ(text(2), "'cat' null null null null ");
  EXPECT_EQ(text(3), "xff00 null null null null ");
  EXPECT_EQ(text(4), "'inf' null null null null ");

  options.content.columns.push_back(parse_column("width=cls"));
  EXPECT_THAT(test::error_text([&] { build_index(dir / "x.idx", {shard}, options); }),
              AllOf(HasSubstr("two columns"), HasSubstr("same name: 'width'")));
}

/// Formats a value: "7", "r0.5", "'x'", "x00ff" or "null".
std::string shown(const MetadataValue& value) {
  switch (value.type) {
    case ValueType::kNull:
      return "null";
    case ValueType::kInteger:
      return std::to_string(value.integer);
    case ValueType::kReal:
      return "r" + nlohmann::json(value.real).dump();
    case ValueType::kText:
      return "'" + std::string(value.bytes) + "'";
    case ValueType::kBlob:
      break;
  }
  return "x" + hex(value.bytes);
}

TEST(ColumnReaderTest, APathFindsWhatLiesThere) {
  const struct {
    const char* path;
    const char* json;
    const char* value;
  } kCases[] = {
      {"$", " [1, \"a b\\\" c\"] ", R"('[1,"a b\" c"]')"},
      {"$.a", R"({"a": {"b": [1 , 2]}})", R"('{"b":[1,2]}')"},
      {"$.a.b[1]", R"({"a": {"b": [1, 2]}})", "2"},
      {"$.a.b[#-1]", R"({"a": {"b": [1, [2], 3]}})", "3"},
      {"$.a.b[#-3]", R"({"a": {"b": [1, [2], 3]}})", "1"},
      {"$.a.b[#-4]", R"({"a": {"b": [1, [2], 3]}})", "null"},
      {"$.a.b[#]", R"({"a": {"b": [1, [2], 3]}})", "null"},
      {"$.a.b[3]", R"({"a": {"b": [1, 2, 3]}})", "null"},
      {"$.a[99999999999999999999]", R"({"a": [1]})", "null"},
      {"$[1][0]", "[[1], [2]]", "2"},
      {"$.a", "[1]", "null"},
      {"$[0]", R"({"0": 1})", "null"},
      {"$.a.b", R"({"a": 7})", "null"},
      {"$.\"a.b\"", R"({"a": {"b": 1}, "a.b": 2})", "2"},
      {"$.\"a.b\".c", R"({"a.b": {"c": 3}})", "3"},
      {"$.größe", R"({"gr\u00f6\u00dfe": 5})", "5"},
      {"$.größe", R"({"größe": 6})", "6"},
      {"$.\"gr\\u00f6\\u00dfe\"", R"({"größe": 7})", "7"},
      {"$.😀", R"({"\ud83d\ude00": 8})", "8"},
      {"$.w", R"({"w": 1, "w": 50})", "50"},
      {"$.w", R"({"w": 1, "w": null})", "null"},
      {"$.a.b", R"({"a": {"b": 1}, "a": {"c": 2}})", "null"},
      {"$.a.b", R"({"a": {"b": 1}, "a": 3})", "null"},
      {"$.w", "\xEF\xBB\xBF{\"w\": 9}", "9"},
      {"$.w", R"({"w": true})", "1"},
      {"$.w", R"({"w": false})", "0"},
      {"$.w", R"({"w": -0})", "0"},
      {"$.w", R"({"w": 0.1})", "r0.1"},
      {"$.w", R"({"w": 1e30})", "r1e+30"},
      {"$.w", R"({"w": 1e-999})", "r0.0"},
      {"$.w", R"({"w": 9223372036854775807})", "9223372036854775807"},
      {"$.w", R"({"w": 9223372036854775808})", "'9223372036854775808'"},
      {"$.w", R"({"w": -99999999999999999999999})", "'-99999999999999999999999'"},
      {"$.w", R"({"w": "a\nb\u20ac"})", "'a\nb\u20ac'"},
      {"$.w", R"({"w": "a\u0000b"})", "x610062"},
  };
  for (const auto& c : kCases) {
    const std::vector<Index::Column> columns = {parse_column("n=json:" + std::string(c.path))};
    ColumnReader reader(columns);
    EXPECT_EQ(shown(reader.read(0, c.json)), c.value) << c.path << " in " << c.json;
  }
}

TEST(ColumnReaderTest, WhatIsNotJsonIsAFaultWhereverItIs) {
  const std::vector<Index::Column> columns = {parse_column("json:$.w")};
  for (const std::string& json :
       {R"({"w": 1, "x": NaN})"s, R"({"w": 1, "x": 1e999})"s, R"({"w": 1, "x": "\ud800"})"s,
        "{\"w\": 50}\0 garbage"s, R"({"w": 1} {})"s, R"({"w": 1)"s, "{\"w\": \"\xff\"}"s}) {
    ColumnReader reader(columns);
    EXPECT_THROW(reader.read(0, json), JsonFault) << json;
    EXPECT_TRUE(json_fault(json));
  }
}

TEST(IndexContentTest, HiddenFilesInFoldersAreLeftOutAsThoseOutsideAre) {
  const TempDir dir;
  TarBuilder tar;
  for (const char* name : {"._0.jpg", "train/._0001.jpg", "train/0001.jpg", "train/.DS_Store",
                           "train/0001.cls", "a/b/.x.y", "__MACOSX/._0001.jpg", ".d/2.jpg",
                           "a.b/3.jpg", "a.b/.4.jpg", "train/0004.jpg", "train/.e"}) {
    tar.file(name, "x");
  }
  const std::string shard = one_shard(dir, tar);
  EXPECT_THAT(test::error_text([&] { build_index(dir / "x.idx", {shard}); }),
              AllOf(HasSubstr("hidden file"), HasSubstr("no key"), HasSubstr("'._0.jpg'"),
                    HasSubstr("`shardwise index --on-no-field skip`")));
  BuildOptions options;
  options.content.policies.no_field = DefectPolicies::OnDefect::kSkip;
  build_index(dir / "x.idx", {shard}, options);
  const auto index = Index::open(dir / "x.idx");
  EXPECT_THAT(keys_of(*index), ElementsAre("train/0001", ".d/2", "a.b/3", "train/0004"));
  EXPECT_EQ(segment_of(*index, 0).members(0).size(), 2U) << "the one between them ends no sample";
  std::vector<std::string> left_out;
  for (const auto& member : index->skipped(100)) {
    left_out.push_back(member.name);
    EXPECT_EQ(member.kind, Index::SkippedMember::Kind::kNoField);
  }
  EXPECT_THAT(left_out, ElementsAre("._0.jpg", "train/._0001.jpg", "train/.DS_Store", "a/b/.x.y",
                                    "__MACOSX/._0001.jpg", "a.b/.4.jpg", "train/.e"));
  EXPECT_EQ(verify_shard(*index, 0), std::nullopt);
}

// Earlier versions read `d/.x` as the field "x" of a sample "d/".
TEST(IndexContentTest, AnIndexThatHasSamplesOfHiddenFilesIsReadOn) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("train/._1.jpg", "hidden").file("train/1.jpg", "seen");
  const std::string shard = one_shard(dir, tar);
  ShardScanOptions how;
  how.policies.no_field = DefectPolicies::OnDefect::kSkip;
  how.hash = true;
  ShardPart part = scan_shard({.path = shard}, how);
  part.skipped.clear();
  SegmentBuilder segment(shard, 0, true);
  segment.begin_sample("train/");
  ASSERT_TRUE(segment.add_member("_1.jpg", 512, 6, hash64("hidden")));
  segment.begin_sample("train/1");
  ASSERT_TRUE(segment.add_member("jpg", 1536, 4, hash64("seen")));
  part.segment = segment.finish();
  std::string why;
  const auto view = SegmentView::check(part.segment, &why);
  ASSERT_TRUE(view) << why;
  part.key_hashes = hash_keys(*view);
  part.fields = count_fields(*view);
  part.row.url = "x.tar";
  part.row.num_samples = part.row.num_members = 2;
  SegmentHeader header;
  std::memcpy(&header, part.segment.data(), sizeof header);
  part.row.segment_checksum = header.checksum;
  {
    Index::Content content;
    content.policies.no_field = DefectPolicies::OnDefect::kSkip;
    content.hashes = true;
    Assembly assembly(dir / "x.idx", content, std::nullopt, "", {"x.tar"}, false);
    assembly.append(part);
    assembly.finish({});
    assembly.commit();
  }
  const auto index = Index::open(dir / "x.idx", {.accept_times = true});
  EXPECT_THAT(keys_of(*index), ElementsAre("train/", "train/1"));
  EXPECT_EQ(verify_shard(*index, 0, {.full = true}), std::nullopt);
  const SegmentView had = segment_of(*index, 0);
  const auto where = part_of_sample(had, 0);
  ASSERT_TRUE(where);
  const std::string bytes = test::read_file(shard);
  EXPECT_TRUE(holds_sample(had, 0, std::string_view(bytes).substr(0, where->second), 0, false));
  const File file = File::open_read(shard);
  EXPECT_EQ(quick_check(index->shard(0), had, reader_of(file)), std::nullopt);
}

TEST(IndexContentTest, SizesBeyondAnyFileDoNotOverflow) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0} - 1000;
  SegmentBuilder builder("x.tar");
  builder.begin_sample("a");
  builder.add_member("cls", 512, kHuge);
  builder.begin_sample("b");
  builder.add_member("cls", 1536, 2);
  const std::string bytes = builder.finish();
  std::string why;
  const auto segment = SegmentView::check(bytes, &why);
  ASSERT_TRUE(segment) << why;
  const auto first = part_of_sample(*segment, 0);
  ASSERT_TRUE(first);
  EXPECT_GT(first->second, std::uint64_t{1} << 61) << "not within any file";
  EXPECT_EQ(part_of_sample(*segment, 1), std::nullopt) << "a member before it covers it";
}

TEST(IndexContentTest, JsonThatIsNoneIsAnErrorOrNull) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.json", "{").file("b.json", R"({"w": 3})");
  const std::string shard = one_shard(dir, tar);
  BuildOptions options;
  options.content.columns = {parse_column("json:$.w")};
  EXPECT_THAT(test::error_text([&] { build_index(dir / "x.idx", {shard}, options); }),
              AllOf(HasSubstr("column 'w' needs JSON"), HasSubstr("field is not JSON"),
                    HasSubstr("at offset 1"), HasSubstr("NULL"),
                    HasSubstr("`shardwise index --on-bad skip`")));
  options.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
  build_index(dir / "x.idx", {shard}, options);
  const auto index = Index::open(dir / "x.idx");
  EXPECT_EQ(index->size(), 2U) << "the sample stays";
  EXPECT_EQ(segment_of(*index, 0).value(0, 0).type, ValueType::kNull);
  EXPECT_EQ(segment_of(*index, 0).value(0, 1).integer, 3);
  ASSERT_EQ(index->summary().num_skipped, 1U);
  EXPECT_EQ(index->skipped(1)[0].kind, Index::SkippedMember::Kind::kNoValue);
}

TEST(IndexContentTest, JsonOfASampleThatIsLeftOutIsNoFault) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.json", R"({"w": 3})").file("b.json", "{").file("a.json", "{");
  const std::string shard = one_shard(dir, tar);
  BuildOptions options;
  options.content.columns = {parse_column("json:$.w")};
  options.content.policies.repeated_key = DefectPolicies::OnDefect::kSkip;
  EXPECT_THAT(test::error_text([&] { build_index(dir / "x.idx", {shard}, options); }),
              HasSubstr("offset 1024, member 'b.json'"));
  options.content.policies.damage = DefectPolicies::OnDefect::kSkip;
  build_index(dir / "x.idx", {shard}, options);
  const auto index = Index::open(dir / "x.idx");
  EXPECT_THAT(keys_of(*index), ElementsAre("a", "b"));
  EXPECT_EQ(index->summary().num_skipped, 2U) << "b's value, and the second a once";
}

TEST(IndexContentTest, OtherContentIsReadAnewAndTheSameIsNot) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 5);
  BuildOptions options;
  build_index(dir / "t.idx", shards, options);
  options.content.columns = {parse_column("cls")};
  EXPECT_EQ(build_index(dir / "t.idx", shards, options).shards_scanned, 3U);
  EXPECT_EQ(build_index(dir / "t.idx", shards, options).shards_scanned, 0U);
  options.content.hashes = true;
  EXPECT_EQ(build_index(dir / "t.idx", shards, options).shards_scanned, 3U);
  options.content.unique_keys = true;
  const BuildReport checked = build_index(dir / "t.idx", shards, options);
  EXPECT_EQ(checked.shards_scanned, 0U) << "that is in the table";
  EXPECT_TRUE(checked.summary.content.unique_keys) << "but was checked";
  EXPECT_EQ(segment_of(*Index::open(dir / "t.idx"), 1).value(0, 2).integer, 7);
}

}  // namespace
}  // namespace shardwise
