// faults.md 20 to 22: reading a damaged, foreign or hostile index gives a typed error or correct
// data.

#include <filesystem>
#include <fstream>

#include <sqlite3.h>

#include "base/error_types.h"
#include "index/rows.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_builder.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;
using testing::HasSubstr;

struct Made {
  TempDir dir;
  std::string index = dir / "t.idx";
  std::string table;
  std::vector<std::string> shards = test::write_shards(dir, 3, 6);
  BuildOptions options;

  Made() {
    // With skipped members, columns and hashes, so that every byte of the index is used.
    test::write_file(shards[1], test::read_file(shards[1]).substr(0, 6 * 2048) +
                                    test::TarBuilder().file("README", "no field").end().bytes());
    options.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
    options.content.columns = {parse_column("cls"), parse_column("txt")};
    options.content.hashes = true;
    build_index(index, shards, options);
    for (const std::string& name : dir.list()) {
      if (name.ends_with(".table")) table = dir / name;
    }
  }
};

constexpr int kNumSamples = 18;

/// The results of all queries that an index supports, as text. A query that fails gives "error".
class Answers {
 public:
  explicit Answers(const std::string& path) {
    ask([&] {
      index_ = Index::open(path);
      return to_string(index_->fingerprint());
    });
    ask([&] { return summary(); });
    ask([&] {
      std::string text;
      for (const Index::SkippedMember& member : index().skipped(UINT64_MAX)) {
        text += std::to_string(member.shard) + "," + std::to_string(member.offset) + "," +
                member.name + "," + member.reason + "," + std::string(left_out_name(member.kind));
      }
      return text;
    });
    for (std::uint64_t shard = 0; shard < 3; ++shard) {
      ask([&] { return text_of(index().shard(shard)); });
    }
    for (int i = 0; i < kNumSamples; ++i) {
      ask([&] { return number(index().find(key(i))); });
      ask([&] { return std::to_string(index().find_all(key(i)).size()); });
      ask([&] { return content(i); });
    }
    ask([&] { return number(index().find("none")); });
    for (const char* table : {"shards", "fields", "skipped", "samples", "members"}) {
      ask([&] { return query("SELECT * FROM " + std::string(table)); });
    }
    for (const char* condition : {"key = 's000007'", "sample = 7", "shard = 1"}) {
      ask([&] { return query("SELECT * FROM samples WHERE " + std::string(condition)); });
    }
  }

  /// Returns the results that are not errors, and differ from those of the intact index.
  std::vector<std::string> wrong(const Answers& intact) const {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      if (answers_[i] != "error" && answers_[i] != intact.answers_[i]) {
        found.push_back(answers_[i] + " instead of " + intact.answers_[i]);
      }
    }
    return found;
  }
  bool has_errors() const {
    return std::find(answers_.begin(), answers_.end(), "error") != answers_.end();
  }

 private:
  template <class Call>
  void ask(const Call& call) {
    try {
      answers_.push_back(call());
    } catch (const Error&) {
      answers_.push_back("error");
    }
  }
  const Index& index() const {
    if (!index_) throw CorruptIndex("not open");
    return *index_;
  }
  static std::string key(int i) {
    char key[16];
    std::snprintf(key, sizeof key, "s%06d", i);
    return key;
  }
  static std::string number(std::optional<std::uint64_t> found) {
    return found ? std::to_string(*found) : "none";
  }
  template <class Row>
  static std::string text_of(const Row& row) {
    std::string text;
    for (const Cell& cell : to_cells(row)) text += std::to_string(cell.integer) + cell.bytes + "|";
    return text;
  }
  std::string summary() const {
    const Index::Summary all = index().summary();
    std::string text = all.built_at + all.built_with + to_string(all.content.policies);
    for (const std::uint64_t count : {all.num_shards, all.num_samples, all.num_members,
                                      all.shard_bytes, all.content_bytes, all.num_skipped}) {
      text += " " + std::to_string(count);
    }
    for (const Index::Summary::Field& field : all.fields) text += text_of(field);
    for (const Index::Column& column : all.content.columns) text += to_string(column);
    return text + std::to_string(all.content.hashes) + std::to_string(all.content.unique_keys);
  }
  std::string content(int i) {
    index();
    if (!data_) data_.emplace(index_);
    const Sample sample = (*data_)[static_cast<std::uint64_t>(i)];
    std::string text(sample.key());
    for (std::size_t f = 0; f < sample.num_fields(); ++f) {
      text += std::string(sample.field(f).name) + "=" + std::string(sample.field(f).bytes);
    }
    return text;
  }
  std::string query(const std::string& sql) const {
    index();
    Query rows(index_, sql);
    std::string text;
    while (rows.next()) {
      for (std::size_t c = 0; c < rows.columns().size(); ++c) {
        const Query::Value value = rows.value(c);
        text += std::to_string(value.integer) + std::to_string(value.real) +
                std::string(value.bytes) + "|";
      }
    }
    return text;
  }

  std::shared_ptr<const Index> index_;
  std::optional<Dataset> data_;
  std::vector<std::string> answers_;
};

/// Reads everything through the index. Either an Error is thrown, or all data is correct.
/// @return  true if all data was read and is correct.
bool read_all(const std::string& path) {
  try {
    const Dataset data = Dataset::open(path);
    if (data.size() != kNumSamples) throw std::logic_error("wrong size");
    for (std::uint64_t i = 0; i < data.size(); ++i) {
      const Sample sample = data[i];
      char key[16];
      std::snprintf(key, sizeof key, "s%06d", static_cast<int>(i));
      if (sample.key() != key || sample["txt"] != "text " + std::to_string(i) ||
          sample.integer("cls") != static_cast<std::int64_t>(i % 10)) {
        throw std::logic_error("wrong bytes in sample " + std::to_string(i));
      }
      if (const auto found = data.find(key); !found || found->index() != i) {
        throw std::logic_error("wrong sample found");
      }
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Changes a byte in place, because rewriting a file costs a flush on some file systems.
void put_byte(const std::string& path, std::size_t at, char byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

/// Flips a bit of every `step`-th byte of a file, one at a time. Calls `look` with the byte's
/// position each time.
template <class Look>
void with_each_byte_flipped(const std::string& path, const Look& look, std::size_t step = 1) {
  const std::string whole = test::read_file(path);
  for (std::size_t i = 0; i < whole.size(); i += step) {
    put_byte(path, i, static_cast<char>(whole[i] ^ (1 << (i % 8))));
    look(i);
    put_byte(path, i, whole[i]);
    ASSERT_FALSE(testing::Test::HasFailure()) << "byte " << i << " of " << path;
  }
  EXPECT_EQ(test::read_file(path), whole);
}

/// True if Index::validate() accepts the index.
bool check(const std::string& path) {
  try {
    Index::open(path)->validate();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// faults.md 20: after each flip, every query must fail or give the correct result. If check()
// accepts the index, all results must be correct.
TEST(IndexDamageTest, NoFlippedByteGivesAWrongAnswerAndCheckFindsEachThatMatters) {
  const Made made;
  const Answers intact(made.index);
  ASSERT_FALSE(intact.has_errors());
  // Flipping every byte takes minutes.
  const auto step = static_cast<std::size_t>(test::repeats(7, 1));
  for (const std::string& file : {made.index, made.table}) {
    int flips = 0;
    int harmless = 0;
    with_each_byte_flipped(
        file,
        [&](std::size_t) {
          ++flips;
          const Answers answers(made.index);
          EXPECT_THAT(answers.wrong(intact), testing::IsEmpty());
          const bool passes = check(made.index);
          EXPECT_FALSE(passes && answers.has_errors()) << "check() let damage pass";
          harmless += passes ? 1 : 0;
        },
        file == made.index ? step : 1);
    std::printf("%s: %d of %d flips touch nothing that is read\n", file.c_str(), harmless, flips);
    if (file == made.table) {
      EXPECT_EQ(harmless, 0);
    }
    EXPECT_TRUE(read_all(made.index));
  }
}

TEST(IndexDamageTest, EveryTruncationIsATypedErrorOrHarmless) {
  const Made made;
  for (const std::string& file : {made.index, made.table}) {
    const std::string whole = test::read_file(file);
    for (std::size_t size = whole.size(); size-- > 0;) {
      std::filesystem::resize_file(file, size);
      EXPECT_FALSE(read_all(made.index)) << "cut to " << size;
    }
    test::write_file(file, whole);
    EXPECT_TRUE(read_all(made.index));
  }
}

TEST(IndexDamageTest, ZeroedPagesAreTypedErrorsOrHarmless) {
  const Made made;
  for (const std::string& file : {made.index, made.table}) {
    const std::string whole = test::read_file(file);
    for (std::size_t at = 0; at < whole.size(); at += 512) {
      std::string bytes = whole;
      bytes.replace(at, std::min<std::size_t>(512, whole.size() - at),
                    std::min<std::size_t>(512, whole.size() - at), '\0');
      test::write_file(file, bytes);
      read_all(made.index);
    }
    test::write_file(file, whole);
  }
}

/// Runs SQL on the catalogue, as any SQLite tool could.
void run_sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
  sqlite3_close(db);
}

TEST(IndexDamageTest, AnotherFormatVersionIsSaidSo) {
  for (const char* version : {"0", "1", "2", "3", "999"}) {
    const Made made;
    run_sql(made.index, std::string("PRAGMA user_version = ") + version);
    EXPECT_EQ(test::error_code([&] { Index::open(made.index); }), ErrorCode::kVersionMismatch);
    const std::string text = test::error_text([&] { Index::open(made.index); });
    EXPECT_THAT(text, testing::AllOf(HasSubstr(std::string("format version ") + version),
                                     HasSubstr("reads version 4")));
    EXPECT_THAT(text,
                testing::AllOf(HasSubstr("build the index again"), HasSubstr("name its shards"),
                               HasSubstr("`shardwise index -o INDEX SOURCE`"),
                               HasSubstr("tokens stay valid")));
    EXPECT_EQ(build_index(made.index, made.shards, made.options).shards_scanned, 3U)
        << "and it can be";
    EXPECT_TRUE(read_all(made.index));
  }
}

TEST(IndexDamageTest, OtherFilesAreNoIndex) {
  const TempDir dir;
  EXPECT_EQ(test::error_code([&] { Index::open(dir / "none.idx"); }), ErrorCode::kNotFound);
  test::write_file(dir / "empty", "");
  test::write_file(dir / "text", "not an index");
  const auto shards = test::write_shards(dir, 1, 1);
  for (const std::string& path : {dir / "empty", dir / "text", shards[0]}) {
    EXPECT_THAT(test::error_text([&] { Index::open(path); }),
                HasSubstr("not a Shardwise index: '" + path));
  }
  run_sql(dir / "other.db", "CREATE TABLE t (x)");
  EXPECT_THAT(test::error_text([&] { Index::open(dir / "other.db"); }),
              testing::AllOf(HasSubstr("SQLite database"), HasSubstr("not a Shardwise index")));
  EXPECT_EQ(test::error_code([&] { Index::open(dir.path()); }), ErrorCode::kInvalidArgument);
}

TEST(IndexDamageTest, HostileSqlInTheCatalogueIsRefused) {
  const char* attacks[] = {
      "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM shards; END",
      "CREATE VIEW v AS SELECT * FROM shards",
      "ALTER TABLE shards RENAME TO old; CREATE VIEW shards AS SELECT * FROM old",
      "CREATE INDEX i ON shards (url)",
      "UPDATE shards SET url = '/etc/passwd'",
      "UPDATE shards SET size = -1",
      "UPDATE shards SET first_sample = 9223372036854775807",
      "UPDATE shards SET segment_checksum = 'x'",
      "UPDATE shards SET mtime_ns = 'never'",
      "DELETE FROM shards",
      "UPDATE meta SET value = '../../../etc/passwd' WHERE name = 'table_file'",
      "UPDATE meta SET value = '-5' WHERE name = 'num_samples'",
      "DELETE FROM meta",
  };
  for (const char* attack : attacks) {
    const Made made;
    run_sql(made.index, attack);
    EXPECT_FALSE(read_all(made.index)) << attack;
  }
}

TEST(IndexDamageTest, ATableOfAnotherIndexIsRefused) {
  const Made one;
  const TempDir other_dir;
  auto others = test::write_shards(other_dir, 4, 6);
  others.erase(others.begin());
  build_index(other_dir / "o.idx", others);
  for (const std::string& name : other_dir.list()) {
    if (name.ends_with(".table")) {
      std::filesystem::copy_file(other_dir / name, one.table,
                                 std::filesystem::copy_options::overwrite_existing);
    }
  }
  // The counts and offsets are equal; only the keys differ.
  EXPECT_FALSE(read_all(one.index));
}

TEST(IndexDamageTest, AMissingTableIsNamed) {
  const Made made;
  std::filesystem::remove(made.table);
  EXPECT_THAT(test::error_text([&] { Index::open(made.index); }),
              testing::AllOf(HasSubstr("offset table is missing"),
                             HasSubstr("'" + made.index + "'"), HasSubstr("'" + made.table)));
}

}  // namespace
}  // namespace shardwise
