// Side tables: their values, and how they survive updates of the index, damage and kill -9.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "base/fault_point.h"
#include "base/text.h"
#include "index/side_tables.h"
#include "index/sqlite.h"
#include "ingest/csv_reader.h"
#include "ingest/side_table_writer.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/attach.h"
#include "shardwise/ingest/index_builder.h"
#include "support/chain.h"
#include "support/python.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::TempDir;
using test::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

std::string shown(const Query::Value& value) {
  switch (value.type) {
    case Query::Value::Type::kNull:
      return "null";
    case Query::Value::Type::kInteger:
      return std::to_string(value.integer);
    case Query::Value::Type::kReal: {
      std::ostringstream out;
      out << value.real << "r";
      return out.str();
    }
    case Query::Value::Type::kText:
      return "'" + std::string(value.bytes) + "'";
    case Query::Value::Type::kBlob:
      return "x" + hex(value.bytes);
  }
  return "?";
}

/// Returns the rows of a query, their values separated by blanks.
std::vector<std::string> rows_of(const std::string& index, const std::string& sql) {
  Query query(Index::open(index), sql);
  std::vector<std::string> rows;
  while (query.next()) {
    std::string row;
    for (std::size_t i = 0; i < query.columns().size(); ++i) {
      row += (i == 0 ? "" : " ") + shown(query.value(i));
    }
    rows.push_back(row);
  }
  return rows;
}

/// Returns e.g. "s000017".
std::string numbered_key(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  return "s" + std::string(6 - digits.size(), '0') + digits;
}

/// An index of samples "s000000", "s000001", ... and tables for it.
class AttachTest : public testing::Test {
 protected:
  AttachTest() { build_index(index_, test::write_shards(dir_, 2, 3)); }

  std::string file(const std::string& name, const std::string& text) const {
    write_file(dir_ / name, text);
    return dir_ / name;
  }
  SideTable::Match attach_csv(const std::string& text, SideTable::Options options = {}) const {
    if (options.key.empty()) options.key = "id";
    return attach_table(index_, file("t.csv", text), options);
  }
  std::vector<std::string> column(const std::string& name) const {
    return rows_of(index_, "SELECT " + name + " FROM samples");
  }

  TempDir dir_;
  const std::string index_ = dir_ / "t.idx";
};

TEST_F(AttachTest, ColumnsOfCsvHaveTheTypesOfTheirCells) {
  attach_csv(
      "id,whole,real,zip,mixed,text,none\r\n"
      "s000000,1,0.5,007,1,\"a, \"\"b\"\"\nc\",\r\n"
      "s000001,,2,12,x,\"\",\r\n"
      "s000002, -3 ,1e3,,007, x ,\r\n"
      "s000003,9223372036854775807,.5,1,2.5,\xFF,\r\n");
  EXPECT_THAT(column("whole"),
              ElementsAre("1", "null", "-3", "9223372036854775807", "null", "null"));
  EXPECT_THAT(column("real"), ElementsAre("0.5r", "2r", "1000r", "0.5r", "null", "null"));
  EXPECT_THAT(column("zip"), ElementsAre("'007'", "'12'", "null", "'1'", "null", "null"));
  EXPECT_THAT(column("mixed"), ElementsAre("'1'", "'x'", "'007'", "'2.5'", "null", "null"));
  EXPECT_THAT(column("text"), ElementsAre("'a, \"b\"\nc'", "null", "' x '", "xff", "null", "null"));
  EXPECT_THAT(column("none"), ElementsAre("null", "null", "null", "null", "null", "null"));
}

TEST_F(AttachTest, NumbersThatDoNotFitMakeAColumnOfTexts) {
  for (const char* number :
       {"9223372036854775808", "1e999", "+1", "0x10", "inf", "nan", "1.", "-"}) {
    SCOPED_TRACE(number);
    attach_csv(std::string("id,a\ns000000,1\ns000001,") + number + "\n", {.replace = true});
    const bool is_number = std::string(number) == "1.";
    EXPECT_EQ(column("typeof(a)")[0], is_number ? "'real'" : "'text'");
  }
}

TEST_F(AttachTest, RowsAndSamplesThatDoNotMatchAreCounted) {
  const SideTable::Match match = attach_csv("id,a\ns000001,1\nother,2\ns000004,3\nmore,4\n");
  const SideTable::Match expected{"t", 4, 2, 6, 4, "other", "s000000"};
  EXPECT_EQ(match, expected);
  EXPECT_EQ(match_side_table(*Index::open(index_), "t"), expected);
  EXPECT_THAT(column("a"), ElementsAre("null", "1", "null", "null", "3", "null"));
}

TEST_F(AttachTest, AllSamplesWithAKeyHaveItsRow) {
  const std::vector<std::string> shards = test::write_shards(dir_, 1, 2);
  std::filesystem::copy_file(shards[0], dir_ / "copy.tar");
  build_index(index_, {shards[0], dir_ / "copy.tar"});
  const SideTable::Match match = attach_csv("id,a\ns000001,1\n");
  EXPECT_EQ(match.num_samples_without_row, 2U);
  EXPECT_THAT(column("a"), ElementsAre("null", "1", "null", "1"));
}

TEST_F(AttachTest, FilesThatCannotBeAttachedChangeNothing) {
  attach_csv("id,a\ns000000,1\n");
  const std::string before = test::read_file(index_ + ".side");
  const auto text = [&](const std::string& csv, SideTable::Options options = {}) {
    options.replace = true;
    return error_text([&] { attach_csv(csv, options); });
  };
  EXPECT_THAT(text(""), HasSubstr("the table is empty"));
  EXPECT_THAT(text("id,b\ns000000,1\ns000000,2\n"),
              HasSubstr("two rows have the key 's000000': rows 1 and 2 of"));
  EXPECT_THAT(text("id,b\ns000000,1\n,2\n"), HasSubstr("a row has no key: row 2 of"));
  EXPECT_THAT(text("id,b\ns000000,1,2\n"), HasSubstr("the record has 3 cells, the header has 2"));
  EXPECT_THAT(text("id,b\n\n\ns000000,\"1\n"), HasSubstr("no closing quote: line 4 of"));
  EXPECT_THAT(text("id,b\ns000000,\"1\"2\n"), HasSubstr("text after its closing quote: line 2"));
  EXPECT_THAT(text("key,b\ns000000,1\n"), HasSubstr("the table has no column 'id'"));
  EXPECT_THAT(text("id\ns000000\n"), HasSubstr("no columns to attach"));
  EXPECT_THAT(text("id,b,b\ns000000,1,1\n"), HasSubstr("two columns"));
  EXPECT_THAT(text("id,b,B\ns000000,1,1\n"), HasSubstr("two columns have the name 'b'"));
  EXPECT_THAT(text("id,key\ns000000,1\n"), HasSubstr("cannot have the name 'key'"));
  EXPECT_THAT(text("id,a b\ns000000,1\n"), HasSubstr("cannot have the name 'a b'"));
  EXPECT_THAT(text("id,b\nx,1\n"), HasSubstr("the first key of the table is 'x', the first key of "
                                             "the index is 's000000'"));
  EXPECT_THAT(text("id,b\ns000000," + std::string((1 << 20) + 1, 'x') + "\n"),
              HasSubstr("more than 1 MiB"));
  EXPECT_THAT(text("PAR1"), HasSubstr("Python only"));
  EXPECT_THAT(text("\x1F\x8B"), HasSubstr("neither CSV nor SQLite"));
  EXPECT_THAT(error_text([&] { attach_csv("id,b\ns000000,1\n"); }), HasSubstr("of this name"));
  EXPECT_EQ(error_code([&] { attach_table(index_, dir_ / "none.csv", {.key = "id"}); }),
            ErrorCode::kNotFound);
  EXPECT_EQ(error_code([&] { attach_table("s3://b/t.idx", dir_ / "t.csv", {.key = "id"}); }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(test::read_file(index_ + ".side"), before);
  EXPECT_THAT(dir_.list(), testing::Not(testing::Contains(HasSubstr(".tmp"))));
}

TEST_F(AttachTest, ColumnsAreChosenAndRenamed) {
  attach_csv("id,A B,b=c,,d\ns000000,1,2,3,4\n", {.columns = {"ratio=A B", "bc=b=c", "d"}});
  EXPECT_THAT(rows_of(index_, "SELECT ratio, bc, d FROM samples LIMIT 1"), ElementsAre("1 2 4"));
  attach_csv(",id,X\n0,s000000,5\n", {.name = "second"});
  EXPECT_THAT(rows_of(index_, "SELECT ratio, x FROM samples LIMIT 1"), ElementsAre("1 5"));
}

TEST_F(AttachTest, TsvAndSqliteAreRead) {
  attach_table(index_, file("a.tsv", "id\ta\ns000000\t\"1\t2\"\n"), {.key = "id"});
  EXPECT_EQ(column("a")[0], "'1\t2'");
  write_file(dir_ / "t.db", "");
  {
    sqlite::Database db = sqlite::Database::create(dir_ / "t.db");
    db.execute("CREATE TABLE \"a \"\"b\" (k, i, r, t, b, n)");
    db.execute("INSERT INTO \"a \"\"b\" VALUES ('s000001', 7, 0.5, '007', x'0078', NULL)");
    db.execute("CREATE TABLE two (k INTEGER, x)");
  }
  EXPECT_THAT(error_text([&] { attach_table(index_, dir_ / "t.db", {.key = "k"}); }),
              HasSubstr("has 2 tables"));
  EXPECT_THAT(
      error_text([&] { attach_table(index_, dir_ / "t.db", {.key = "k", .sql_table = "one"}); }),
      HasSubstr("no table 'one'"));
  attach_table(index_, dir_ / "t.db", {.key = "k", .name = "db", .sql_table = "a \"b"});
  EXPECT_EQ(rows_of(index_, "SELECT i, r, t, b, n FROM samples")[1], "7 0.5r '007' x0078 null");
}

TEST_F(AttachTest, IntegerKeysAreTheirDigits) {
  write_file(dir_ / "n.tar", test::TarBuilder().file("17.txt", "x").end().bytes());
  build_index(index_, {dir_ / "n.tar"});
  detail::SideTableWriter writer(index_, {"id", "a"}, "numbers", {.key = "id", .name = "numbers"});
  MetadataValue key, value;
  key.type = value.type = Query::Value::Type::kInteger;
  key.integer = value.integer = 17;
  writer.add(key, std::span(&value, 1));
  key = {};
  EXPECT_THAT(error_text([&] { writer.add(key, std::span(&value, 1)); }), HasSubstr("no key"));
  key.type = Query::Value::Type::kReal;
  EXPECT_THAT(error_text([&] { writer.add(key, std::span(&value, 1)); }), HasSubstr("fraction"));
  EXPECT_EQ(writer.finish().num_rows_without_sample, 0U);
  EXPECT_THAT(column("a"), ElementsAre("17"));
}

TEST_F(AttachTest, SideTablesServeDatasetsWithoutChangingTheirIdentity) {
  const Dataset before = Dataset::open(index_);
  const Hash128 view = before.where("sample IN (1, 4)").fingerprint();
  attach_csv("id,a,b\ns000001,1,x\ns000004,2.5,y\n");
  const Dataset data = Dataset::open(index_);
  EXPECT_EQ(data.fingerprint(), before.fingerprint());
  const Dataset selected = data.where("a > 0");
  EXPECT_EQ(selected.fingerprint(), view);
  EXPECT_THAT(selected.numbers("a"), ElementsAre(1, 2.5));
  const std::vector<std::uint64_t> numbers{1, 0};
  const auto values = selected.values("b", numbers);
  EXPECT_EQ(shown(values[0]) + shown(values[1]), "'y''x'");
  EXPECT_THAT(error_text([&] { static_cast<void>(data.numbers("a")); }), HasSubstr("sample 0"));
  EXPECT_THAT(error_text([&] { static_cast<void>(data.numbers("c")); }),
              HasSubstr("its columns are 'a', 'b'"));
  EXPECT_EQ(error_code([&] { static_cast<void>(before.numbers("a")); }), ErrorCode::kNotFound)
      << "an open dataset keeps its tables";
}

TEST_F(AttachTest, TwoColumnsMustNotHaveTheSameName) {
  build_index(index_, test::write_shards(dir_, 2, 3),
              {.content = {.columns = {{"cls", "cls", ""}}}});
  EXPECT_THAT(error_text([&] { attach_csv("id,cls\ns000000,1\n"); }),
              HasSubstr("the index already has a column 'cls'"));
  attach_csv("id,txt\ns000000,1\n");
  EXPECT_THAT(error_text([&] { attach_csv("id,txt\ns000000,1\n", {.name = "other"}); }),
              HasSubstr("the index already has a column 'txt'"));
  EXPECT_THAT(error_text([&] {
                build_index(index_, test::write_shards(dir_, 2, 3),
                            {.content = {.columns = {{"txt", "txt", ""}}}});
              }),
              HasSubstr("two metadata columns have the name 'txt'"));
  detach_table(index_, "t");
  build_index(index_, test::write_shards(dir_, 2, 3),
              {.content = {.columns = {{"txt", "txt", ""}}}});
}

TEST_F(AttachTest, AColumnThatTheIndexGotMeanwhileIsRefused) {
  detail::SideTableWriter writer(index_, {"id", "cls"}, "late", {.key = "id", .name = "late"});
  MetadataValue key, value;
  key.type = Query::Value::Type::kText;
  key.bytes = "s000000";
  writer.add(key, std::span(&value, 1));
  build_index(index_, test::write_shards(dir_, 2, 3),
              {.content = {.columns = {{"cls", "cls", ""}}}});
  EXPECT_THAT(error_text([&] { static_cast<void>(writer.finish()); }),
              HasSubstr("the index already has a column 'cls'"));
  EXPECT_TRUE(Index::open(index_)->side_tables().empty());
}

TEST_F(AttachTest, ABuildWithAColumnThatWasAttachedMeanwhileIsRefused) {
  static const std::string index = index_;
  static const std::string table = file("late.csv", "id,cls\ns000000,1\n");
  set_fault_handler([](const char* point) {
    const bool is_first = Index::open(index)->side_tables().empty();
    if (point == std::string_view("build.scan_shard") && is_first) {
      attach_table(index, table, {.key = "id"});
    }
  });
  const std::vector<std::string> shards = test::write_shards(dir_, 2, 3);
  const BuildOptions options{.threads = 0, .content = {.columns = {{"cls", "cls", ""}}}};
  EXPECT_THAT(error_text([&] { build_index(index_, shards, options); }),
              HasSubstr("two metadata columns have the name 'cls'"));
  set_fault_handler(nullptr);
  EXPECT_EQ(column("cls")[0], "1");
  detach_table(index_, "late");
  build_index(index_, shards, options);
}

TEST_F(AttachTest, TablesAreReplacedAndDetached) {
  attach_csv("id,a\ns000000,1\n", {.name = "one"});
  attach_csv("id,b\ns000000,2\n", {.name = "two"});
  attach_csv("id,c\ns000000,3\n", {.name = "one", .replace = true});
  EXPECT_EQ(rows_of(index_, "SELECT * FROM samples")[0].substr(0, 11), "0 's000000'");
  EXPECT_EQ(rows_of(index_, "SELECT b, c FROM samples")[0], "2 3");
  const auto tables = Index::open(index_)->side_tables();
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[0].name + tables[1].name, "onetwo");
  EXPECT_THAT(error_text([&] { detach_table(index_, "three"); }),
              HasSubstr("its side tables are 'one', 'two'"));
  detach_table(index_, "one");
  EXPECT_EQ(rows_of(index_, "SELECT b FROM samples")[0], "2");
  detach_table(index_, "two");
  EXPECT_FALSE(std::filesystem::exists(index_ + ".side"));
  EXPECT_EQ(error_code([&] { detach_table(index_, "two"); }), ErrorCode::kNotFound);
}

TEST_F(AttachTest, ConcurrentWritersLoseNoTable) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([this, i] {
      const std::string n = std::to_string(i);
      attach_table(index_, file("c" + n + ".csv", "id,c" + n + "\ns000000," + n + "\n"),
                   {.key = "id"});
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(rows_of(index_, "SELECT c0, c1, c2, c3 FROM samples")[0], "0 1 2 3");
}

TEST_F(AttachTest, DamageIsAnErrorAndNeverAnotherValue) {
  attach_csv("id,a,b\ns000000,1,x\ns000001,2,y\ns000005,3,\n");
  const std::string path = index_ + ".side", whole = test::read_file(path);
  const std::string sql = "SELECT a, b FROM samples";
  const std::vector<std::string> expected = rows_of(index_, sql);
  int errors = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_file(path, damaged);
    try {
      ASSERT_EQ(rows_of(index_, sql), expected) << at;
    } catch (const Error& e) {
      ++errors;
      ASSERT_TRUE(e.code() == ErrorCode::kCorruptIndex || e.code() == ErrorCode::kVersionMismatch)
          << at << ": " << e.what();
    }
    EXPECT_ANY_THROW(Index::open(index_)->validate()) << at;
  }
  EXPECT_GT(errors, 200);
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    write_file(path, whole.substr(0, size));
    EXPECT_EQ(error_code([&] { static_cast<void>(Index::open(index_)); }),
              ErrorCode::kCorruptIndex);
  }
}

TEST_F(AttachTest, AListWithARealNumberOfRowsIsDamaged) {
  attach_csv("id,a\ns000000,1\ns000001,2\ns000005,3\n");
  std::string bytes = test::read_file(index_ + ".side");
  const std::string rows = "\"rows\":3";
  const std::size_t at = bytes.rfind(rows);
  ASSERT_NE(at, std::string::npos);
  bytes.insert(at + rows.size(), ".5");
  detail::SideHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.file_bytes = bytes.size();
  header.list_bytes += 2;
  header.list_checksum = hash64(bytes.substr(header.list_offset, header.list_bytes));
  header.header_checksum = detail::side_header_checksum(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  write_file(index_ + ".side", bytes);
  EXPECT_THAT(error_text([&] { static_cast<void>(Index::open(index_)); }),
              HasSubstr("a number is malformed"));
}

TEST_F(AttachTest, ManySegmentsAreReadInAnyOrder) {
  std::string csv = "id,a,b\n";
  const unsigned kRows = 150'000;  // more than two segments
  for (unsigned i = kRows; i-- > 0;) {
    csv += numbered_key(i) + "," + std::to_string(i * 3) + ",text " + std::to_string(i) + "\n";
  }
  attach_csv(csv);
  EXPECT_THAT(column("a"), ElementsAre("0", "3", "6", "9", "12", "15"));
  EXPECT_EQ(column("b")[4], "'text 4'");
  Index::open(index_)->validate();
}

TEST_F(AttachTest, ReaderOfTheSpecificationReadsTheSame) {
  attach_csv("id,a,b\ns000001,1,x\nother,-2,\n");
  attach_csv("id,c\ns000001,0.5\n", {.name = "more"});
  const std::vector<std::string> lines = test::run_python(
      "tests/index/read_side_tables.py", {index_ + ".side", "t", "s000001", "missing"});
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_THAT(lines[0], HasSubstr(R"("columns": ["a", "b"])"));
  EXPECT_EQ(lines[1], R"({"key": "s000001", "values": [1, "x"]})");
  EXPECT_EQ(lines[2], R"({"key": "other", "values": [-2, null]})");
  EXPECT_EQ(lines[4], R"({"key": "s000001", "values": [0.5]})");
  EXPECT_EQ(lines[5], lines[1]);
  EXPECT_EQ(lines[6], "null");
}

/// tests/index/golden/tables.side was written by the first version.
TEST_F(AttachTest, GoldenFileIsReadAndItsTablesAreWrittenAgain) {
  const std::string golden =
      test::read_file(test::source_dir() + "/tests/index/golden/tables.side");
  write_file(index_ + ".side", golden);
  const auto expect_values = [&] {
    EXPECT_THAT(rows_of(index_, "SELECT whole, real, zip, text, score FROM samples"),
                ElementsAre("1 0.5r '007' 'a,\"b\"' null", "null null null null null",
                            "-3 1000r '12' xff 2.5r", "null null null null null",
                            "null 2r '1' 'z' null", "null null null null -1r"));
    Index::open(index_)->validate();
  };
  expect_values();
  std::filesystem::remove(index_ + ".side");
  attach_csv(
      "id,Whole,real,zip,text\n"
      "s000000,1,0.5,007,\"a,\"\"b\"\"\"\n"
      "s000004,,2,1,z\n"
      "s000002,-3,1e3,12,\xFF\n"
      "other,5,,3,\n");
  attach_csv("key,score\ns000005,-1\ns000002,2.5\n", {.key = "key", .name = "scores"});
  expect_values();
  const auto tables_in = [](const std::string& file) {
    return file.substr(64, file.find("{\"tables\"") - 64);
  };
  EXPECT_EQ(tables_in(test::read_file(index_ + ".side")), tables_in(golden));
}

TEST(CsvReaderTest, PiecesAtTheEndOfTheBufferAreWhole) {
  const TempDir dir;
  // Use cells of many lengths, so that each kind of token is cut by the end of a 1 MiB piece.
  for (const std::size_t shift : {0U, 1U, 2U, 3U, 4U, 5U, 6U}) {
    std::string text = "\xEF\xBB\xBFid,b\r\n";
    const std::size_t fill = (1U << 20) - text.size() - 10 + shift;
    text += std::string(fill, 'x') + ",\"a\"\"b,\r\n\"\r\nlast,\"\"";
    write_file(dir / "t.csv", text);
    CsvReader reader(dir / "t.csv", ',');
    std::vector<std::string_view> cells;
    ASSERT_TRUE(reader.next(cells));
    EXPECT_THAT(cells, ElementsAre("id", "b"));
    ASSERT_TRUE(reader.next(cells));
    EXPECT_EQ(cells[0].size(), fill);
    EXPECT_EQ(cells[1], "a\"b,\r\n");
    EXPECT_EQ(reader.line(), 2U);
    ASSERT_TRUE(reader.next(cells));
    EXPECT_THAT(cells, ElementsAre("last", ""));
    EXPECT_EQ(reader.line(), 4U);
    EXPECT_FALSE(reader.next(cells));
  }
}

std::atomic<int> countdown{0};

void die_at_zero(const char*) {
  if (countdown.fetch_sub(1) == 0) ::raise(SIGKILL);
}

/// Runs `call` in a forked process, which is killed at its fault point number `point`. Returns true
/// if the process ended before.
template <class Call>
bool in_child(int point, const Call& call) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    countdown = point;
    set_fault_handler(die_at_zero);
    try {
      call();
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status)) {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  return WIFEXITED(status);
}

/// A random chain of attaching, replacing, detaching and updating, some of them killed, against a
/// model of the side tables.
class SideTableChain {
 public:
  SideTableChain(std::uint64_t seed, std::ostream* log, test::Tally& tally)
      : dice_(seed), log_(log), tally_(tally), shards_(test::write_shards(dir_, 6, 4)) {
    build();
  }

  void run() {
    for (int step = 0; step < 20; ++step) {
      switch (dice_.below(8)) {
        case 0:
        case 1:
        case 2:
          attach();
          break;
        case 3:
          detach();
          break;
        case 4:
        case 5:
          build();
          break;
        default:
          check_where();
      }
      check();
    }
  }

 private:
  /// The values of a table's column by key, as shown().
  using Rows = std::map<std::string, std::string>;

  void say(const std::string& what) {
    ++tally_[what.substr(0, what.find(' '))];
    if (log_ != nullptr) *log_ << what << "\n";
  }

  void build() {
    first_ = dice_.below(3);
    num_shards_ = dice_.between(1, 6 - first_);
    say("build " + std::to_string(first_) + " " + std::to_string(num_shards_));
    const auto begin = shards_.begin() + static_cast<std::ptrdiff_t>(first_);
    build_index(index_, {begin, begin + static_cast<std::ptrdiff_t>(num_shards_)});
  }

  std::uint64_t first_sample() const { return first_ * 4; }
  std::uint64_t num_samples() const { return num_shards_ * 4; }

  void attach() {
    const std::string name = "t" + std::to_string(dice_.below(3));
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t i = 0; i < 30; ++i) {
      if (dice_.flip()) numbers.push_back(i);
    }
    dice_.shuffle(numbers);
    Rows rows;
    std::string csv = "k," + name + "\n";
    bool matches = false;
    for (const std::uint64_t number : numbers) {
      const std::string value = dice_.one_in(4) ? "" : std::to_string(dice_.below(10));
      csv += numbered_key(number) + "," + value + "\n";
      rows[numbered_key(number)] = value.empty() ? "null" : value;
      matches = matches || (number >= first_sample() && number < first_sample() + num_samples());
    }
    const std::string file = dir_ / (name + ".csv");
    write_file(file, csv);
    const bool replace = dice_.flip();
    const auto call = [&] { attach_table(index_, file, {.key = "k", .replace = replace}); };
    const bool exists = tables_.contains(name);
    if ((exists && !replace) || (!matches && !numbers.empty())) {
      say("refused " + name);
      test::must_throw<Error>(call, "attach " + name);
      return;
    }
    finish_or_kill("attach " + name, call, [&] { tables_[name] = rows; });
  }

  void detach() {
    if (tables_.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, rows] : tables_) names.push_back(name);
    const std::string name = dice_.one_of(names);
    finish_or_kill(
        "detach " + name, [&] { detach_table(index_, name); }, [&] { tables_.erase(name); });
  }

  /// Runs `call`, perhaps in a process that is killed. Then calls `apply` if it took effect.
  template <class Call, class Apply>
  void finish_or_kill(const std::string& what, const Call& call, const Apply& apply) {
    if (dice_.one_in(3)) {
      say("kill " + what);
      if (!in_child(static_cast<int>(dice_.below(6)), call)) {
        // The killed call may have taken effect or not. Choose the state that the index has;
        // check() then compares it completely.
        const auto before = tables_;
        if (!holds()) {
          apply();
          if (!holds()) tables_ = before;
        }
        return;
      }
    } else {
      say(what);
      call();
    }
    apply();
  }

  std::string value_of(const Rows& rows, std::uint64_t number) {
    const auto found = rows.find(numbered_key(number));
    return found == rows.end() ? "null" : found->second;
  }

  bool holds() {
    const auto index = Index::open(index_);
    std::set<std::string> names;
    for (const SideTable& table : index->side_tables()) names.insert(table.name);
    if (names.size() != tables_.size()) return false;
    for (const auto& [name, rows] : tables_) {
      if (!names.contains(name)) return false;
      const std::vector<std::string> found = rows_of(index_, "SELECT " + name + " FROM samples");
      for (std::uint64_t i = 0; i < num_samples(); ++i) {
        if (found.at(i) != value_of(rows, first_sample() + i)) return false;
      }
    }
    return true;
  }

  void check() {
    test::must(holds(), "values differ");
    const auto index = Index::open(index_);
    index->validate();
    for (const auto& [name, rows] : tables_) {
      const SideTable::Match match = match_side_table(*index, name);
      std::uint64_t matched = 0;
      for (std::uint64_t i = 0; i < num_samples(); ++i) {
        matched += rows.contains(numbered_key(first_sample() + i)) ? 1 : 0;
      }
      test::must_equal(match.num_rows, std::uint64_t{rows.size()}, "rows of " + name);
      test::must_equal(match.num_samples - match.num_samples_without_row, matched, "samples");
      test::must_equal(match.num_rows - match.num_rows_without_sample, matched, "rows");
    }
  }

  void check_where() {
    if (tables_.empty()) return;
    const auto& [name, rows] = *tables_.begin();
    say("where " + name);
    const Dataset view = Dataset::open(index_).where(name + " >= 5");
    std::vector<std::string> expected, found;
    for (std::uint64_t i = 0; i < num_samples(); ++i) {
      const std::string value = value_of(rows, first_sample() + i);
      if (value != "null" && value >= "5") expected.push_back(value);
    }
    for (const double number : view.numbers(name)) {
      found.push_back(std::to_string(static_cast<int>(number)));
    }
    test::must_equal(found, expected, "where");
  }

  test::Dice dice_;
  std::ostream* const log_;
  test::Tally& tally_;
  const TempDir dir_;
  const std::string index_ = dir_ / "t.idx";
  const std::vector<std::string> shards_;
  std::uint64_t first_ = 0;
  std::uint64_t num_shards_ = 0;
  std::map<std::string, Rows> tables_;
};

TEST(SideTableChainTest, RandomChainsMatchTheModel) {
  test::run_chains_of<SideTableChain>(20, 2000);
}

TEST(SideTableCrashTest, KilledAtEveryFaultPointLeavesTheOldOrTheNewTables) {
  const TempDir dir;
  const std::string index = dir / "t.idx";
  build_index(index, test::write_shards(dir, 1, 3));
  write_file(dir / "a.csv", "id,a\ns000000,1\n");
  write_file(dir / "b.csv", "id,b\ns000000,2\n");
  int points = 0;
  for (bool is_done = false; !is_done; ++points) {
    attach_table(index, dir / "a.csv", {.key = "id", .replace = true});
    is_done = in_child(points, [&] { attach_table(index, dir / "b.csv", {.key = "id"}); });
    EXPECT_EQ(rows_of(index, "SELECT a FROM samples")[0], "1");
    if (Index::open(index)->side_tables().size() == 2) detach_table(index, "b");
  }
  EXPECT_GE(points, 3);
  attach_table(index, dir / "a.csv", {.key = "id", .replace = true});
  EXPECT_THAT(dir.list(), testing::Not(testing::Contains(HasSubstr(".tmp")))) << "strays were left";
}

}  // namespace
}  // namespace shardwise
