#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "index/sqlite.h"
#include "shardwise/base/file.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/mapped_file.h"
#include "shardwise/index/index.h"

namespace shardwise {

// The catalogue, format version 2: a SQLite database with application_id kApplicationId and
// user_version kCatalogueVersion. It is written once, under a temporary name, and never changed;
// its rename to the index's path is the moment at which an index exists.
//
//   meta     one row a name: table_file, table_checksum, fingerprint, how it was built, the totals,
//            and `checksum`: hash128 of all other names and values
//   shards   one row a shard; `checksum` is the hash64 of the row's other values
//   fields   one row a field: members and bytes
//   skipped  what a lenient build left out
//
// Names and paths are text if they are UTF-8, blobs otherwise. Readers compare the schema to the
// letter, map the file, and hand it to SQLite as read-only memory.

inline constexpr std::int32_t kApplicationId = 0x53445731;  // "SDW1"

/// A row of `shards`: what ShardInfo shows, and what only the library needs.
struct ShardRow {
  std::string url;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  std::string validator;
  std::uint64_t first_sample = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_members = 0;
  std::uint64_t num_not_samples = 0;
  std::uint64_t num_archives = 1;
  std::uint64_t trailing_bytes = 0;
  bool end_marker = true;
  Compression compression = Compression::kNone;
  std::uint64_t expanded_bytes = 0;
  std::optional<Hash128> content_hash;
  Hash128 header_hash;
  std::uint64_t first_header_hash = 0;  ///< hash64 of the shard's first 512 bytes
  std::uint64_t segment_checksum = 0;

  friend bool operator==(const ShardRow&, const ShardRow&) = default;
};

/// Everything of a catalogue but its rows.
struct CatalogueMeta {
  std::string table_file;  ///< name beside the catalogue
  std::uint64_t table_checksum = 0;
  Hash128 fingerprint;
  std::string built_with;
  std::string built_at;
  BadPolicies policies;
  std::vector<Column> columns;
  bool has_hashes = false;
  bool keys_are_unique = false;
  std::string part;
  std::uint64_t num_shards = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_members = 0;
  std::uint64_t shard_bytes = 0;
  std::uint64_t content_bytes = 0;
  std::uint64_t num_skipped = 0;
};

/// An opened catalogue. Internally synchronised.
class Catalogue {
 public:
  /// Errors: NotFound; CorruptIndex; VersionMismatch.
  explicit Catalogue(const std::string& path);

  /// True if the file at `path` was written by this library, in any version, whole or not. What is
  /// not may be a user's own file and is never replaced.
  static bool looks_like_one(const std::string& path);

  const CatalogueMeta& meta() const noexcept { return meta_; }
  /// The file itself, mapped.
  std::string_view bytes() const noexcept { return file_.bytes(); }
  const FileIdentity& identity() const noexcept { return file_.identity(); }
  /// REQUIRES: shard < meta().num_shards.
  ShardRow shard(std::uint64_t shard) const;
  std::vector<FieldInfo> fields() const;
  std::vector<SkippedMember> skipped(std::uint64_t limit) const;
  /// SQLite's own check of every page. Errors: CorruptIndex.
  void check() const;

 private:
  void require_version_and_schema();
  void read_meta();

  std::string path_;
  MappedFile file_;
  mutable std::mutex mutex_;
  sqlite::Database db_;                              // guarded by mutex_
  std::unique_ptr<sqlite::Statement> select_shard_;  // guarded by mutex_
  CatalogueMeta meta_;
};

/// Writes a catalogue; nothing exists until commit. One thread.
class CatalogueWriter {
 public:
  explicit CatalogueWriter(const std::string& path);

  void add_shard(const ShardRow& row);
  void add_field(const FieldInfo& field);
  void add_skipped(const SkippedMember& skipped);
  void commit(const CatalogueMeta& meta);

 private:
  AtomicFile file_;
  std::unique_ptr<sqlite::Database> db_;
  std::unique_ptr<sqlite::Statement> insert_shard_;
  std::unique_ptr<sqlite::Statement> insert_skipped_;
  std::uint64_t num_shards_ = 0;
};

}  // namespace shardwise
