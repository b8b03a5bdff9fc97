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
#include "base/spelling.h"
#include "index/sqlite.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/index.h"

namespace shardwise {

// The catalogue: a SQLite database with application_id kApplicationId and user_version
// kIndexVersion, specified in docs/formats/index.md. It is written once, under a temporary name,
// and never changed; its rename to the index's path is the moment at which an index exists.
//
//   meta     one row a name: which table, how it was built, what the shards' URLs have in common,
//            the totals, and `checksum`
//   shards   one row a shard                  | of each row `checksum` is over all else of it, and
//   fields   one row a field                  | `meta` says how many there are: rows.h
//   skipped  one row a member that was left out
//
// Names and paths are text if they are UTF-8, blobs otherwise. Readers compare the schema to the
// letter, map the file, and hand it to SQLite as read-only memory.

inline constexpr std::int32_t kApplicationId = 0x53445731;  // "SDW1"
/// The remedy in errors about an index that cannot be used.
inline std::string rebuild() {
  return "build the index again with " + spelled("`shardwise index`");
}
/// The same for one of another version, which does not tell its sources.
inline std::string rebuild_from_sources() {
  return "build the index again, and name its shards: " +
         spelled("`shardwise index -o INDEX SOURCE`") + "; resume tokens stay valid";
}

/// Everything of a catalogue but its rows.
struct CatalogueMeta {
  std::string table_file;  ///< name beside the catalogue
  std::uint64_t table_checksum = 0;
  std::uint64_t num_fields = 0;
  /// The words by which the shards were named, where these may stand for others later (see
  /// SourceList); relative to the index's directory as shards' urls are.
  std::vector<std::string> sources;
  /// But for its fields. Rows are stored relative to its `url_base` (UrlBase); in memory their urls
  /// are whole.
  Index::Summary summary;
};

/// An opened catalogue. Internally synchronised.
class Catalogue {
 public:
  /// Errors: NotFound; CorruptIndex; VersionMismatch.
  explicit Catalogue(const std::string& path);

  /// True if the file at `path` was written by this library, in any version, whole or not. Any
  /// other may be a user's own file, and is never replaced.
  [[nodiscard]] static bool looks_like_one(const std::string& path);

  const CatalogueMeta& meta() const noexcept { return meta_; }
  /// The file itself, mapped.
  std::string_view bytes() const noexcept { return file_.bytes(); }
  const FileIdentity& identity() const noexcept { return file_.identity(); }
  /// Its url is whole, and its path is its url. REQUIRES: shard < meta().summary.num_shards.
  Index::Shard shard(std::uint64_t shard) const;
  std::vector<Index::Summary::Field> fields() const;
  /// At most `limit` of them.
  std::vector<Index::SkippedMember> skipped(std::uint64_t limit) const;
  /// Reads every row and page. Errors: CorruptIndex.
  void validate() const;

 private:
  // Parts of the constructor, which holds no lock, since no other thread knows of this yet.
  void require_version_and_schema() SHARDWISE_REQUIRES(mutex_);
  void read_meta() SHARDWISE_REQUIRES(mutex_);
  /// Calls `use` with the rows 0 to `count` - 1 of a table. Errors: CorruptIndex.
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

/// Writes a catalogue; nothing exists until commit(). One thread.
class CatalogueWriter {
 public:
  /// @param url_base  what shards' URLs are stored relative to, or nothing.
  CatalogueWriter(const std::string& path, std::string url_base);

  const File& file() noexcept { return file_.file(); }

  /// Its url is whole.
  void add_shard(Index::Shard shard);
  void add_field(const Index::Summary::Field& field);
  void add_skipped(const Index::SkippedMember& skipped);
  /// Writes what is left and syncs it: there is room for all of it. The base is the writer's.
  void finish(CatalogueMeta meta);
  /// The moment at which the index exists.
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
