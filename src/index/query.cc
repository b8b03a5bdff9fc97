#include "shardwise/index/query.h"

#include <sqlite3.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/assert.h"
#include "base/fork.h"
#include "base/spelling.h"
#include "base/text.h"
#include "index/claimed_index.h"
#include "index/query_functions.h"
#include "index/query_tables.h"
#include "index/scratch_files.h"
#include "index/sqlite.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

/// Opcodes between two calls of should_stop(). There are few, because a single opcode may be a
/// function over a whole value.
constexpr int kOpcodesBetweenTicks = 100;
/// Largest size of a value in bytes: twice that of the largest field that a column can contain.
constexpr int kMaxValueBytes = 2 << 20;
/// Largest pattern of LIKE and GLOB, which take time proportional to text times pattern.
constexpr int kMaxPatternBytes = 250;
/// Size of SQLite's sort buffer. It is sorted in one step, which cannot be cancelled.
constexpr std::uint64_t kSortInMemoryBytes = std::uint64_t{16} << 20;

constexpr std::string_view kCannotRun = "the query cannot be run: ";
constexpr std::string_view kOnlySelect = "only SELECT is allowed, in the SQL of SQLite";
constexpr std::string_view kOneCondition = "write one condition, e.g. cls = 7 AND width >= 256";

constexpr std::string_view kOtherFolder =
    "free some space in the folder for temporary files, or set TMPDIR to another folder";

/// The tables that a query may read: those of Shardwise, and SQLite's tables of JSON and numbers.
constexpr const char* kTables[] = {"samples", "members",   "shards",    "fields",
                                   "skipped", "json_each", "json_tree", "generate_series"};

/// Names of tables built into SQLite that a query must not read, because some of them reveal data
/// of this process.
using OtherTables = std::vector<std::string>;

OtherTables other_tables(const sqlite::Database& db) {
  OtherTables others;
  sqlite::Statement modules = db.prepare("PRAGMA module_list");
  while (modules.step()) {
    const std::string name = modules.bytes(0);
    const auto is_it = [&](const char* ours) { return name == ours; };
    if (std::ranges::none_of(kTables, is_it)) others.push_back(name);
  }
  return others;
}

/// load_extension executes code. The others take time proportional to the product of their
/// arguments' lengths, and cannot be cancelled.
constexpr const char* kDeniedFunctions[] = {"load_extension", "json_patch", "jsonb_patch"};

/// SQLite's authorizer: permits only reading, and only from tables that are not in `others`.
int authorize(void* others, int action, const char* first, const char* second, const char*,
              const char*) {
  switch (action) {
    case SQLITE_READ: {
      const auto is_it = [&](const std::string& other) {
        return first != nullptr && sqlite3_stricmp(first, other.c_str()) == 0;
      };
      return std::ranges::any_of(*static_cast<const OtherTables*>(others), is_it) ? SQLITE_DENY
                                                                                  : SQLITE_OK;
    }
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION: {
      const auto is_it = [&](const char* name) {
        return second != nullptr && sqlite3_stricmp(second, name) == 0;
      };
      return std::ranges::any_of(kDeniedFunctions, is_it) ? SQLITE_DENY : SQLITE_OK;
    }
    default:
      return SQLITE_DENY;
  }
}

/// Sets the limits that SQLite recommends for untrusted databases and SQL.
void limit(sqlite3* db, OtherTables& others) {
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, static_cast<int>(kMaxQueryBytes));
  sqlite3_limit(db, SQLITE_LIMIT_COLUMN, 1000);
  sqlite3_limit(db, SQLITE_LIMIT_EXPR_DEPTH, 200);
  sqlite3_limit(db, SQLITE_LIMIT_COMPOUND_SELECT, 20);
  sqlite3_limit(db, SQLITE_LIMIT_FUNCTION_ARG, 100);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, kMaxPatternBytes);
  sqlite3_limit(db, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
  sqlite3_set_authorizer(db, authorize, &others);
}

/// Restricts a connection to queries of kTables. SQLite creates a virtual table when a statement
/// first names it. Older versions use CREATE TABLE for this, which limit() forbids. Therefore
/// each table is named in a statement before limit() is called.
void make_ready(sqlite::Database& db, QueryTables& tables, OtherTables& others,
                const CancelToken& cancel) {
  tables.add_to(db.handle());
  sqlite::add_query_functions(db.handle(), cancel);
  for (const char* table : kTables) {
    db.execute("PRAGMA table_info(" + std::string(table) + ")");
  }
  sqlite3_db_config(db.handle(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db.handle(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // An unknown column in double quotes is an error, not a text of that name.
  sqlite3_db_config(db.handle(), SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  db.execute("PRAGMA temp_store = FILE");
  db.execute("PRAGMA cache_size = -" + std::to_string(kSortInMemoryBytes / 1024));
  others = other_tables(db);
  limit(db.handle(), others);
}

/// The remedy for a query that SQLite refused with this code and message.
std::string remedy_for(int code, std::string_view reason) {
  if (code == SQLITE_TOOBIG) return "use values of at most 2 MiB, and a query of at most 1 MiB";
  if (reason.find("no such column") != std::string_view::npos) {
    return spelled("`shardwise query INDEX .schema`") + " shows the columns; " +
           spelled("`shardwise index --column FIELD`") + " and " + spelled("`shardwise attach`") +
           " add columns";
  }
  if (reason.find("no such table") != std::string_view::npos) {
    return "the tables are samples, members, shards, fields and skipped";
  }
  return std::string(kOnlySelect);
}

/// SQLite's progress handler, called regularly while a query runs.
int should_stop(void* cancel) {
  ForkSection::give_way();
  return static_cast<const CancelToken*>(cancel)->is_cancelled() ? 1 : 0;
}

std::shared_ptr<const Index> with_records(std::shared_ptr<const Index> index) {
  IndexAccess::require_records(*index);
  return index;
}

}  // namespace

struct Query::Impl {
  Impl(std::shared_ptr<const Index> opened, const Query::Limits& limits)
      : index(with_records(std::move(opened))),
        tables(*index),
        scratch_bytes(limits.scratch_bytes),
        scratch(scratch_bytes),
        db(sqlite::Database::in_memory(scratch.vfs_name().c_str())) {
    const ForkSection section;
    make_ready(db, tables, others, cancel);
    sqlite3_progress_handler(db.handle(), kOpcodesBetweenTicks, should_stop, &cancel);
    scratch.stop_if_cancelled(cancel);
  }
  ~Impl() {
    const ForkSection section;
    sqlite3_finalize(statement);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[noreturn]] void fail(int code) {
    tables.rethrow();
    switch (code & 0xFF) {
      case SQLITE_NOMEM:
        throw std::bad_alloc();
      case SQLITE_INTERRUPT:
        throw Cancelled("the query was cancelled", in_quotes(index->path()), "");
      case SQLITE_FULL:
        if (scratch.were_too_small()) {
          throw InvalidArgument(
              "the query cannot be run: sorting and grouping need more than " +
                  human_bytes(scratch_bytes) + " of scratch files",
              in_quotes(index->path()),
              "select less with WHERE or LIMIT" +
                  if_there(", or allow more (", "Query::Limits::scratch_bytes", ")"));
        }
        throw Error(ErrorCode::kNoSpace, "no room for the scratch files of a query",
                    in_quotes(index->path()), kOtherFolder);
      case SQLITE_IOERR:
      case SQLITE_CANTOPEN:
        throw Error(ErrorCode::kIo, "cannot write the scratch files of a query",
                    in_quotes(index->path()) + " (" + sqlite3_errmsg(db.handle()) + ")",
                    kOtherFolder);
      default:
        break;
    }
    const std::string reason = sqlite3_errmsg(db.handle());
    throw InvalidArgument(std::string(kCannotRun) + escaped(reason), "",
                          remedy_for(code & 0xFF, reason));
  }

  void prepare(std::string_view sql) {
    const ForkSection section;
    const char* tail = nullptr;
    const int code = sqlite3_prepare_v2(db.handle(), sql.data(),
                                        static_cast<int>(std::min(sql.size(), kMaxQueryBytes + 1)),
                                        &statement, &tail);
    if (code != SQLITE_OK) fail(code);
    const std::string_view rest(tail, static_cast<std::size_t>(sql.data() + sql.size() - tail));
    if (statement == nullptr || rest.find_first_not_of(" \t\r\n;") != std::string_view::npos) {
      throw InvalidArgument(
          statement == nullptr ? "the text has no query" : "the text has more than one query",
          in_quotes(sql), "give one SELECT");
    }
    if (sqlite3_column_count(statement) == 0) {  // e.g. a REINDEX without effect
      throw InvalidArgument("the query cannot be run: not a SELECT", in_quotes(sql),
                            "give one SELECT");
    }
    if (sqlite3_bind_parameter_count(statement) > 0) {
      const char* const name = sqlite3_bind_parameter_name(statement, 1);
      throw InvalidArgument(std::string(kCannotRun) + "the parameter " +
                                in_quotes(name == nullptr ? "?" : name) + " has no value",
                            "", "replace the parameter by a value; write texts in single quotes");
    }
    for (int i = 0; i < sqlite3_column_count(statement); ++i) {
      const char* name = sqlite3_column_name(statement, i);
      columns.emplace_back(name == nullptr ? "" : name);
    }
  }

  const std::shared_ptr<const Index> index;
  QueryTables tables;
  const std::uint64_t scratch_bytes;
  CancelToken cancel = {};
  sqlite::ScratchFiles scratch;
  OtherTables others;  // must outlive the database
  sqlite::Database db;
  sqlite3_stmt* statement = nullptr;
  std::vector<std::string> columns;
  bool is_at_end = false;
};

Query::Query(std::shared_ptr<const Index> index, std::string_view sql)
    : Query(std::move(index), sql, Limits{}) {}

Query::Query(std::shared_ptr<const Index> index, std::string_view sql, const Limits& limits)
    : impl_(std::make_unique<Impl>(std::move(index), limits)) {
  impl_->prepare(sql);
}
Query::~Query() = default;
Query::Query(Query&&) noexcept = default;
Query& Query::operator=(Query&&) noexcept = default;

const std::vector<std::string>& Query::columns() const noexcept { return impl_->columns; }

void Query::set_cancel(const CancelToken& cancel) noexcept { impl_->cancel = cancel; }

bool Query::next() {
  if (impl_->is_at_end) return false;  // otherwise SQLite would begin again
  const ForkSection section;
  const int code = sqlite3_step(impl_->statement);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) impl_->fail(code);
  impl_->is_at_end = true;
  return false;
}

MetadataValue Query::value(std::size_t column) const noexcept {
  SHARDWISE_ASSERT(column < static_cast<std::size_t>(sqlite3_data_count(impl_->statement)));
  return sqlite::value_of(impl_->statement, static_cast<int>(column));
}

namespace {

/// Converts an error of the whole query to an error of the condition in it.
InvalidArgument error_of_condition(const InvalidArgument& error, std::string_view condition) {
  std::string text = error.what();
  if (!text.starts_with(kCannotRun)) {
    return {"the text is more than one condition", in_quotes(condition), kOneCondition};
  }
  text.replace(0, kCannotRun.size(), "the condition cannot be used: ");
  if (text.ends_with(kOnlySelect)) {
    text.replace(text.size() - kOnlySelect.size(), kOnlySelect.size(), kOneCondition);
  }
  return InvalidArgument(text);
}

/// Returns a query of the samples in [first, last) that satisfy `condition`.
/// Errors: InvalidArgument unless `condition` is a single expression.
Query query_of(const std::shared_ptr<const Index>& index, std::string_view condition,
               std::uint64_t first, std::uint64_t last) {
  // The line break ends a comment at the end of the condition.
  const std::string text = std::string(condition) + "\n";
  try {
    // First prepare the condition without brackets around it. This refuses a condition with
    // unbalanced brackets, e.g. 1) OR (1.
    static_cast<void>(Query(index, "SELECT 1 FROM samples WHERE " + text));
    return Query(index, "SELECT sample FROM samples WHERE sample >= " + std::to_string(first) +
                            " AND sample < " + std::to_string(last) + " AND (" + text +
                            ") ORDER BY sample");
  } catch (const InvalidArgument& error) {
    throw error_of_condition(error, condition);
  }
}

}  // namespace

std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                          std::string_view condition) {
  const std::uint64_t size = index->size();
  return select_samples(std::move(index), condition, 0, size);
}

std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                          std::string_view condition, std::uint64_t first,
                                          std::uint64_t last, const CancelToken& cancel) {
  last = std::min(last, index->size());
  first = std::min(first, last);
  Query query = query_of(index, condition, first, last);
  query.set_cancel(cancel);
  std::vector<std::uint64_t> samples;
  while (query.next()) samples.push_back(static_cast<std::uint64_t>(query.value(0).integer));
  return samples;
}

}  // namespace shardwise
