// `shardwise query`, and the columns that `index --column` keeps for it.

#include <map>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Three samples: of the second a.json is missing, of the third it has other types.
class ColumnsTest : public testing::Test {
 protected:
  ColumnsTest() {
    TarBuilder tar;
    tar.file("a.cls", "7\n").file("a.json", R"({"width": 640, "tags": ["x", "y"]})");
    tar.file("b.cls", "eight");
    tar.file("c.cls", "0.5").file("c.json", R"({"width": "wide", "tags": []})");
    write_file(dir_ / "a.tar", tar.end().bytes());
  }

  std::string index(std::vector<std::string> options) const {
    const std::string path = dir_ / "x.idx";
    options.insert(options.begin(), {"index", "-o", path});
    options.push_back(dir_ / "a.tar");
    shardwise_output(std::move(options));
    return path;
  }

  const TempDir dir_;
};

TEST_F(ColumnsTest, PlainFieldsAndJsonPathsBecomeValues) {
  const std::string path =
      index({"--column", "cls", "--column", "json:$.width", "--column", "tag=json:$.tags[0]"});
  EXPECT_EQ(shardwise_output({"query", path, "SELECT key, cls, width, tag FROM samples"}),
            "a\t7\t640\tx\nb\teight\tNULL\tNULL\nc\t0.5\twide\tNULL\n");
  EXPECT_EQ(shardwise_output({"query", path,
                              "SELECT key FROM samples WHERE width >= 640 AND "
                              "typeof(width) = 'integer'"}),
            "a\n");
  EXPECT_THAT(shardwise_output({"info", path}),
              AllOf(HasSubstr("column       cls from cls\n"),
                    HasSubstr("column       tag from json:$.tags[0]\n")));
}

TEST(QueryColumnsTest, NumbersAndTextKeepEveryDigitAndByte) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.json", R"({"v": 18446744073709551615})").file("a.cls", "18446744073709551615");
  tar.file("b.json", R"({"v": -9223372036854775809})").file("b.cls", "-9223372036854775809");
  tar.file("c.json", R"({"v": 9223372036854775807})").file("c.cls", "9223372036854775807");
  tar.file("d.json", R"({"v": "x\u0000y"})").file("d.cls", std::string("x\0y", 3));
  tar.file("e.json", R"({"v": "\ud800"})").file("e.cls", "\xed\xa0\x80");
  tar.file("f.json", R"({"v": 1e400})").file("f.cls", "1e400");
  tar.file("g.json", R"({"v": -0.25})").file("g.cls", "-0.25");
  tar.file("h.json", R"({"v": "\\u0000"})").file("h.cls", "\\u0000");
  tar.file("j.json", R"({"v": "x\u0000\ud800"})").file("j.cls", "x");
  tar.file("i.json", R"({"v": {"w": 18446744073709551615}})").file("i.cls", "x");
  tar.file("k.json", R"({"v": "\ud800", "w": "\u0000"})").file("k.cls", "x");
  write_file(dir / "a.tar", tar.end().bytes());
  shardwise_output({"index", "-o", dir / "x.idx", "--column", "cls", "--column", "v=json:$.v",
                    "--on-bad", "skip", dir / "a.tar"});
  const std::string output = shardwise_output(
      {"query", dir / "x.idx", "--json", "SELECT key, v, typeof(v) AS t, cls FROM samples"});
  const auto rows = json_lines(output);
  ASSERT_EQ(rows.size(), 11U);
  const auto expect = [&](std::size_t i, const nlohmann::json& v, const char* type) {
    const bool is_blob = std::string_view(type) == "blob";
    EXPECT_EQ(rows[i]["t"], type) << rows[i];
    EXPECT_EQ(rows[i][is_blob ? "v_hex" : "v"], v) << rows[i];
    // A whole field is read by the same rules.
    if (i < 8) {
      EXPECT_EQ(rows[i][is_blob ? "cls_hex" : "cls"], v) << rows[i];
    }
  };
  expect(0, "18446744073709551615", "text");
  expect(1, "-9223372036854775809", "text");
  expect(2, INT64_MAX, "integer");
  expect(3, "780079", "blob");
  expect(6, -0.25, "real");
  expect(7, "\\u0000", "text");
  expect(9, R"({"w":18446744073709551615})", "text");
  // No JSON: half of a character, and a number beyond a double.
  for (const std::size_t i : {4, 5, 8, 10}) EXPECT_EQ(rows[i]["t"], "null") << rows[i];
  EXPECT_EQ(rows[4]["cls_hex"], "eda080");
  EXPECT_EQ(rows[5]["cls"], "1e400");
}

TEST_F(ColumnsTest, AFieldThatNoSampleHasGivesNulls) {
  const std::string path = index({"--column", "none", "--column", "other=none:$.x"});
  EXPECT_EQ(shardwise_output({"query", path,
                              "SELECT count(*), count(none), count(other) FROM "
                              "samples"}),
            "3\t0\t0\n");
}

TEST_F(ColumnsTest, JsonThatIsNoneIsAnErrorUnlessSkipped) {
  const std::vector<std::string> strict = {"index",    "-o",        dir_ / "x.idx",
                                           "--column", "n=cls:$.x", dir_ / "a.tar"};
  const Finished finished = shardwise(strict);
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("the field is not JSON, from which the column 'n' is taken"),
                    HasSubstr("a.tar"), HasSubstr("member 'b.cls'")));
  const std::string path = index({"--column", "n=cls:$.x", "--on-bad", "skip"});
  EXPECT_EQ(shardwise_output({"query", path, "SELECT count(*), count(n) FROM samples"}), "3\t0\n");
  EXPECT_EQ(shardwise_output({"query", path, "SELECT name FROM skipped"}), "b.cls\n");
}

TEST_F(ColumnsTest, ColumnsThatCannotBeAreWrongUsage) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "its value is empty"},
      {":$.x", "the column names no field"},
      {"json:$[", "the JSON path of the column is malformed: 'json:$['"},
      {"json:$.a-b", "give the column a name: NAME=json:$.a-b"},
      {"sample", "the index has a column of its own with this name: 'sample'"},
  };
  for (const auto& [column, reason] : wrong) {
    const Finished finished =
        shardwise({"index", "-o", dir_ / "x.idx", "--column", column, dir_ / "a.tar"});
    EXPECT_EQ(finished.code, 2) << column;
    EXPECT_THAT(finished.err, AllOf(StartsWith("shardwise: error: --column: "), HasSubstr(reason)));
  }
  const Finished twice = shardwise({"index", "-o", dir_ / "x.idx", "--column", "cls", "--column",
                                    "CLS=json:$.x", dir_ / "a.tar"});
  EXPECT_EQ(twice.code, 1);
  EXPECT_THAT(twice.err, HasSubstr("two columns have the same name: 'cls'"));
  EXPECT_THAT(dir_.list(), ElementsAre("a.tar"));
}

TEST(QueryCommandTest, PrintsRowsHeadersAndJson) {
  const SmallIndex index;
  const std::string sql = "SELECT shard, count(*) AS n, sum(bytes) FROM samples GROUP BY shard";
  EXPECT_EQ(shardwise_output({"query", index.path(), sql}), "0\t3\t24\n1\t4\t32\n");
  EXPECT_EQ(shardwise_output({"query", index.path(), sql, "--header"}),
            "shard\tn\tsum(bytes)\n0\t3\t24\n1\t4\t32\n");
  const auto rows = json_lines(shardwise_output({"query", index.path(), sql, "--json"}));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1], nlohmann::json({{"shard", 1}, {"n", 4}, {"sum(bytes)", 32}}));
  EXPECT_EQ(shardwise_output({"query", index.path(), sql, "--json", "--header"}),
            shardwise_output({"query", index.path(), sql, "--json"}));
  EXPECT_THAT(shardwise_output({"query", index.path(), "SELECT 1 WHERE 0"}), IsEmpty());
  EXPECT_EQ(shardwise_output({"query", index.path(), "SELECT 1 AS x WHERE 0", "--header"}), "x\n");
}

TEST(QueryCommandTest, EveryTypeComesOutAsOneLine) {
  const SmallIndex index;
  const std::string sql = "SELECT NULL AS a, -1 AS b, 0.5 AS c, 'q\"\n' AS d, x'00ff' AS e";
  const auto row = nlohmann::json::parse(shardwise_output({"query", index.path(), sql, "--json"}));
  EXPECT_EQ(row, nlohmann::json(
                     {{"a", nullptr}, {"b", -1}, {"c", 0.5}, {"d", "q\"\n"}, {"e_hex", "00ff"}}));
  EXPECT_EQ(shardwise_output({"query", index.path(), sql}), "NULL\t-1\t0.5\tq\"\\n\t\\x00\\xff\n");
}

TEST(QueryCommandTest, JsonIsValidWhateverTheValuesAndNamesAre) {
  const SmallIndex index;
  const auto row = [&](const std::string& select) {
    return nlohmann::json::parse(shardwise_output({"query", index.path(), "--json", select}));
  };
  EXPECT_EQ(row("SELECT 1e999 AS a, -1e999 AS b, 1e999 - 1e999 AS c, 1e300 AS d"),
            nlohmann::json({{"a", "Infinity"}, {"b", "-Infinity"}, {"c", nullptr}, {"d", 1e300}}));
  EXPECT_EQ(row("SELECT CAST(x'61ff' AS TEXT) AS a, 'b' || char(0) || 'c' AS b, "
                "CAST(x'eda080' AS TEXT) AS c, char(1, 127, 159, 8232) AS d"),
            nlohmann::json({{"a_hex", "61ff"},
                            {"b", std::string("b\0c", 3)},
                            {"c_hex", "eda080"},
                            {"d", "\x01\x7f\xc2\x9f\xe2\x80\xa8"}}));
  EXPECT_EQ(row("SELECT 9223372036854775807 AS a, -9223372036854775807 - 1 AS b"),
            nlohmann::json({{"a", INT64_MAX}, {"b", INT64_MIN}}));
  EXPECT_EQ(
      row("SELECT 1 AS a, 2 AS a, 3 AS a, x'00' AS b, '4' AS b_hex, 5 AS \"\xff\""),
      nlohmann::json(
          {{"a", 1}, {"a:1", 2}, {"a:2", 3}, {"b_hex", "00"}, {"b_hex:1", "4"}, {"\\xff", 5}}));
}

TEST(QueryCommandTest, ScratchFilesAreBounded) {
  const SmallIndex index;
  const std::string sql =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
      "SELECT length(text) FROM (SELECT hex(zeroblob(50000)) || i AS text FROM n ORDER BY text "
      "DESC) ORDER BY text LIMIT 1 OFFSET 999";
  expect_failure(shardwise({"query", index.path(), "--scratch-bytes", "10MiB", sql}),
                 {"sorting and grouping need more than 10.0 MiB of scratch files", index.path(),
                  "by WHERE or LIMIT, or allow more (--scratch-bytes)"});
  EXPECT_EQ(shardwise_output({"query", index.path(), sql}), "100003\n");
}

TEST(QueryCommandTest, WhatCannotBeRunIsAnErrorWithSqlitesReason) {
  const SmallIndex index;
  const std::string before = read_file(index.path());
  const std::pair<const char*, const char*> wrong[] = {
      {"SELEC 1", "near \"SELEC\": syntax error"},
      {"SELECT x FROM samples", "no such column: x"},
      {"SELECT * FROM nowhere", "no such table: nowhere"},
      {"SELECT json_extract('{', '$')", "malformed JSON"},
      {"DELETE FROM shards", "table shards may not be modified"},
      {"UPDATE shards SET size = 0", "table shards may not be modified"},
      {"UPDATE main.shards SET size = 0", "table shards may not be modified"},
      {"INSERT INTO fields VALUES (1, 2, 3)", "not authorized"},
      {"CREATE TABLE t (x)", "not authorized"},
      {"DROP TABLE shards", "not authorized"},
      {"PRAGMA writable_schema = 1", "not authorized"},
      {"ATTACH 'other.db' AS o", "not authorized"},
      {"VACUUM INTO 'copy.db'", "it is empty"},
      {"BEGIN", "not authorized"},
      {"SELECT load_extension('x')", "not authorized"},
  };
  for (const auto& [sql, reason] : wrong) {
    const Finished finished = shardwise({"query", index.path(), sql});
    EXPECT_EQ(finished.code, 1) << sql;
    EXPECT_THAT(finished.out, IsEmpty()) << sql;
    EXPECT_EQ(lines_of(finished.err).size(), 1U) << finished.err;
    EXPECT_THAT(finished.err,
                AllOf(StartsWith("shardwise: error: the query cannot be run: "), HasSubstr(reason),
                      testing::AnyOf(HasSubstr("only SELECT is allowed"),
                                     HasSubstr(".schema` shows the columns"),
                                     HasSubstr("the tables are samples"))));
  }
  for (const char* sql : {"SELECT 1; SELECT 2", "", " ; "}) {
    const Finished finished = shardwise({"query", index.path(), sql});
    EXPECT_EQ(finished.code, 1) << sql;
    EXPECT_THAT(finished.err, HasSubstr("give one SELECT")) << sql;
  }
  EXPECT_EQ(read_file(index.path()), before);
}

TEST(QueryCommandTest, TheQueryComesFromStandardInputOrAFileToo) {
  const SmallIndex index;
  const std::string sql = "SELECT count(*)\nFROM samples;\n";
  const Finished piped = shardwise({"query", index.path(), "-"}, sql);
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out, "7\n");
  write_file(index.dir() / "q.sql", sql);
  EXPECT_EQ(shardwise_output({"query", index.path(), "@" + index.dir() / "q.sql"}), "7\n");
  expect_failure(shardwise({"query", index.path(), "@" + index.dir() / "none.sql"}),
                 {index.dir() / "none.sql", "check the path"});
  expect_failure(shardwise({"query", index.path(), "@/dev/zero"}),
                 {"the query is larger than 1.0 MiB", "'/dev/zero'"});
}

TEST_F(ColumnsTest, TheSchemaNamesEveryColumnThereIs) {
  const std::string path = index({"--column", "cls", "--column", "tag=json:$.tags[0]"});
  std::map<std::string, std::string> described;
  for (const auto& column : json_lines(shardwise_output({"query", path, ".schema", "--json"}))) {
    std::string& names = described[column["table"]];
    names += (names.empty() ? "" : "\t") + column["column"].get<std::string>();
    EXPECT_FALSE(column["text"].get<std::string>().empty());
  }
  EXPECT_EQ(described.size(), 5U);
  for (const auto& [table, names] : described) {
    EXPECT_EQ(lines_of(shardwise_output(
                  {"query", "--header", path, "SELECT * FROM " + table + " LIMIT 1"}))[0],
              names);
  }
  EXPECT_THAT(shardwise_output({"query", path, ".schema"}),
              AllOf(HasSubstr("samples\tcls\tany\tmetadata from cls\n"),
                    HasSubstr("samples\ttag\tany\tmetadata from json:$.tags[0]\n")));
  const Finished other = shardwise({"query", path, ".tables"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr(".schema"));
}

TEST(QueryCommandTest, ShardsAreNamedAsLsNamesThem) {
  const SmallIndex index;
  std::vector<std::string> listed;
  for (const auto& member : json_lines(shardwise_output({"ls", "--json", index.path()}))) {
    const auto url = member["url"].get<std::string>();
    if (listed.empty() || listed.back() != url) listed.push_back(url);
  }
  EXPECT_EQ(lines_of(shardwise_output({"query", index.path(), "SELECT url FROM shards"})), listed);
}

TEST(QueryCommandTest, WrongUsageAndWrongFiles) {
  const SmallIndex index;
  EXPECT_EQ(shardwise({"query", index.path()}).code, 2);
  EXPECT_EQ(shardwise({"query", index.path(), "SELECT 1", "more"}).code, 2);
  write_file(index.dir() / "notes.txt", "a text");
  for (const std::string& path : {index.dir() / "none.idx", index.dir() / "notes.txt"}) {
    const Finished finished = shardwise({"query", path, "SELECT 1"});
    EXPECT_EQ(finished.code, 1);
    EXPECT_THAT(finished.err, HasSubstr(path));
  }
}

}  // namespace
}  // namespace shardwise::test
