// Tests the index against its specification, docs/formats/index.md. A program that was written from
// that page alone reads it, and its schema is compared with the page.

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/url.h"
#include "index/offset_table.h"
#include "index/rows.h"
#include "index/segment_of.h"
#include "shardwise/index/index.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_builder.h"
#include "support/one_tar.h"
#include "support/python.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::HasSubstr;

/// Returns JSON in the form in which the reader prints bytes. The reader prints bytes that are not
/// UTF-8 as Python's surrogates, which do not occur in these tests.
nlohmann::json value_json(const MetadataValue& value) {
  switch (value.type) {
    case ValueType::kNull:
      return nullptr;
    case ValueType::kInteger:
      return value.integer;
    case ValueType::kReal:
      return value.real;
    case ValueType::kText:
      return std::string(value.bytes);
    case ValueType::kBlob:
      return {{"hex", hex(value.bytes)}};
  }
  return nullptr;
}

/// Returns every sample of the index in the reader's format.
std::vector<nlohmann::json> samples_of(const Index& index) {
  std::vector<nlohmann::json> samples;
  for (std::uint64_t shard = 0; shard < index.num_shards(); ++shard) {
    const SegmentView segment = segment_of(index, shard);
    const auto all = segment.members().data();
    for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
      nlohmann::json values = nlohmann::json::array(), members = nlohmann::json::array();
      for (std::uint32_t c = 0; c < segment.num_columns(); ++c) {
        values.push_back(value_json(segment.value(c, i)));
      }
      for (const MemberRecord& member : segment.members(i)) {
        nlohmann::json hash = nullptr;
        if (segment.has_member_hashes()) {
          hash = segment.member_hash(static_cast<std::uint32_t>(&member - all));
        }
        members.push_back({segment.field_name(member.field()), member.data_offset(),
                           member.size_bytes, std::move(hash)});
      }
      samples.push_back({{"url", index.shard(shard).url},
                         {"key", segment.key(i)},
                         {"values", std::move(values)},
                         {"members", std::move(members)}});
    }
  }
  return samples;
}

/// Writes shards with every property that the format can express.
std::vector<std::string> write_odd_shards(const TempDir& dir) {
  std::vector<std::string> shards;
  for (int s = 0; s < 40; ++s) {
    TarBuilder tar;
    for (int i = 0; i < s; ++i) {
      const std::string key = "d" + std::to_string(s) + "/s" + std::to_string(i);
      tar.file(key + ".cls", std::to_string(s * i));
      if (i % 3 != 0) tar.file(key + ".Txt", i % 2 == 0 ? "text" : "\xFF");
      if (i % 5 == 0) tar.file(key + ".json", R"({"w": 0.5, "h": [1, 2]})");
    }
    tar.end();
    shards.push_back(dir / ("shard-" + std::to_string(s) + ".tar"));
    test::write_file(shards.back(), tar.bytes());
  }
  return shards;
}

TEST(IndexFormatTest, AReaderWrittenFromTheSpecificationReadsIt) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  const TempDir dir;
  BuildOptions options;
  for (const char* column : {"cls", "txt", "w=json:$.w", "h=json:$.h"}) {
    options.content.columns.push_back(parse_column(column));
  }
  for (const bool hashes : {false, true}) {
    options.content.hashes = hashes;
    build_index(dir / "t.idx", write_odd_shards(dir), options);
    const auto index = Index::open(dir / "t.idx");
    const auto lines =
        test::run_python("tests/index/read_index.py", {index->path(), "d7/s3", "d39/s38", "none"});
    const auto expected = samples_of(*index);
    ASSERT_EQ(lines.size(), expected.size() + 3);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(nlohmann::json::parse(lines[i]), expected[i]) << "sample " << i;
    }
    EXPECT_EQ(nlohmann::json::parse(lines[expected.size()]), index->find_all("d7/s3"));
    EXPECT_EQ(nlohmann::json::parse(lines[expected.size() + 1]), index->find_all("d39/s38"));
    EXPECT_EQ(lines[expected.size() + 2], "[]");
  }
}

TEST(IndexFormatTest, ThatReaderPutsUrlsTogether) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  const TempDir dir;
  for (const char* name : {":odd.tar", "plain.tar"}) {
    test::write_file(dir / name, TarBuilder().file("1.txt", name).end().bytes());
  }
  const std::vector<std::string> cases[] = {
      {"https://me:pw@h/d/a/0.tar?X-Amz-Date=1&X-Amz-Signature=2", "https://h/d/b//1.tar?v=3"},
      {"https://h/0.tar", "https://other/1.tar"},
      {"s3://b/d/\xFF/0.tar", "s3://b/d/\xFF/\xFE.tar"},
      {"https://h/d/0.tar", dir / ":odd.tar", "pipe:cat x.tar", dir / "plain.tar"}};
  for (const std::vector<std::string>& shards : cases) {
    build_index(dir / "u.idx", shards, {.remote = std::make_shared<test::OneTar>()});
    const auto index = Index::open(dir / "u.idx");
    const auto lines = test::run_python("tests/index/read_index.py", {index->path()});
    ASSERT_EQ(lines.size(), shards.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (is_utf8(index->shard(i).url)) {
        EXPECT_EQ(nlohmann::json::parse(lines[i])["url"], index->shard(i).url);
      } else {
        EXPECT_THAT(lines[i],
                    HasSubstr("s3://b/d/\\udcff/" + std::string(i == 0 ? "0" : "\\udcfe")));
      }
      if (is_remote_url(shards[i])) {
        EXPECT_EQ(index->shard(i).url, unsigned_url(shards[i]));
      } else {
        EXPECT_EQ(index->shard(i).path, shards[i]);
      }
    }
  }
}

TEST(IndexFormatTest, ThePageHasTheSchemaToTheLetter) {
  const std::string page = test::read_file(test::source_dir() + "/docs/formats/index.md");
  for (const std::string& sql :
       {create_table_sql<Index::Summary::Field>(), create_table_sql<Index::Shard>(),
        create_table_sql<Index::SkippedMember>()}) {
    EXPECT_THAT(page, HasSubstr("\n" + sql + "\n"));
  }
  EXPECT_THAT(page, HasSubstr("format version " + std::to_string(kIndexVersion) + "\n"));
}

TEST(RowTest, CellsPackAndUnpackAndAreHeldToTheirKind) {
  const Index::SkippedMember row{.shard = 3,
                                 .offset = 512,
                                 .name = std::string("a\0b", 3),
                                 .reason = "",
                                 .kind = Index::SkippedMember::Kind::kMetaName};
  const std::vector<Cell> cells = to_cells(row);
  EXPECT_EQ(from_cells<Index::SkippedMember>(cells), row);
  std::string bytes;
  pack(cells, bytes);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    std::string_view rest = std::string_view(bytes).substr(0, cut);
    EXPECT_EQ(unpack(cells, rest), std::nullopt);
  }
  std::string_view rest = bytes;
  EXPECT_EQ(unpack(to_cells(Index::SkippedMember{}), rest), cells);
  EXPECT_TRUE(rest.empty());

  const auto refused = [&](std::size_t at, const Cell& cell) {
    std::vector<Cell> wrong = cells;
    wrong[at] = cell;
    EXPECT_EQ(test::error_code([&] { from_cells<Index::SkippedMember>(wrong); }),
              ErrorCode::kInvalidArgument);
  };
  refused(0, to_cell(std::int64_t{-1}));
  refused(0, {.bytes = "1"});
  refused(2, to_cell(std::int64_t{1}));
  refused(3, {.bytes = "unknown"});
  EXPECT_NE(row_checksum(0, cells), row_checksum(1, cells)) << "bound to its place";
}

}  // namespace
}  // namespace shardwise
