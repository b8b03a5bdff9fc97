#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/fork.h"
#include "base/mapped_file.h"
#include "index/sqlite.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/index.h"

namespace shardwise {

// The catalogue: a SQLite database with application_id kApplicationId and user_version
// kIndexVersion, specified in docs/formats/index.md. It is written once, under a temporary name,
// and never changed. The index exists as soon as the catalogue is renamed to the index's path.
//
//   meta     one row per name: the table's name, how it was built, the shards' common URL, the
//            totals, and `checksum`
//   shards   one row per shard           | `checksum` of a row is over the rest of the row, and
//   fields   one row per field           | `meta` has the number of rows: see rows.h
//   skipped  one row per skipped member
//
// Names and paths are text if they are UTF-8, blobs otherwise. Readers compare the schema verbatim,
// map the file, and pass it to SQLite as read-only memory.

inline constexpr std::int32_t kApplicationId = 0x53445731;  // "SDW1"

/// The content of a catalogue's table `meta`.
struct CatalogueMeta {
  std::string table_file;  ///< name of the offset table, in the folder of the catalogue
  std::uint64_t table_checksum = 0;
  std::uint64_t num_fields = 0;
  /// The sources that were expanded to the shards, if they may expand to other shards later (see
  /// SourceList). Like URLs of shards, they are relative to the index's directory.
  std::vector<std::string> sources;
  /// The summary without `fields`. In the file, URLs of shards are relative to `url_base` (see
  /// UrlBase). In memory they are complete.
  Index::Summary summary;
};

/// An opened catalogue. Threads: internally synchronised.
class Catalogue {
 public:
  /// Errors: NotFound; CorruptIndex; VersionMismatch.
  explicit Catalogue(const std::string& path);

  /// True if the file at `path` looks like a catalogue of any version, even if it is truncated. A
  /// build replaces only such a file, because any other file may be the user's.
  [[nodiscard]] static bool looks_like_one(const std::string& path);

  const CatalogueMeta& meta() const noexcept { return meta_; }
  /// The mapped file.
  std::string_view bytes() const noexcept { return file_.bytes(); }
  const FileIdentity& identity() const noexcept { return file_.identity(); }
  /// Returns the shard with its complete URL. Its path equals its URL. REQUIRES: shard <
  /// meta().summary.num_shards.
  Index::Shard shard(std::uint64_t shard) const;
  std::vector<Index::Summary::Field> fields() const;
  /// The first `limit` skipped members.
  std::vector<Index::SkippedMember> skipped(std::uint64_t limit) const;
  /// Reads every row and page. Errors: CorruptIndex; Cancelled.
  void validate(const CancelToken& cancel) const;

 private:
  // Parts of the constructor. They take no lock, because no other thread has a reference to this
  // object yet.
  void require_version_and_schema() SHARDWISE_REQUIRES(mutex_);
  void read_meta() SHARDWISE_REQUIRES(mutex_);
  /// Calls `use` with rows 0 to `count` - 1 of a table. Errors: CorruptIndex.
  template <class Row, class Use>
  void for_first_rows(const sqlite::Database& db, std::uint64_t count, const Use& use) const;
  /// Replaces the row's stored url by the complete URL. Errors: CorruptIndex.
  void complete(Index::Shard& row) const;

  std::string path_;
  MappedFile file_;
  mutable Mutex mutex_;
  sqlite::Database db_ SHARDWISE_GUARDED_BY(mutex_);
  std::unique_ptr<sqlite::Statement> select_shard_ SHARDWISE_GUARDED_BY(mutex_);
  CatalogueMeta meta_;
};

/// Writes a catalogue. It does not appear under its name before commit(). Threads: one.
class CatalogueWriter {
 public:
  /// @param url_base  base of the stored URLs of shards; may be empty.
  CatalogueWriter(const std::string& path, std::string url_base);

  const File& file() noexcept { return file_.file(); }

  /// @param shard  with its complete URL.
  void add_shard(Index::Shard shard);
  void add_field(const Index::Summary::Field& field);
  void add_skipped(const Index::SkippedMember& skipped);
  /// Writes the rest, and syncs the file, so that commit() cannot fail for lack of disk space. Sets
  /// the `url_base` of `meta` to that of the writer.
  void finish(CatalogueMeta meta);
  /// Renames the file. The index then exists.
  void commit() { file_.commit(); }

 private:
  /// The rows of one table, in order of their numbers.
  template <class Row>
  struct Table {
    std::unique_ptr<sqlite::Statement> insert;
    std::uint64_t num_rows = 0;
    void open(const sqlite::Database& db);
    void add(const Row& row);
  };

  const std::string url_base_;
  AtomicFile file_;
  std::unique_ptr<sqlite::Database> db_;
  Table<Index::Shard> shards_;
  Table<Index::Summary::Field> fields_;
  Table<Index::SkippedMember> skipped_;
};

}  // namespace shardwise
