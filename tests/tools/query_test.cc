// Tests `shardwise query`, and the columns that `index --column` stores for it.

#include <map>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Three samples. The second has no field json; in the third, values have other types.
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
    // A field as a whole is read by the same rules.
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
  // Not JSON: half of a surrogate pair, and a number too large for a double.
  for (const std::size_t i : {4, 5, 8, 10}) EXPECT_EQ(rows[i]["t"], "null") << rows[i];
  EXPECT_EQ(rows[4]["cls_hex"], "eda080");
  EXPECT_EQ(rows[5]["cls"], "1e400");
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

}  // namespace
}  // namespace shardwise::test
