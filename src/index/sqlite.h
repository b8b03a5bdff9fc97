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

// SQLite has locks that all connections share, and that a fork() could leave locked in the child.
// Every call of SQLite in the library is therefore within a ForkSection.

/// The first bytes of a database file.
inline constexpr std::string_view kMagic("SQLite format 3\0", 16);

/// True if values with these bytes are texts: UTF-8 without NUL. Others are blobs.
bool is_text(std::string_view bytes) noexcept;

/// A value of a statement's row. Text and blobs are valid until the next step.
MetadataValue value_of(sqlite3_stmt* statement, int column) noexcept;

/// True if `error`, an errno, means that the disk, a quota or a file size limit is exhausted.
bool is_no_room(int error) noexcept;

/// A prepared statement. Threads: one. Errors: those of Database.
class Statement {
 public:
  Statement(sqlite3* db, std::string_view sql, std::string path);
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;

  /// Parameters count from 1.
  Statement& bind(int index, std::int64_t value);
  /// Binds text if the bytes are UTF-8, else a blob. The bytes are copied.
  Statement& bind(int index, std::string_view value);

  /// Moves to the next row. Returns false at the end.
  bool step();
  /// Runs a statement without rows, and resets it.
  void run();
  void reset() noexcept;

  /// Columns count from 0. Errors: CorruptIndex if the column has another type.
  std::int64_t integer(int column) const;
  std::string bytes(int column) const;
  /// A value of any type. Text and blobs are valid until the next step() or reset().
  MetadataValue value(int column) const noexcept { return value_of(statement_, column); }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  std::string path_;
};

/// A database connection.
/// Threads: one.
/// Errors: CorruptIndex for damage, kNoSpace for a full disk, std::bad_alloc, kIo for other codes
///   of SQLite. The message names `path`.
class Database {
 public:
  /// Opens an existing empty file for writing, without a journal. The caller must rename the file
  /// when it is complete.
  [[nodiscard]] static Database create(const std::string& path);
  /// Opens a database of the user for reading. Its content is untrusted, as with over_bytes().
  [[nodiscard]] static Database open_existing(const std::string& path);
  /// An empty database, for its functions and virtual tables.
  /// @param vfs  file system for temporary files; null means SQLite's default.
  [[nodiscard]] static Database in_memory(const char* vfs = nullptr);
  /// A read-only database over bytes in memory. The bytes must outlive it. They are untrusted:
  /// SQLite runs no code of the schema, and checks cells. A long step lets other threads fork,
  /// unless this thread is in an outer ForkSection.
  [[nodiscard]] static Database over_bytes(std::string_view bytes, const std::string& path);
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&&) = delete;

  /// The connection, for calls that this class does not wrap, e.g. virtual tables.
  sqlite3* handle() const noexcept { return db_; }
  void execute(const std::string& sql);
  Statement prepare(std::string_view sql) const { return Statement(db_, sql, path_); }

 private:
  /// Opens the database with the SQLite name `name`. Before it throws, it closes the connection,
  /// because the destructor is then not called.
  Database(const char* name, std::string path, const char* vfs = nullptr, bool read_only = false);
  /// Makes SQLite run no code of the schema, and check cells.
  void distrust();

  sqlite3* db_ = nullptr;
  std::string path_;
};

}  // namespace shardwise::sqlite
