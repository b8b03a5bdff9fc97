// Random SQL over an index. Valid statements must give the same rows as an ordinary SQLite database
// with the same content. Random texts, which need not be statements, must not crash.
//
// Both tests print their seed. SHARDWISE_SEED sets another.

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "base/text.h"
#include "index/offset_table.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_builder.h"
#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;

/// A column of a table. Its type determines the SQL rules for it.
struct TestColumn {
  std::string name;
  std::string type;
  friend bool operator==(const TestColumn&, const TestColumn&) = default;
};
struct TestTable {
  std::string name;
  std::vector<TestColumn> columns;
};

const std::vector<TestTable>& tables() {
  static const std::vector<TestTable> kTables = {
      {"samples",
       {{"sample", "INTEGER"},
        {"key", ""},
        {"shard", "INTEGER"},
        {"members", "INTEGER"},
        {"bytes", "INTEGER"},
        {"cls", ""},
        {"v", ""}}},
      {"members",
       {{"sample", "INTEGER"},
        {"member", "INTEGER"},
        {"key", ""},
        {"field", ""},
        {"shard", "INTEGER"},
        {"offset", "INTEGER"},
        {"size", "INTEGER"}}},
      {"shards",
       {{"shard", "INTEGER"},
        {"url", ""},
        {"size", "INTEGER"},
        {"first_sample", "INTEGER"},
        {"samples", "INTEGER"},
        {"members", "INTEGER"},
        {"end_marker", "INTEGER"},
        {"compression", ""},
        {"header_hash", ""}}},
      {"fields", {{"field", ""}, {"members", "INTEGER"}, {"bytes", "INTEGER"}}},
      {"skipped",
       {{"shard", "INTEGER"}, {"offset", "INTEGER"}, {"name", ""}, {"kind", ""}, {"reason", ""}}},
  };
  return kTables;
}

/// Keys that are equal under some collation or conversion, or that look like numbers.
const std::vector<std::string> kKeys = {"a",  "A",   "b",   "B",    "ab",  "aB",  "a ",
                                        "10", "1e1", "0x2", "\xff", "x_y", "xzy", "\xc3\xa9",
                                        "2",  "d/a", "D/a", " a",   "100", "true"};

/// Makes an index of five shards, each with some of the keys. One shard is empty, and one member is
/// left out.
std::shared_ptr<const Index> make_index(const TempDir& dir, test::Dice& random) {
  std::vector<std::string> paths;
  for (int shard = 0; shard < 5; ++shard) {
    TarBuilder tar;
    std::vector<std::string> keys = kKeys;
    random.shuffle(keys);
    keys.resize(shard == 2 ? 0 : 8 + random.below(8));
    if (shard == 0 && std::find(keys.begin(), keys.end(), "a") == keys.end()) keys[0] = "a";
    const std::vector<std::string> values = {"0",   "1",   "7",    "-3", "0.5",
                                             "abc", "ABC", "\xfe", "10 "};
    for (const std::string& key : keys) {
      tar.file(key + ".txt", std::string(random.below(5), 'x'));
      if (!random.one_in(4)) tar.file(key + ".cls", random.one_of(values));
      if (random.one_in(3)) tar.file(key + ".c\xe9", "latin");
      if (random.one_in(2)) {
        const std::vector<std::string> jsons = {"3", "2.5", "\"x\"", "\"A\"", "[1]", "10", "true"};
        tar.file(key + ".json", R"({"v":)" + random.one_of(jsons) + "}");
      }
      if (key == "a") tar.file("a.txt", "again");
    }
    paths.push_back(dir / ("s" + std::to_string(shard) + ".tar"));
    test::write_file(paths.back(), tar.end().bytes());
  }
  BuildOptions options;
  options.content.policies = parse_defect_policies("skip");
  options.content.columns = {parse_column("cls"), parse_column("json:$.v")};
  build_index(dir / "t.idx", paths, options);
  return Index::open(dir / "t.idx");
}

std::string as_text(const MetadataValue& value) {
  switch (value.type) {
    case ValueType::kNull:
      return "null";
    case ValueType::kInteger:
      return "i" + std::to_string(value.integer);
    case ValueType::kReal:
      return "r" + std::to_string(value.real);
    case ValueType::kText:
      return "t" + std::string(value.bytes);
    case ValueType::kBlob:
      break;
  }
  return "b" + std::string(value.bytes);
}

/// The rows of a statement, each as "a|b", or a single "error" if it cannot be run.
using Rows = std::vector<std::string>;

Rows rows_of_query(const std::shared_ptr<const Index>& index, const std::string& sql) {
  Rows rows;
  try {
    Query query(index, sql);
    while (query.next()) {
      std::string row;
      for (std::size_t i = 0; i < query.columns().size(); ++i) row += as_text(query.value(i)) + "|";
      rows.push_back(row);
    }
  } catch (const InvalidArgument&) {
    return {"error"};
  }
  return rows;
}

/// An ordinary database with the rows of the index's tables.
class OrdinaryTables {
 public:
  explicit OrdinaryTables(const std::shared_ptr<const Index>& index) {
    sqlite3_open(":memory:", &db_);
    for (const TestTable& table : tables()) {
      std::string names;
      std::string places;
      std::string schema;
      for (const TestColumn& column : table.columns) {
        names += ", " + column.name;
        places += ", ?";
        schema += (schema.empty() ? "" : ", ") + column.name + " " + column.type;
      }
      run("CREATE TABLE " + table.name + " (" + schema + ")");
      Query query(index, "SELECT rowid" + names + " FROM " + table.name);
      sqlite3_stmt* insert =
          prepare("INSERT INTO " + table.name + " (rowid" + names + ") VALUES (?" + places + ")");
      while (query.next()) {
        for (std::size_t i = 0; i < query.columns().size(); ++i) {
          bind(insert, static_cast<int>(i) + 1, query.value(i));
        }
        EXPECT_EQ(sqlite3_step(insert), SQLITE_DONE) << sqlite3_errmsg(db_);
        sqlite3_reset(insert);
      }
      sqlite3_finalize(insert);
    }
  }
  ~OrdinaryTables() { sqlite3_close(db_); }
  OrdinaryTables(const OrdinaryTables&) = delete;
  OrdinaryTables& operator=(const OrdinaryTables&) = delete;

  Rows rows(const std::string& sql) {
    sqlite3_stmt* statement = prepare(sql);
    if (statement == nullptr) return {"error"};
    Rows rows;
    int code = SQLITE_OK;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
      std::string row;
      for (int i = 0; i < sqlite3_column_count(statement); ++i) {
        row += as_text(value_of(statement, i)) + "|";
      }
      rows.push_back(row);
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? rows : Rows{"error"};
  }

 private:
  static MetadataValue value_of(sqlite3_stmt* statement, int i) {
    MetadataValue value;
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, i));
    value.bytes = {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement, i))};
    switch (sqlite3_column_type(statement, i)) {
      case SQLITE_INTEGER:
        value.type = ValueType::kInteger;
        value.integer = sqlite3_column_int64(statement, i);
        break;
      case SQLITE_FLOAT:
        value.type = ValueType::kReal;
        value.real = sqlite3_column_double(statement, i);
        break;
      case SQLITE_TEXT:
        value.type = ValueType::kText;
        break;
      case SQLITE_BLOB:
        value.type = ValueType::kBlob;
        break;
      default:
        break;
    }
    return value;
  }
  static void bind(sqlite3_stmt* statement, int i, const MetadataValue& value) {
    const auto size = static_cast<int>(value.bytes.size());
    switch (value.type) {
      case ValueType::kNull:
        sqlite3_bind_null(statement, i);
        break;
      case ValueType::kInteger:
        sqlite3_bind_int64(statement, i, value.integer);
        break;
      case ValueType::kReal:
        sqlite3_bind_double(statement, i, value.real);
        break;
      case ValueType::kText:
        sqlite3_bind_text(statement, i, value.bytes.data(), size, SQLITE_TRANSIENT);
        break;
      case ValueType::kBlob:
        sqlite3_bind_blob(statement, i, value.bytes.data(), size, SQLITE_TRANSIENT);
        break;
    }
  }
  sqlite3_stmt* prepare(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr);
    return statement;
  }
  void run(const std::string& sql) {
    ASSERT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
  }

  sqlite3* db_ = nullptr;
};

/// Makes statements whose rows do not depend on the order in which a plan visits them.
class Statements : test::Dice {
 public:
  using Dice::Dice;

  struct Statement {
    std::string sql;
    bool ordered = false;
  };

  Statement make() {
    aliases_.clear();
    const std::string from = from_clause();
    const std::string where = one_in(6) ? "" : " WHERE " + condition(2);
    if (one_in(4)) return {grouped(from + where), false};
    if (one_in(3)) {  // with one column, equal rows are identical, so the order is determined
      const std::string column = one_in(3) ? place_column() : any_column();
      return {"SELECT " + std::string(one_in(4) ? "DISTINCT " : "") + column + from + where +
                  " ORDER BY " + column + direction() + limit(),
              true};
    }
    std::string columns;
    std::string order;
    for (std::uint64_t i = 0, n = 1 + below(3); i < n; ++i) {
      const std::string column = any_column();
      columns += (i == 0 ? "" : ", ") + column;
      order += ", " + column;
    }
    const bool ordered = one_in(2);
    std::string sql = "SELECT " + columns + from + where;
    // The other columns determine the order of rows whose first columns are equal.
    if (ordered) {
      const std::string first = columns.substr(0, columns.find(','));
      sql += " ORDER BY " + first + collation() + direction() + order + limit();
    }
    return {sql, ordered};
  }

 private:
  struct Alias {
    std::string name;
    const TestTable* table;
  };

  std::string add_table(const std::string& alias) {
    const TestTable& table = tables()[one_in(2) ? below(2) : below(tables().size())];
    aliases_.push_back({alias, &table});
    return table.name + " AS " + alias;
  }

  std::string from_clause() {
    std::string from = " FROM " + add_table("x");
    if (!one_in(3)) return from;
    // RIGHT and FULL joins get only simple conditions, because SQLite 3.40 itself gives wrong
    // results for others.
    static const std::vector<std::string> kJoins = {" JOIN ", " LEFT JOIN ", " CROSS JOIN "};
    static const std::vector<std::string> kNewJoins = {" RIGHT JOIN ", " FULL JOIN "};
    const bool simple = sqlite3_libversion_number() >= 3'039'000 && one_in(3);
    from += one_of(simple ? kNewJoins : kJoins) + add_table("y");
    return from + " ON " + (!simple && one_in(3) ? condition(1) : join_condition());
  }

  std::string join_condition() {
    return "x." + one_of(aliases_[0].table->columns).name + " " + (one_in(5) ? "<" : "=") + " y." +
           one_of(aliases_[1].table->columns).name + collation();
  }

  std::string any_column() {
    const Alias& alias = one_of(aliases_);
    return alias.name + "." + (one_in(12) ? "rowid" : one_of(alias.table->columns).name);
  }
  /// Returns a column by which rows are looked up and ordered.
  std::string place_column() {
    const Alias& alias = one_of(aliases_);
    return alias.name + "." + alias.table->columns[0].name;
  }

  std::string collation() {
    static const std::vector<std::string> kCollations = {" COLLATE NOCASE", " COLLATE RTRIM",
                                                         " COLLATE BINARY"};
    return one_in(4) ? one_of(kCollations) : "";
  }
  std::string direction() {
    static const std::vector<std::string> kDirections = {
        "", "", " ASC", " DESC", " DESC NULLS LAST", " NULLS LAST"};
    return one_of(kDirections);
  }
  std::string limit() {
    if (!one_in(3)) return "";
    return " LIMIT " + std::to_string(below(9)) +
           (one_in(2) ? " OFFSET " + std::to_string(below(9)) : "");
  }

  static std::string literal(const std::string& text) {
    if (text == "\xff") return "x'ff'";
    return "'" + text + "'";
  }
  std::string value() {
    static const std::vector<std::string> kOthers = {"NULL",
                                                     "0.5",
                                                     "2.0",
                                                     "1e300",
                                                     "-1",
                                                     "9223372036854775807",
                                                     "-9223372036854775808",
                                                     "'S0'",
                                                     "x''",
                                                     "'2'",
                                                     "'10'",
                                                     "' 3'",
                                                     "'txt'",
                                                     "'CLS'",
                                                     "'json'",
                                                     "x'63e9'",
                                                     "'none'",
                                                     "CAST('a' AS BLOB)",
                                                     "CAST(7 AS TEXT)",
                                                     "(SELECT max(sample) FROM members)",
                                                     "1 + 1",
                                                     "(SELECT key FROM samples WHERE sample = 5)"};
    if (one_in(3)) return literal(one_of(kKeys));
    return one_in(2) ? one_of(kOthers) : std::to_string(below(60));
  }

  std::string condition(int depth) {
    if (depth > 0 && one_in(2)) {
      const std::string left = condition(depth - 1);
      if (one_in(5)) return "NOT (" + left + ")";
      return "(" + left + (one_in(3) ? " OR " : " AND ") + condition(depth - 1) + ")";
    }
    static const std::vector<std::string> kOperators = {"=",  "=", "=",  "==", "<>",    "<",
                                                        "<=", ">", ">=", "IS", "IS NOT"};
    static const std::vector<std::string> kPatterns = {"'a%'",  "'A%'",    "'x_y'", "'%1%'",
                                                       "'*a*'", "'[a-b]'", "'?'",   "NULL"};
    const std::string column = any_column();
    switch (below(10)) {
      case 0: {
        std::string list = value();
        for (std::uint64_t n = below(4); n > 0; --n) list += ", " + value();
        return column + collation() + (one_in(4) ? " NOT" : "") + " IN (" + list + ")";
      }
      case 1: {
        const TestTable& table = one_of(tables());
        return column + collation() + (one_in(4) ? " NOT" : "") + " IN (SELECT " +
               one_of(table.columns).name + " FROM " + table.name + ")";
      }
      case 2:
        return column + " BETWEEN " + value() + " AND " + value();
      case 3:
        return column + (one_in(2) ? " LIKE " : " GLOB ") + one_of(kPatterns);
      case 4:
        return column + (one_in(2) ? " IS NULL" : " NOTNULL");
      case 5: {
        const TestTable& table = one_of(tables());
        return "EXISTS (SELECT 1 FROM " + table.name + " AS z WHERE z." +
               one_of(table.columns).name + " = " + column + collation() + ")";
      }
      case 6:
        return column + collation() + " " + one_of(kOperators) + " " + any_column();
      case 7:
        return value() + " " + one_of(kOperators) + " " + column + collation();
      default:
        return column + collation() + " " + one_of(kOperators) + " " + value() + collation();
    }
  }

  std::string grouped(const std::string& from_where) {
    const std::string group = any_column();
    const std::string other = any_column();
    // Under a collation, SQLite may show any of a group's equal values.
    const std::string collated = collation();
    const std::string shown = collated.empty() ? group + ", " : "";
    return "SELECT " + shown + "count(*), count(DISTINCT " + other + "), min(" + other + "), max(" +
           other + ")" + from_where + " GROUP BY " + group + collated +
           (one_in(4) ? " HAVING count(*) > " + std::to_string(below(4)) : "");
  }

  std::vector<Alias> aliases_;
};

TEST(QueryRandomTest, StatementsGiveWhatOrdinaryTablesGive) {
  test::Dice random(test::random_seed());
  const TempDir dir;
  const auto index = make_index(dir, random);
  OrdinaryTables ordinary(index);
  for (const TestTable& table : tables()) {
    ASSERT_FALSE(ordinary.rows("SELECT * FROM " + table.name).empty()) << table.name;
  }
  Statements statements(random.number());
  std::size_t with_rows = 0;
  const int kRounds = test::repeats(1000, 4000);
  for (int round = 0; round < kRounds; ++round) {
    const auto statement = statements.make();
    Rows expected = ordinary.rows(statement.sql);
    Rows got = rows_of_query(index, statement.sql);
    if (!statement.ordered) {
      std::sort(expected.begin(), expected.end());
      std::sort(got.begin(), got.end());
    }
    ASSERT_EQ(got, expected) << statement.sql << "\nround " << round;
    if (!got.empty() && got != Rows{"error"}) ++with_rows;
  }
  EXPECT_GT(with_rows, kRounds / 3);
}

/// Returns `sql` with some words removed, repeated, or replaced.
std::string damaged_statement(const std::string& sql, const std::vector<std::string>& others,
                              test::Dice& random) {
  std::string damaged;
  std::istringstream words(sql);
  for (std::string word; words >> word;) {
    switch (random.below(30)) {
      case 0:
        continue;
      case 1:
        damaged += word + " ";
        break;
      case 2:
        word = random.one_of(others);
        break;
      default:
        break;
    }
    damaged += word + " ";
  }
  return damaged;
}

TEST(QueryRandomTest, AnyTextIsAnErrorOrHasRows) {
  static const std::vector<std::string> kTokens = {
      "SELECT",
      "SELECT *",
      "FROM samples",
      "FROM members",
      "FROM shards s",
      "FROM",
      "WHERE",
      "samples",
      "members",
      "shards",
      "fields",
      "skipped",
      "sample",
      "key",
      "shard",
      "cls",
      "v",
      "field",
      "offset",
      "rowid",
      "x",
      "*",
      ",",
      "(",
      ")",
      "=",
      "<",
      ">=",
      "<>",
      "IN",
      "IS",
      "NOT",
      "NULL",
      "LIKE",
      "GLOB",
      "BETWEEN",
      "AND",
      "OR",
      "0",
      "1",
      "-1",
      "9223372036854775807",
      "9223372036854775808",
      "1e999",
      "0.5",
      "'a'",
      "''",
      "x'00ff'",
      "x'0'",
      "'",
      "\"",
      "`",
      "[",
      "]",
      ";",
      "--",
      "/*",
      "*/",
      "?",
      "?1",
      ":a",
      "@b",
      "$c",
      "GROUP BY",
      "ORDER BY",
      "HAVING",
      "LIMIT",
      "OFFSET",
      "DISTINCT",
      "ALL",
      "UNION",
      "EXCEPT",
      "INTERSECT",
      "JOIN",
      "LEFT JOIN",
      "NATURAL",
      "USING (key)",
      "ON",
      "AS",
      "WITH",
      "RECURSIVE",
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)",
      "VALUES (1)",
      "CASE",
      "WHEN",
      "THEN",
      "ELSE",
      "END",
      "CAST(",
      "AS BLOB)",
      "COLLATE NOCASE",
      "count(*)",
      "sum(",
      "max(",
      "group_concat(",
      "json_each('[1]')",
      "json_tree(",
      "json_extract(",
      "zeroblob(99999999)",
      "randomblob(9)",
      "printf('%999999999d', 1)",
      "OVER (ORDER BY key)",
      "OVER (",
      "PARTITION BY",
      "PRAGMA",
      "ATTACH",
      "DETACH",
      "INSERT INTO",
      "DELETE FROM",
      "UPDATE",
      "SET",
      "CREATE TABLE",
      "CREATE VIEW",
      "CREATE VIRTUAL TABLE",
      "DROP TABLE",
      "VACUUM",
      "REINDEX",
      "ANALYZE",
      "BEGIN",
      "COMMIT",
      "EXPLAIN",
      "EXPLAIN QUERY PLAN",
      "sqlite_schema",
      "pragma_table_info",
      "load_extension(",
      "INDEXED BY",
      "NOT INDEXED",
      "main.",
      "temp.",
      ".",
      "||",
      "->",
      "<<",
      "~",
      "%",
      "MATCH",
      "REGEXP",
      "ESCAPE",
      "RAISE(",
      "EXISTS (",
      "FILTER (WHERE",
      "RETURNING",
      std::string("\0", 1),
      "\xff",
      "\xc3\xa9"};
  test::Dice random(test::random_seed());
  const TempDir dir;
  const auto index = make_index(dir, random);
  Statements statements(random.number());
  int ran = 0;
  const int rounds = test::repeats(5000, 20'000);
  const std::atomic<bool> cancel = true;  // a query that takes long ends at its first tick
  for (int round = 0; round < rounds; ++round) {
    std::string sql = damaged_statement(statements.make().sql, kTokens, random);
    if (random.one_in(2)) {
      sql = random.one_in(8) ? "" : "SELECT ";
      for (std::uint64_t n = random.below(12); n > 0; --n) {
        sql += random.one_of(kTokens) + " ";
      }
    }
    SCOPED_TRACE(escaped(sql) + "\nround " + std::to_string(round));
    try {
      Query query(index, sql, {.scratch_bytes = 1 << 20});
      query.set_cancel(&cancel);
      for (int rows = 0; rows < 100 && query.next(); ++rows) {
        for (std::size_t i = 0; i < query.columns().size(); ++i) query.value(i);
      }
      ++ran;
    } catch (const InvalidArgument&) {
    } catch (const Cancelled&) {
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
  }
  EXPECT_GT(ran, rounds / 200);
}

}  // namespace
}  // namespace shardwise
