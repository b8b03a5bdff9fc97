#include "shardwise/index/query.h"

#include <sqlite3.h>

#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "base/text.h"
#include "index/offset_table.h"
#include "shardwise/ingest/index_builder.h"
#include "support/chain.h"
#include "support/process.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Indexed {
  Indexed() {
    BuildOptions options;
    options.content.columns = {parse_column("cls"), parse_column("text=txt")};
    build_index(dir / "t.idx", test::write_shards(dir, 4, 25), options);
    index = Index::open(dir / "t.idx");
  }

  /// Returns all rows, each as "a|b".
  std::vector<std::string> rows(std::string_view sql) const {
    Query query(index, sql);
    std::vector<std::string> rows;
    while (query.next()) {
      std::string row;
      for (std::size_t i = 0; i < query.columns().size(); ++i) {
        const MetadataValue value = query.value(i);
        row += i == 0 ? "" : "|";
        switch (value.type) {
          case ValueType::kNull:
            row += "null";
            break;
          case ValueType::kInteger:
            row += std::to_string(value.integer);
            break;
          case ValueType::kReal:
            row += std::to_string(value.real);
            break;
          case ValueType::kText:
            row += value.bytes;
            break;
          case ValueType::kBlob:
            row += "blob:" + std::string(value.bytes);
            break;
        }
      }
      rows.push_back(row);
    }
    return rows;
  }
  std::string error(std::string_view sql) const {
    EXPECT_EQ(test::error_code([&] { rows(sql); }), ErrorCode::kInvalidArgument) << sql;
    return test::error_text([&] { rows(sql); });
  }

  TempDir dir;
  std::shared_ptr<const Index> index;
};

TEST(QueryTest, SeesSamplesMembersAndTheCatalogue) {
  const Indexed t;
  EXPECT_THAT(t.rows("SELECT * FROM samples WHERE sample = 26"),
              ElementsAre("26|s000026|1|2|8|6|text 26"));
  EXPECT_THAT(
      t.rows("SELECT sample, member, key, field, shard, size FROM members WHERE sample = 3"),
      ElementsAre("3|0|s000003|txt|0|6", "3|1|s000003|cls|0|1"));
  EXPECT_THAT(t.rows("SELECT cls, count(*) FROM samples GROUP BY cls HAVING cls < 2"),
              ElementsAre("0|10", "1|10"));
  EXPECT_THAT(t.rows("SELECT url, samples FROM shards WHERE shard = 2"),
              ElementsAre(t.dir / "train-000002.tar" + "|25"));
  EXPECT_THAT(t.rows("SELECT field, members FROM fields ORDER BY 1"),
              ElementsAre("cls|100", "txt|100"));
  EXPECT_THAT(t.rows("SELECT count(*), sum(size) = (SELECT sum(bytes) FROM samples) FROM members"),
              ElementsAre("200|1"));
  EXPECT_THAT(t.rows("SELECT url FROM shards JOIN samples USING (shard) WHERE key = 's000080'"),
              ElementsAre(t.dir / "train-000003.tar"));
  EXPECT_EQ(Query(t.index, "SELECT sample AS s, cls FROM samples").columns(),
            (std::vector<std::string>{"s", "cls"}));
}

TEST(QueryTest, AtItsEndItDoesNotBeginAgain) {
  const Indexed t;
  Query query(t.index, "SELECT sample FROM samples WHERE sample < 1");
  EXPECT_TRUE(query.next());
  EXPECT_FALSE(query.next());
  EXPECT_FALSE(query.next());
}

TEST(QueryTest, GroupingMembersByFieldNeedsNoSorting) {
  const test::TempDir dir;
  test::Dice dice(test::random_seed());
  std::vector<std::string> shards;
  std::map<std::string, std::pair<int, std::uint64_t>> expected;  // by field: members and bytes
  for (int shard = 0; shard < 5; ++shard) {
    test::TarBuilder tar;
    for (int i = 0; i < 400; ++i) {
      const std::string key = "k" + std::to_string(shard) + "_" + std::to_string(i);
      for (const std::string field : {"jpg", "a", "cls", "\xff"}) {
        if (field != "jpg" && dice.percent(shard == 2 ? 100 : 40)) continue;
        const std::uint64_t size = dice.below(9);
        tar.file(key + "." + field, std::string(size, 'x'));
        ++expected[field].first;
        expected[field].second += size;
      }
    }
    shards.push_back(dir / (std::to_string(shard) + ".tar"));
    test::write_file(shards.back(), tar.end().bytes());
  }
  build_index(dir / "t.idx", shards);
  const auto index = Index::open(dir / "t.idx");
  for (const std::string more :
       {"", " WHERE sample >= 300 AND sample < 1500", " WHERE shard = 2"}) {
    const auto groups = [&](const std::string& field) {
      // Without scratch files, nothing can be sorted.
      Query query(index,
                  "SELECT " + field + ", count(*), sum(size) FROM members" + more + " GROUP BY 1",
                  {.scratch_bytes = field == "field" ? 0U : 1U << 20});
      std::map<std::string, std::pair<std::int64_t, std::int64_t>> rows;
      while (query.next()) {
        EXPECT_TRUE(rows.try_emplace(std::string(query.value(0).bytes), query.value(1).integer,
                                     query.value(2).integer)
                        .second);
      }
      return rows;
    };
    EXPECT_EQ(groups("field"), groups("field || ''")) << more;
    if (!more.empty()) continue;
    const auto all = groups("field");
    ASSERT_EQ(all.size(), expected.size());
    for (const auto& [field, sums] : expected) {
      EXPECT_EQ(all.at(field).first, sums.first) << field;
      EXPECT_EQ(all.at(field).second, static_cast<std::int64_t>(sums.second)) << field;
    }
  }
  Query plan(index, "SELECT DISTINCT field FROM members ORDER BY field");
  std::vector<std::string> fields;
  while (plan.next()) fields.emplace_back(plan.value(0).bytes);
  EXPECT_EQ(fields, (std::vector<std::string>{"a", "cls", "jpg", "\xff"}));
}

TEST(QueryTest, OnlyReads) {
  const Indexed t;
  for (const char* sql :
       {"DELETE FROM shards", "UPDATE shards SET url = 'x'", "DROP TABLE shards", "VACUUM",
        "CREATE TABLE x (y)", "CREATE TEMP TABLE x (y)", "ATTACH 'x.db' AS x", "DETACH main",
        "PRAGMA user_version", "PRAGMA writable_schema = 1", "BEGIN", "REINDEX", "ANALYZE",
        "SELECT load_extension('x')", "INSERT INTO samples VALUES (1)", "DELETE FROM samples",
        "SELECT * FROM pragma_user_version", "CREATE VIRTUAL TABLE x USING samples"}) {
    EXPECT_THAT(t.error(sql), HasSubstr("query cannot be run")) << sql;
  }
  EXPECT_EQ(t.rows("SELECT count(*) FROM shards"), std::vector<std::string>{"4"});
}

TEST(QueryTest, JsonIsTakenApartByTablesToo) {
  const Indexed t;
  EXPECT_THAT(t.rows("SELECT value FROM json_each('[1, \"two\"]')"), ElementsAre("1", "two"));
  EXPECT_THAT(t.rows("SELECT fullkey, value FROM json_tree('{\"a\": [7]}') WHERE atom NOT NULL"),
              ElementsAre("$.a[0]|7"));
  EXPECT_THAT(
      t.rows("SELECT samples.key, j.value FROM samples, json_each(json_array(cls, text)) AS j "
             "WHERE sample = 12"),
      ElementsAre("s000012|2", "s000012|text 12"));
  for (const char* table : {"pragma_table_list", "pragma_table_info('samples')", "dbstat",
                            "sqlite_stmt", "fts3tokenize", "bytecode('SELECT 1')"}) {
    EXPECT_THAT(t.error("SELECT * FROM " + std::string(table)), HasSubstr("query cannot be run"))
        << table;
  }
}

/// Returns a query that must sort or compare 1,000 rows of 100,000 bytes before it returns the
/// first row.
std::string large(const std::string& select) {
  return "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000), "
         "r(text) AS (SELECT hex(zeroblob(50000)) || i FROM n) " +
         select;
}

TEST(QueryTest, ScratchFilesAreBounded) {
  const Indexed t;
  for (const std::string& sql :
       {large("SELECT text FROM r ORDER BY text DESC"), large("SELECT DISTINCT text FROM r"),
        large("SELECT text FROM r UNION SELECT text FROM r"),
        large("SELECT sum(length(text)) OVER (ORDER BY text) FROM r")}) {
    std::uint64_t rows = 0;
    const auto run = [&](std::uint64_t scratch_bytes) {
      Query query(t.index, sql, {.scratch_bytes = scratch_bytes});
      for (rows = 0; query.next();) ++rows;
    };
    run(std::uint64_t{1} << 30);
    EXPECT_EQ(rows, 1000U) << sql;
    EXPECT_EQ(test::error_code([&] { run(0); }), ErrorCode::kInvalidArgument) << sql;
    EXPECT_THAT(test::error_text([&] { run(std::uint64_t{20} << 20); }),
                testing::AllOf(HasSubstr("20.0 MiB of scratch files: '" + (t.dir / "t.idx") + "'"),
                               HasSubstr("allow more (Query::Limits::scratch_bytes)")));
  }
  // A sort that fits in memory needs no scratch file. With a LIMIT, SQLite stores only a few rows.
  Query small(t.index, "SELECT sample FROM samples ORDER BY key DESC", {.scratch_bytes = 0});
  EXPECT_TRUE(small.next());
  Query limited(t.index, large("SELECT text FROM r ORDER BY text DESC LIMIT 3"),
                {.scratch_bytes = 0});
  EXPECT_TRUE(limited.next());
}

TEST(QueryTest, ScratchFilesThatCannotBeAreAnErrorOfTheirOwn) {
  const Indexed t;
  EXPECT_EQ(test::in_child([&] {
              test::set_limit(RLIMIT_FSIZE, 30'000'000);
              ::signal(SIGXFSZ, SIG_IGN);
              Query query(t.index, large("SELECT text FROM r ORDER BY text DESC"));
              const std::string text = test::error_text([&] { query.next(); });
              return text.find("scratch files") == text.npos ? text : "";
            }),
            "");
}

TEST(QueryTest, ErrorsSayWhatIsWrong) {
  const Indexed t;
  EXPECT_THAT(t.error("SELECT nope FROM samples"), HasSubstr("no such column: nope"));
  EXPECT_THAT(t.error("SELECT sample FROM samples WHERE \"nope\" > 0"),
              HasSubstr("no such column"));
  EXPECT_THAT(t.error("SELEC"), HasSubstr("syntax error"));
  EXPECT_THAT(t.error(""), HasSubstr("no query"));
  EXPECT_THAT(t.error("-- nothing"), HasSubstr("no query"));
  EXPECT_THAT(t.error("SELECT 1; SELECT 2"), HasSubstr("more than one query"));
  EXPECT_THAT(t.rows("SELECT 1 ; "), ElementsAre("1"));
  EXPECT_THAT(t.error("SELECT length(zeroblob(1000000000))"), HasSubstr("too big"));
  EXPECT_THAT(t.error("SELECT key FROM samples WHERE abs(-9223372036854775808) = sample"),
              HasSubstr("integer overflow"));
}

TEST(QueryTest, CanBeCancelled) {
  const Indexed t;
  // Values of the largest allowed length, and the arguments with which SQLite's own functions take
  // longest.
  const std::string text = "hex(zeroblob(1000000))", rest = "hex(zeroblob(400000))";
  const std::vector<std::string> values = {
      std::string("i"),
      "instr(" + text + ", " + rest + " || i)",
      "length(replace(" + text + ", " + rest + " || i, 'x'))",
      "length(replace(" + text + ", '0', ''))",
      "length(trim(" + text + ", replace(hex(randomblob(900000)), '0', '') || '0'))",
      text + " LIKE '%" + std::string(200, '0') + "' || i",
      text + " GLOB '*" + std::string(200, '0') + "' || i",
      "hex(randomblob(1000000))",
      "printf('%2000000d', i)",
      "quote(randomblob(900000))",
      "upper(" + text + ") || ''",
      "json_extract('[' || replace(" + rest + ", '0', '0,') || '0]', '$[799999]')",
      "json_valid('[' || replace(" + rest + ", '0', '0,') || '0]')",
      "substr(" + text + ", -i)",
      "(SELECT length(group_concat(" + rest + ")) FROM (SELECT 1 UNION SELECT 2))",
      "(SELECT count(*) FROM samples a, samples b, samples c WHERE a.key || b.key LIKE "
      "c.text)"};
  for (const std::string& value : values) {
    SCOPED_TRACE(value.substr(0, 100));
    Query query(t.index,
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                "SELECT count(" +
                    value + ") FROM n");
    std::atomic<bool> cancel = false;
    query.set_cancel(&cancel);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      cancel = true;
    });
    EXPECT_THROW(query.next(), Cancelled);
    later.join();
  }
}

TEST(QueryTest, CanBeCancelledWhileItSorts) {
  const Indexed t;
  Query query(t.index,
              "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
              "SELECT count(*) FROM (SELECT i FROM n ORDER BY hex(randomblob(1000)))");
  std::atomic<bool> cancel = false;
  query.set_cancel(&cancel);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    cancel = true;
  });
  EXPECT_THROW(query.next(), Cancelled);
  later.join();
}

// A row may have many patterns, and each may take half a second.
TEST(QueryTest, CancelIsHeardBetweenThePatternsOfARow) {
  const Indexed t;
  for (const char* sql : {"SELECT 'a' LIKE 'b'", "SELECT 'a' GLOB 'b'"}) {
    Query query(t.index, sql);
    const std::atomic<bool> cancel = true;
    query.set_cancel(&cancel);
    EXPECT_THROW(query.next(), Cancelled) << sql;
  }
}

// With ESCAPE, SQLite's own functions are used.
TEST(QueryTest, PatternsMatchAsSqlitesOwnDo) {
  const Indexed t;
  const std::string values =
      "WITH v(x) AS (VALUES (NULL), (1), (2.5), (''), ('a'), ('A'), ('ab'), ('%'), ('_b'), "
      "('\u00e4'), ('\u00c4%'), ('[a]'), (x'6162'), (x'ff'), (x'610062'), ('a%b_c')) ";
  EXPECT_THAT(t.rows(values + "SELECT count(*) FROM v a, v b"), ElementsAre("256"));
  EXPECT_THAT(t.rows(values + "SELECT count(*) FROM v a, v b WHERE (a.x LIKE b.x) IS NOT "
                              "(a.x LIKE b.x ESCAPE char(1))"),
              ElementsAre("0"));
  EXPECT_THAT(t.rows("SELECT 'abc' GLOB 'a*', 'abc' GLOB 'A*', 'abc' GLOB '?[a-b]c', "
                     "NULL GLOB 'a', 'a' GLOB NULL, 'a' NOT LIKE 'A', like('a%', 'Abc')"),
              ElementsAre("1|0|1|null|null|0|1"));
}

// SQLite sorts the data in memory in one step, which cannot be interrupted.
TEST(QueryTest, LittleIsSortedAtATime) {
  const Indexed t;
  const auto sort = [&](int rows) {
    Query query(t.index,
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
                    std::to_string(rows) + ") SELECT hex(zeroblob(500)) || i FROM n ORDER BY 1",
                {.scratch_bytes = 0});
    query.next();
  };
  sort(12'000);
  EXPECT_EQ(test::error_code([&] { sort(20'000); }), ErrorCode::kInvalidArgument);
}

TEST(QueryTest, WhatTakesTheProductOfTwoLengthsIsLimited) {
  const Indexed t;
  EXPECT_THAT(t.error("SELECT hex(zeroblob(1100000))"), HasSubstr("2 MiB"));
  EXPECT_THAT(t.error("SELECT replace(hex(zeroblob(1000000)), '0', '123')"), HasSubstr("2 MiB"));
  EXPECT_THAT(t.error("SELECT 'x' LIKE '" + std::string(251, '%') + "'"), HasSubstr("too complex"));
  EXPECT_THAT(t.error("SELECT json_patch('{}', '{}')"), HasSubstr("json_patch"));
}

// SQLite's printf() takes time proportional to its widths, and cannot be cancelled meanwhile.
TEST(QueryTest, AWidthOfPrintfIsLimited) {
  const Indexed t;
  std::string many = "'";
  for (int i = 0; i < 3000; ++i) many += "%.1000000c";
  for (const std::string& arguments :
       {std::string("'%.*c', 2000000000, 'x'"), std::string("'%.2000000000c', 'x'"),
        std::string("'%.*c', -2000000000, 'x'"), std::string("'%d%*d', 1, 2000000000, 1"),
        std::string("'%*.*c', 1, 2000000000, 'x'"),
        std::string("'%%%-*d', 4294967296 + 3000000, 1"), std::string("'%.3000000s', 'x'"),
        many + "'"}) {
    for (const char* name : {"printf", "format", "PRINTF"}) {
      SCOPED_TRACE(arguments.substr(0, 60));
      EXPECT_THAT(t.error(std::string("SELECT length(") + name + "(" + arguments + "))"),
                  HasSubstr("2 MiB"));
    }
  }
}

TEST(QueryTest, PrintfIsSqlites) {
  const Indexed t;
  EXPECT_THAT(t.rows("SELECT printf('%05d|%-6s|%.2f|%x|%!.3s|%Q|%,d|%c|%%', 42, 'ab', 1.5, 255, "
                     "'abcd', 'it''s', 1234567, 'xyz')"),
              ElementsAre("00042|ab    |1.50|ff|abc|'it''s'|1,234,567|x|%"));
  EXPECT_THAT(t.rows("SELECT format('%*d|%.*c', 4, 7, 3, 'y'), length(printf('%1000000c', 'x'))"),
              ElementsAre("   7|yyy|1000000"));
  EXPECT_THAT(t.rows("SELECT printf(NULL, 1) IS NULL, printf() IS NULL, printf('9999999999 %d')"),
              ElementsAre("1|1|9999999999 0"));
  EXPECT_THAT(t.rows("SELECT printf('%s-%s', printf('%d', 1), printf('%s', x'4142'))"),
              ElementsAre("1-AB"));
}

/// Runs statements in plain SQLite, for comparison.
class Sqlite {
 public:
  Sqlite() { sqlite3_open(":memory:", &db_); }
  ~Sqlite() { sqlite3_close(db_); }
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;

  std::string value(const std::string& sql) const {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr);
    EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW) << sql << sqlite3_errmsg(db_);
    std::string text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    return text;
  }

 private:
  sqlite3* db_ = nullptr;
};

TEST(QueryTest, FunctionsInPlaceOfSqlitesGiveTheSame) {
  const Indexed t;
  const Sqlite sqlite;
  const std::vector<std::string> letters = {"a", "b", " ", "\xc3\xa9", "\xe2\x82\xac"};
  const std::vector<std::string> bytes = {"a", "b", std::string(1, '\0'), "\x80", "\xc3", "\xa9"};
  std::mt19937 random(17);
  std::string sql;
  const auto value = [&](std::size_t most, bool is_valid) {
    const auto& from = is_valid ? letters : bytes;
    std::string text;
    for (std::size_t n = random() % (most + 1); n > 0; --n) text += from[random() % from.size()];
    const std::string blob = "x'" + hex(text) + "'";
    switch (random() % 12) {
      case 0:
        return std::string("NULL");
      case 1:
        return std::to_string(random() % 300);
      case 2:
        return std::string("1.5");
      case 3:
        return blob;
      default:
        return "CAST(" + blob + " AS TEXT)";
    }
  };
  for (int round = 0; round < 5000; ++round) {
    const bool is_valid = round % 2 == 0;
    switch (random() % (is_valid ? 5 : 2)) {
      case 0:
        sql = "instr(" + value(12, is_valid) + ", " + value(3, is_valid) + ")";
        break;
      case 1:
        sql = "replace(" + value(12, is_valid) + ", " + value(2, is_valid) + ", " +
              value(3, is_valid) + ")";
        break;
      case 2:
        sql = "trim(" + value(8, true) + (random() % 2 == 0 ? ")" : ", " + value(3, true) + ")");
        break;
      case 3:
        sql = "ltrim(" + value(8, true) + ", " + value(3, true) + ")";
        break;
      default:
        sql = "rtrim(" + value(8, true) + ", " + value(3, true) + ")";
    }
    sql = "SELECT typeof(" + sql + ") || ' ' || hex(" + sql + ")";
    ASSERT_EQ(t.rows(sql)[0], sqlite.value(sql)) << sql;
  }
}

TEST(QueryTest, ADamagedSegmentIsAnErrorNotOtherRows) {
  const Indexed t;
  std::string table;
  for (const std::string& name : t.dir.list()) {
    if (name.ends_with(".table")) table = t.dir / name;
  }
  std::string bytes = test::read_file(table);
  bytes[sizeof(TableHeader) + sizeof(SegmentHeader) + 3] ^= 1;
  test::write_file(table, bytes);
  const auto damaged = Index::open(t.dir / "t.idx");
  const auto count = [&] {
    Query query(damaged, "SELECT count(cls) FROM samples");
    query.next();
  };
  EXPECT_EQ(test::error_code(count), ErrorCode::kCorruptIndex);
  EXPECT_THAT(test::error_text(count), AllOf(HasSubstr("shard 0"), HasSubstr("checksum")));
}

/// Writes an index of two shards. In one shard a member is left out.
std::string write_index_with_a_skipped_member(const TempDir& dir) {
  TarBuilder bad;
  bad.file("a.txt", "1").file("a.txt", "twice").file("b.cls", "22").end();
  test::write_file(dir / "bad.tar", bad.bytes());
  test::write_file(dir / "good.tar", TarBuilder().file("c.txt", "333").end().bytes());
  BuildOptions options;
  options.content.policies = parse_defect_policies("skip");
  build_index(dir / "x.idx", {dir / "bad.tar", dir / "good.tar"}, options);
  return dir / "x.idx";
}

TEST(QueryTest, ADamagedCatalogueIsAnErrorNotOtherRows) {
  const TempDir dir;
  const std::string path = write_index_with_a_skipped_member(dir);
  const std::string intact = test::read_file(path);
  const auto answers = [&](const std::string& sql) {
    std::string text;
    Query query(Index::open(path), sql);
    while (query.next()) {
      for (std::size_t i = 0; i < query.columns().size(); ++i) {
        const MetadataValue value = query.value(i);
        text += std::to_string(static_cast<int>(value.type)) + " " + std::to_string(value.integer) +
                " " + std::string(value.bytes) + "|";
      }
      text += "\n";
    }
    return text;
  };
  std::map<std::string, std::string> expected;
  for (const char* table : {"shards", "fields", "skipped"}) {
    const std::string sql = std::string("SELECT * FROM ") + table;
    expected[sql] = answers(sql);
    EXPECT_FALSE(expected[sql].empty()) << table;
  }
  constexpr std::uint64_t kSeed = 20261122;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    std::string flipped = intact;
    const std::size_t at = random() % flipped.size();
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
    test::write_file(path, flipped);
    for (const auto& [sql, answer] : expected) {
      try {
        ASSERT_EQ(answers(sql), answer)
            << sql << ", byte " << at << ", seed " << kSeed << ", round " << round;
      } catch (const Error& e) {
        ASSERT_TRUE(e.code() == ErrorCode::kCorruptIndex ||
                    e.code() == ErrorCode::kVersionMismatch || e.code() == ErrorCode::kNotFound)
            << e.what();
      }
    }
  }
}

TEST(QueryTest, NamesThatAreNotTextAreBlobs) {
  const TempDir dir;
  TarBuilder tar;
  test::write_file(dir / "x.tar",
                   tar.file("caf\xe9.t\xefxt", "1").file("\xc3\xa9.txt", "2").end().bytes());
  build_index(dir / "x.idx", {dir / "x.tar"});
  Query query(Index::open(dir / "x.idx"),
              "SELECT typeof(key), typeof(field) FROM members ORDER BY sample");
  ASSERT_TRUE(query.next());
  EXPECT_EQ(query.value(0).bytes, "blob");
  EXPECT_EQ(query.value(1).bytes, "blob");
  ASSERT_TRUE(query.next());
  EXPECT_EQ(query.value(0).bytes, "text");
}

TEST(SelectSamplesTest, GivesTheNumbersForWhichAConditionHolds) {
  const Indexed t;
  EXPECT_THAT(select_samples(t.index, "cls = 7 AND sample < 30"), ElementsAre(7, 17, 27));
  EXPECT_THAT(select_samples(t.index, "cls = 7 OR sample = 0 -- or so"), testing::SizeIs(11));
  EXPECT_THAT(select_samples(t.index, "cls > 100"), ElementsAre());
  EXPECT_EQ(test::error_code([&] { select_samples(t.index, "cls = 7) UNION SELECT (1000"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { select_samples(t.index, ""); }), ErrorCode::kInvalidArgument);
}

TEST(SelectSamplesTest, AConditionIsOneExpression) {
  const Indexed t;
  const auto error = [&](const char* condition) {
    return test::error_text([&] { select_samples(t.index, condition); });
  };
  const auto told = [](const char* part) {
    return AllOf(HasSubstr(part), HasSubstr("one condition, e.g. cls = 7 AND width >= 256"));
  };
  // A condition must not close the brackets of the query around it. If it did, the result would
  // contain samples of both halves.
  for (const char* joined : {"1) OR (1", "cls = 7) OR (cls = 8", "1) AND NOT (0"}) {
    EXPECT_THAT(error(joined), told("near \")\": syntax error"));
  }
  // Errors do not mention brackets that the user did not write.
  EXPECT_THAT(error("cls ="), told("incomplete input"));
  EXPECT_THAT(error("(cls = 7"), told("incomplete input"));
  EXPECT_THAT(error("cls = 7 ORDER BY cls"), told("near \"ORDER\": syntax error"));
  EXPECT_THAT(error("cls = 7; SELECT 1"), told("one condition: 'cls = 7; SELECT 1'"));
  EXPECT_THAT(select_samples(t.index, "(cls = 7) AND (sample < 20)"), ElementsAre(7, 17));
}

}  // namespace
}  // namespace shardwise
