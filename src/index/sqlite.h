#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "index/offset_table.h"
#include "shardwise/index/query.h"

struct sqlite3;
struct sqlite3_stmt;

namespace shardwise::sqlite {

// SQLite has locks of its own for all connections together, and takes no care of fork(). So every
// call of it is within a ForkSection, here and elsewhere.

/// A value of a statement's row; text and blobs are valid until its next step.
MetadataValue value_of(sqlite3_stmt* statement, int column) noexcept;

/// True if `error`, an errno, says that there is no room to write.
bool is_no_room(int error) noexcept;

/// A prepared statement. One thread. Errors as Database.
class Statement {
 public:
  Statement(sqlite3* db, std::string_view sql, std::string path);
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;

  /// Parameters count from 1.
  Statement& bind(int index, std::int64_t value);
  /// Text if it is UTF-8, a blob otherwise: names are bytes. Copied.
  Statement& bind(int index, std::string_view value);

  /// True if there is a row; false at the end.
  bool step();
  /// Runs a statement without rows, and makes it ready to run again.
  void run();
  void reset() noexcept;

  /// Columns count from 0. Of another type than asked for: CorruptIndex.
  std::int64_t integer(int column) const;
  std::string bytes(int column) const;
  /// A value of any type; text and blobs are valid until the next step() or reset().
  MetadataValue value(int column) const noexcept { return value_of(statement_, column); }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  std::string path_;
};

/// A database connection. One thread. SQLite's codes become errors: CorruptIndex for damage,
/// kNoSpace for a full disk, std::bad_alloc for no memory, kIo for the rest; the text names `path`.
class Database {
 public:
  /// Opens an existing, empty file for writing, without a journal: the caller makes it appear
  /// whole.
  [[nodiscard]] static Database create(const std::string& path);
  /// A database that holds nothing, for its functions and virtual tables. `vfs` is where it writes
  /// temporary files; null: SQLite's default.
  [[nodiscard]] static Database in_memory(const char* vfs = nullptr);
  /// A read-only database over bytes in memory, which must outlive it. Nothing in it is trusted: no
  /// schema code runs, cells are checked. A long step gives way to fork(), unless the thread is in
  /// a section of its own.
  [[nodiscard]] static Database over_bytes(std::string_view bytes, const std::string& path);
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&&) = delete;

  /// The connection itself, for calls that have no place here, such as virtual tables.
  sqlite3* handle() const noexcept { return db_; }
  void execute(const std::string& sql);
  Statement prepare(std::string_view sql) const { return Statement(db_, sql, path_); }

 private:
  /// Opens for writing what SQLite calls `name`. Nothing can fail once the connection is there.
  Database(const char* name, std::string path, const char* vfs = nullptr);

  sqlite3* db_ = nullptr;
  std::string path_;
};

}  // namespace shardwise::sqlite
