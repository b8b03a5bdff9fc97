#include "shardwise/index/query.h"

#include <sqlite3.h>

#include <atomic>
#include <exception>
#include <new>
#include <utility>

#include "index/index_files.h"
#include "index/sample_tables.h"
#include "index/sqlite.h"
#include "shardwise/base/error.h"
#include "shardwise/base/file.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

constexpr int kOpcodesBetweenTicks = 20'000;

/// Lets reading through, and nothing else.
int authorize(void*, int action, const char*, const char* second, const char*, const char*) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION:
      return second != nullptr && sqlite3_stricmp(second, "load_extension") == 0 ? SQLITE_DENY
                                                                                 : SQLITE_OK;
    default:
      return SQLITE_DENY;
  }
}

/// As SQLite advises for databases and SQL that are not trusted.
void limit(sqlite3* db) {
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 26);
  sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, 1 << 20);
  sqlite3_limit(db, SQLITE_LIMIT_COLUMN, 1000);
  sqlite3_limit(db, SQLITE_LIMIT_EXPR_DEPTH, 200);
  sqlite3_limit(db, SQLITE_LIMIT_COMPOUND_SELECT, 20);
  sqlite3_limit(db, SQLITE_LIMIT_FUNCTION_ARG, 100);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000);
  sqlite3_limit(db, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
  sqlite3_set_authorizer(db, authorize, nullptr);
}

/// SQL's shard_path(url): where a shard's stored url leads. `home` is the index's directory.
void shard_path(sqlite3_context* context, int, sqlite3_value** arguments) {
  try {
    const auto& home = *static_cast<const std::string*>(sqlite3_user_data(context));
    const auto* const bytes = static_cast<const char*>(sqlite3_value_blob(arguments[0]));
    const int size = sqlite3_value_bytes(arguments[0]);
    const std::string path =
        resolve_url(home, bytes == nullptr ? std::string()
                                           : std::string(bytes, static_cast<std::size_t>(size)));
    if (is_utf8(path)) {
      sqlite3_result_text64(context, path.data(), path.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
    } else {
      sqlite3_result_blob64(context, path.data(), path.size(), SQLITE_TRANSIENT);
    }
  } catch (const std::exception&) {
    sqlite3_result_error_nomem(context);
  }
}

/// Puts a view in front of the catalogue's table of shards, in which their paths are as Index gives
/// them. The table has them relative to the index.
void resolve_shards(sqlite::Database& db, const std::string& home) {
  sqlite3_create_function_v2(
      db.handle(), "shard_path", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
      const_cast<std::string*>(&home), shard_path, nullptr, nullptr, nullptr);
  db.execute("PRAGMA temp_store = MEMORY");
  db.execute(
      "CREATE TEMP VIEW shards AS SELECT shard, shard_path(url) AS url, size, mtime_ns, validator, "
      "first_sample, samples, members, not_samples, archives, trailing_bytes, end_marker, "
      "compression, expanded_size, content_hash, header_hash, first_header_hash, "
      "segment_checksum, checksum FROM main.shards");
}

int should_stop(void* cancel) {
  const auto* flag = *static_cast<const std::atomic<bool>**>(cancel);
  return flag != nullptr && flag->load(std::memory_order_relaxed) ? 1 : 0;
}

}  // namespace

struct Query::Impl {
  explicit Impl(std::shared_ptr<const Index> opened)
      : index(std::move(opened)),
        home(directory_of(index->path())),
        db(sqlite::Database::over_bytes(index->catalogue_bytes(), index->path())) {
    register_sample_tables(db.handle(), *index, &error);
    // SQLite makes such tables when they are first named, by a CREATE TABLE that limit() forbids.
    for (const char* sql : {"SELECT 1 FROM samples", "SELECT 1 FROM members"}) db.prepare(sql);
    resolve_shards(db, home);
    limit(db.handle());
    sqlite3_progress_handler(db.handle(), kOpcodesBetweenTicks, should_stop, &cancel);
  }
  ~Impl() { sqlite3_finalize(statement); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[noreturn]] void fail(int code) {
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
    switch (code & 0xFF) {
      case SQLITE_NOMEM:
        throw std::bad_alloc();
      case SQLITE_INTERRUPT:
        throw Cancelled("the query was cancelled", in_quotes(index->path()), "");
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        throw CorruptIndex("the index is damaged",
                           in_quotes(index->path()) + " (" + sqlite3_errmsg(db.handle()) + ")",
                           "build the index again with `shardwise index`");
      default:
        break;
    }
    throw InvalidArgument("the query cannot be run: " + escaped(sqlite3_errmsg(db.handle())), "",
                          "tables are samples, members, shards, fields and skipped; only SELECT "
                          "is allowed");
  }

  void prepare(std::string_view sql) {
    const char* tail = nullptr;
    const int code = sqlite3_prepare_v2(db.handle(), sql.data(), static_cast<int>(sql.size()),
                                        &statement, &tail);
    if (code != SQLITE_OK) fail(code);
    const std::string_view rest(tail, static_cast<std::size_t>(sql.data() + sql.size() - tail));
    if (statement == nullptr || rest.find_first_not_of(" \t\r\n;") != std::string_view::npos) {
      throw InvalidArgument(statement == nullptr ? "no query" : "more than one query",
                            in_quotes(sql), "give one SELECT");
    }
    for (int i = 0; i < sqlite3_column_count(statement); ++i) {
      const char* name = sqlite3_column_name(statement, i);
      columns.emplace_back(name == nullptr ? "" : name);
    }
  }

  const std::shared_ptr<const Index> index;
  std::exception_ptr error;  // thrown by a table, under SQLite
  const std::string home;    // of the index
  sqlite::Database db;
  sqlite3_stmt* statement = nullptr;
  std::vector<std::string> columns;
  const std::atomic<bool>* cancel = nullptr;
};

Query::Query(std::shared_ptr<const Index> index, std::string_view sql)
    : impl_(std::make_unique<Impl>(std::move(index))) {
  impl_->prepare(sql);
}
Query::~Query() = default;
Query::Query(Query&&) noexcept = default;
Query& Query::operator=(Query&&) noexcept = default;

const std::vector<std::string>& Query::columns() const noexcept { return impl_->columns; }

void Query::set_cancel(const std::atomic<bool>* cancel) noexcept { impl_->cancel = cancel; }

bool Query::next() {
  const int code = sqlite3_step(impl_->statement);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) impl_->fail(code);
  return false;
}

MetadataValue Query::value(std::size_t column) const noexcept {
  return sqlite::value_of(impl_->statement, static_cast<int>(column));
}

std::vector<std::uint64_t> select_samples(std::shared_ptr<const Index> index,
                                          std::string_view condition) {
  // The line break ends a comment, were there one.
  const std::uint64_t size = index->size();
  Query query(std::move(index), "SELECT sample FROM samples WHERE (" + std::string(condition) +
                                    "\n) ORDER BY sample");
  std::vector<std::uint64_t> samples;
  while (query.next()) {
    const MetadataValue value = query.value(0);
    const auto sample = static_cast<std::uint64_t>(value.integer);
    if (value.type != ValueType::kInteger || sample >= size ||
        (!samples.empty() && sample <= samples.back())) {
      throw InvalidArgument("that is more than a condition", in_quotes(condition),
                            "write one as behind WHERE: cls = 7 AND width >= 256");
    }
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace shardwise
