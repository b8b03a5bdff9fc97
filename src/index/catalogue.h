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
#include "shardwise/base/hash.h"
#include "shardwise/index/index.h"

namespace shardwise {

// The catalogue: a SQLite database with application_id kApplicationId and user_version
// kIndexVersion, specified in docs/formats/index.md. It is written once, under a temporary name,
// and never changed. The index exists once the catalogue is renamed to the index's path.
//
//   meta     one row a name: the table's name, how it was built, the shards' common URL, the
//            totals, and `checksum`
//   shards   one row a shard           | `checksum` of a row is over the rest of the row, and
//   fields   one row a field           | `meta` has the number of rows: see rows.h
//   skipped  one row a skipped member
//
// Names and paths are text if they are UTF-8, blobs otherwise. Readers compare the schema verbatim,
// map the file, and pass it to SQLite as read-only memory.

inline constexpr std::int32_t kApplicationId = 0x53445731;  // "SDW1"

/// The content of a catalogue, except for its rows.
struct CatalogueMeta {
  std::string table_file;  ///< name beside the catalogue
  std::uint64_t table_checksum = 0;
  std::uint64_t num_fields = 0;
  /// The words that named the shards, if they may match other shards later (see SourceList).
  /// Relative to the index's directory, as shards' URLs are.
  std::vector<std::string> sources;
  /// Without its fields. Rows are stored relative to its `url_base` (UrlBase), but have whole URLs
  /// in memory.
  Index::Summary summary;
};

/// An opened catalogue. Threads: internally synchronised.
class Catalogue {
 public:
  /// Errors: NotFound; CorruptIndex; VersionMismatch.
  explicit Catalogue(const std::string& path);

  /// True if this library wrote the file at `path`, in any version, even if it is truncated. Any
  /// other file may belong to the user, and is never replaced.
  [[nodiscard]] static bool looks_like_one(const std::string& path);

  const CatalogueMeta& meta() const noexcept { return meta_; }
  /// The mapped file.
  std::string_view bytes() const noexcept { return file_.bytes(); }
  const FileIdentity& identity() const noexcept { return file_.identity(); }
  /// The shard, with its whole URL; its path equals its URL. REQUIRES: shard <
  /// meta().summary.num_shards.
  Index::Shard shard(std::uint64_t shard) const;
  std::vector<Index::Summary::Field> fields() const;
  /// The first `limit` skipped members.
  std::vector<Index::SkippedMember> skipped(std::uint64_t limit) const;
  /// Reads every row and page. Errors: CorruptIndex.
  void validate() const;

 private:
  // Parts of the constructor. They take no lock, since no other thread has a reference yet.
  void require_version_and_schema() SHARDWISE_REQUIRES(mutex_);
  void read_meta() SHARDWISE_REQUIRES(mutex_);
  /// Calls `use` with rows 0 to `count` - 1 of a table. Errors: CorruptIndex.
  template <class Row, class Use>
  void for_first_rows(const sqlite::Database& db, std::uint64_t count, const Use& use) const;
  /// Makes the row's url whole. Errors: CorruptIndex.
  void complete(Index::Shard& row) const;

  std::string path_;
  MappedFile file_;
  mutable Mutex mutex_;
  sqlite::Database db_ SHARDWISE_GUARDED_BY(mutex_);
  std::unique_ptr<sqlite::Statement> select_shard_ SHARDWISE_GUARDED_BY(mutex_);
  CatalogueMeta meta_;
};

/// Writes a catalogue, which does not exist until commit(). Threads: one.
class CatalogueWriter {
 public:
  /// @param url_base  base of the stored URLs of shards; may be empty.
  CatalogueWriter(const std::string& path, std::string url_base);

  const File& file() noexcept { return file_.file(); }

  /// @param shard  with its whole URL.
  void add_shard(Index::Shard shard);
  void add_field(const Index::Summary::Field& field);
  void add_skipped(const Index::SkippedMember& skipped);
  /// Writes and syncs the rest, which ensures that there is disk space for all of it. Sets the base
  /// of URLs in `meta` to the writer's.
  void finish(CatalogueMeta meta);
  /// Renames the file. From then on the index exists.
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
