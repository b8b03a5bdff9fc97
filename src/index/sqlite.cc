#include "index/sqlite.h"

#include <sqlite3.h>

#include <cerrno>
#include <new>
#include <utility>

#include "base/error_types.h"
#include "base/fork.h"
#include "base/text.h"
#include "index/remedies.h"

namespace shardwise::sqlite {
namespace {

/// True if the latest failed system call on the database's file failed for lack of disk space.
bool is_out_of_space(sqlite3* db) {
  int error = 0;
  if (db == nullptr ||
      sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &error) != SQLITE_OK) {
    return false;
  }
  return is_no_room(error);
}

[[noreturn]] void fail(sqlite3* db, int code, const std::string& path) {
  const std::string reason = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  switch (code & 0xFF) {
    case SQLITE_NOMEM:
      throw std::bad_alloc();
    case SQLITE_IOERR:
      if (!is_out_of_space(db)) break;
      [[fallthrough]];
    case SQLITE_FULL:
      throw Error(ErrorCode::kNoSpace, "cannot write the index",
                  in_quotes(path) + " (" + reason + ")",
                  "free some space, raise the file size limit (ulimit -f), or choose "
                  "another place, then run again");
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      break;
    default:
      throw CorruptIndex("the index is damaged or not an index",
                         in_quotes(path) + " (" + reason + ")", rebuild_remedy(path));
  }
  throw Error(ErrorCode::kIo, "cannot write the index", in_quotes(path) + " (" + reason + ")",
              "check the disk and the permissions");
}

[[noreturn]] void wrong_type(const std::string& path) {
  throw CorruptIndex("the index is damaged", in_quotes(path) + " (a value has another type)",
                     rebuild_remedy(path));
}

void check(sqlite3* db, int code, const std::string& path) {
  if (code != SQLITE_OK) fail(db, code, path);
}

}  // namespace

bool is_text(std::string_view bytes) noexcept {
  return is_utf8(bytes) && bytes.find('\0') == std::string_view::npos;
}

bool is_no_room(int error) noexcept { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

MetadataValue value_of(sqlite3_stmt* statement, int column) noexcept {
  MetadataValue value;
  const auto bytes = [&] {
    const ForkSection section;
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement, column));
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
    return data == nullptr ? std::string_view() : std::string_view(data, size);
  };
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      value.type = ValueType::kInteger;
      value.integer = sqlite3_column_int64(statement, column);
      break;
    case SQLITE_FLOAT:
      value.type = ValueType::kReal;
      value.real = sqlite3_column_double(statement, column);
      break;
    case SQLITE_TEXT:
      value.type = ValueType::kText;
      value.bytes = bytes();
      break;
    case SQLITE_BLOB:
      value.type = ValueType::kBlob;
      value.bytes = bytes();
      break;
    default:
      break;
  }
  return value;
}

Statement::Statement(sqlite3* db, std::string_view sql, std::string path)
    : db_(db), path_(std::move(path)) {
  const ForkSection section;
  check(db, sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr),
        path_);
}

Statement::Statement(Statement&& other) noexcept
    : db_(other.db_),
      statement_(std::exchange(other.statement_, nullptr)),
      path_(std::move(other.path_)) {}

Statement::~Statement() {
  const ForkSection section;
  sqlite3_finalize(statement_);
}

Statement& Statement::bind(int index, std::int64_t value) {
  const ForkSection section;
  check(db_, sqlite3_bind_int64(statement_, index, value), path_);
  return *this;
}

Statement& Statement::bind(int index, std::string_view value) {
  const ForkSection section;
  const int code = is_text(value) ? sqlite3_bind_text64(statement_, index, value.data(),
                                                        value.size(), SQLITE_TRANSIENT, SQLITE_UTF8)
                                  : sqlite3_bind_blob64(statement_, index, value.data(),
                                                        value.size(), SQLITE_TRANSIENT);
  check(db_, code, path_);
  return *this;
}

bool Statement::step() {
  const ForkSection section;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  fail(db_, code, path_);
}

void Statement::run() {
  step();
  reset();
}

void Statement::reset() noexcept {
  const ForkSection section;
  sqlite3_reset(statement_);
}

std::int64_t Statement::integer(int column) const {
  const MetadataValue found = value(column);
  if (found.type != ValueType::kInteger) wrong_type(path_);
  return found.integer;
}

std::string Statement::bytes(int column) const {
  const MetadataValue found = value(column);
  if (found.type != ValueType::kText && found.type != ValueType::kBlob) wrong_type(path_);
  return std::string(found.bytes);
}

Database::Database(const char* name, std::string path, const char* vfs, bool read_only)
    : path_(std::move(path)) {
  const ForkSection section;
  const int access = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  const int code = sqlite3_open_v2(name, &db_, access | SQLITE_OPEN_NOMUTEX, vfs);
  if (code != SQLITE_OK) {
    sqlite3_close(db_);
    fail(nullptr, code, path_);
  }
}

Database Database::in_memory(const char* vfs) { return {":memory:", ":memory:", vfs}; }

/// Names such as "file:x?mode=memory" and ":memory:" are special to SQLite. A name that begins with
/// "/" or "./" is not.
static std::string plain_name(const std::string& path) {
  return path.starts_with('/') ? path : "./" + path;
}

Database Database::open_existing(const std::string& path) {
  Database db(plain_name(path).c_str(), path, nullptr, true);
  db.distrust();
  return db;
}

Database Database::create(const std::string& path) {
  Database db(plain_name(path).c_str(), path);
  db.execute("PRAGMA journal_mode = OFF");
  db.execute("PRAGMA synchronous = OFF");
  db.execute("PRAGMA locking_mode = EXCLUSIVE");
  return db;
}

Database Database::over_bytes(std::string_view bytes, const std::string& path) {
  const ForkSection section;
  Database db(":memory:", path);
  // SQLite's parameter is a mutable pointer, but with SQLITE_DESERIALIZE_READONLY it does not
  // write.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  check(db.db_, sqlite3_deserialize(db.db_, "main", data, size, size, SQLITE_DESERIALIZE_READONLY),
        path);
  db.distrust();
  constexpr int kOpcodes = 1000;  // 1,000 opcodes take much less than 1 ms
  sqlite3_progress_handler(
      db.db_, kOpcodes,
      [](void*) {
        ForkSection::give_way();
        return 0;
      },
      nullptr);
  return db;
}

void Database::distrust() {
  const ForkSection section;
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  execute("PRAGMA cell_size_check = ON");
}

Database::~Database() {
  const ForkSection section;
  sqlite3_close(db_);
}
Database::Database(Database&& other) noexcept
    : db_(std::exchange(other.db_, nullptr)), path_(std::move(other.path_)) {}

void Database::execute(const std::string& sql) {
  const ForkSection section;
  check(db_, sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), path_);
}

}  // namespace shardwise::sqlite
