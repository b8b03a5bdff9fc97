#include "shardwise/index/query.h"

#include <filesystem>
#include <thread>

#include "shardwise/ingest/index_builder.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

struct Indexed {
  Indexed() {
    BuildOptions options;
    options.content.columns = {parse_column("cls"), parse_column("text=txt")};
    build_index(dir / "t.idx", test::write_shards(dir, 4, 25), options);
    index = Index::open(dir / "t.idx");
  }

  /// All rows, "a|b" each.
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

/// A table that no plan looks anything up in, with the types of the columns kept.
std::string scanned(const std::string& table) {
  return "(SELECT rowid AS rowid, * FROM " + table + " LIMIT -1 OFFSET 0)";
}

TEST(QueryTest, LookUpsGiveWhatScansGive) {
  const Indexed t;
  for (const char* op : {"=", "<", "<=", ">", ">=", "<>", "IS"}) {
    for (const char* value :
         {"0", "26", "99", "100", "-1", "9223372036854775807", "-9223372036854775808", "26.5",
          "26.0", "'26'", "'x'", "NULL", "x'00'", "1e300"}) {
      for (const char* column : {"sample", "shard", "rowid", "key"}) {
        const std::string tail = std::string(column) + " " + op + " " + value;
        SCOPED_TRACE(tail);
        ASSERT_EQ(t.rows("SELECT sample FROM samples WHERE " + tail),
                  t.rows("SELECT sample FROM " + scanned("samples") + " WHERE " + tail));
        if (std::string_view(column) == "rowid") continue;
        ASSERT_EQ(t.rows("SELECT sample, member FROM members WHERE " + tail),
                  t.rows("SELECT sample, member FROM " + scanned("members") + " WHERE " + tail));
      }
    }
  }
  for (const char* where :
       {"sample > 20 AND sample <= 30 AND shard = 1", "key = 's000003' AND sample = 3",
        "key = 's000003' AND sample = 4", "sample IN (1, 5, 200, -3)", "key IN ('s000001', 'x')",
        "sample BETWEEN 90 AND 200", "shard = 7 OR sample = 5", "key = cast('s000003' AS BLOB)"}) {
    SCOPED_TRACE(where);
    ASSERT_EQ(t.rows(std::string("SELECT sample FROM samples WHERE ") + where),
              t.rows("SELECT sample FROM " + scanned("samples") + " WHERE " + where));
  }
  EXPECT_THAT(t.rows("SELECT sample FROM samples WHERE sample > 95 ORDER BY sample DESC"),
              ElementsAre("99", "98", "97", "96"));
}

TEST(QueryTest, OnlyReads) {
  const Indexed t;
  for (const char* sql :
       {"DELETE FROM shards", "UPDATE shards SET url = 'x'", "DROP TABLE shards", "VACUUM",
        "CREATE TABLE x (y)", "CREATE TEMP TABLE x (y)", "ATTACH 'x.db' AS x", "DETACH main",
        "PRAGMA user_version", "PRAGMA writable_schema = 1", "BEGIN", "REINDEX", "ANALYZE",
        "SELECT load_extension('x')", "INSERT INTO samples VALUES (1)", "DELETE FROM samples",
        "SELECT * FROM pragma_user_version", "CREATE VIRTUAL TABLE x USING samples"}) {
    EXPECT_THAT(t.error(sql), HasSubstr("the query cannot be run: ")) << sql;
  }
  EXPECT_EQ(t.rows("SELECT count(*) FROM shards"), std::vector<std::string>{"4"});
}

TEST(QueryTest, ErrorsSayWhatIsWrong) {
  const Indexed t;
  EXPECT_THAT(t.error("SELECT nope FROM samples"), HasSubstr("no such column: nope"));
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
  Query query(t.index,
              "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
              "SELECT count(*) FROM n");
  std::atomic<bool> cancel = false;
  query.set_cancel(&cancel);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancel = true;
  });
  EXPECT_THROW(query.next(), Cancelled);
  later.join();
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
  EXPECT_THAT(test::error_text(count), HasSubstr("shard 0: a segment's checksum is wrong"));
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

}  // namespace
}  // namespace shardwise
