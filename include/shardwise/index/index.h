#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/compression.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/bad_policies.h"
#include "shardwise/index/column.h"
#include "shardwise/index/offset_table.h"

namespace shardwise {

/// The version of the catalogue's format that this library writes and reads; that of the offset
/// table beside it is kTableVersion.
inline constexpr std::int32_t kCatalogueVersion = 2;

/// What the catalogue knows of one shard.
struct ShardInfo {
  std::uint64_t number = 0;  ///< place in the source list, from 0
  std::string url;           ///< as stored: relative to the index's directory, or absolute
  std::string path;          ///< where the bytes are looked for: of a remote shard its URL
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< when it was indexed; 0 of a remote shard
  std::string validator;      ///< of a remote shard, from its server: its ETag, or when it changed
  std::uint64_t first_sample = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_members = 0;  ///< members of samples; links, directories and devices are not
  std::uint64_t num_not_samples = 0;  ///< links, directories, devices: seen, and left out
  Compression compression = Compression::kNone;
  /// Offsets of members are in these: size_bytes of them unless the shard is compressed.
  std::uint64_t expanded_bytes = 0;
  std::optional<Hash128> content_hash;  ///< hash128 of the file, if the index was built with hashes
  Hash128 header_hash;                  ///< of every header block in the shard, in order
  std::uint64_t first_header_hash = 0;  ///< hash64 of the shard's first 512 bytes
};

struct FieldInfo {
  std::string name;
  std::uint64_t num_members = 0;
  std::uint64_t bytes = 0;
};

/// A member that was left out because the build was told to skip what is bad.
struct SkippedMember {
  std::uint64_t shard = 0;
  std::uint64_t offset = 0;  ///< of its header, bytes
  std::string name;
  std::string reason;
};

/// The whole of an index, summed up.
struct IndexSummary {
  std::uint64_t num_shards = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_members = 0;
  std::uint64_t shard_bytes = 0;    ///< the shards' sizes
  std::uint64_t content_bytes = 0;  ///< the members' sizes
  Hash128 fingerprint;
  std::string built_with;  ///< "shardwise 0.1.0"
  std::string built_at;    ///< UTC, ISO 8601
  BadPolicies policies;
  std::vector<Column> columns;    ///< metadata, as asked for
  bool has_hashes = false;        ///< of every shard's and every member's content
  bool keys_are_unique = false;   ///< over all shards, as checked by the build
  std::string part;               ///< "2/8" if it is part of an index that is built in parts
  std::vector<FieldInfo> fields;  ///< by name
  std::uint64_t num_skipped = 0;
};

/// An index opened for reading: sample number or key -> where its members lie.
///
/// Immutable; any thread. It is a snapshot: a later `build_index` on the same path does not change
/// it. After fork() the child may go on using it. Opening maps the offset table and reads a few
/// rows of the catalogue: the cost does not depend on the number of samples.
class SHARDWISE_EXPORT Index {
 public:
  /// Errors: NotFound; CorruptIndex (damaged, or no index at all); VersionMismatch (another format
  ///   version; the text says to build it again).
  static std::shared_ptr<const Index> open(const std::string& path);

  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;
  ~Index();

  const std::string& path() const noexcept;
  std::uint64_t size() const noexcept;  ///< samples
  std::uint64_t num_members() const noexcept;
  std::uint64_t num_shards() const noexcept;
  /// Of the samples' numbering and of every shard's headers: equal for equal shards in equal order,
  /// wherever they lie. What a resume token is tied to.
  const Hash128& fingerprint() const noexcept;

  /// The shard that holds `sample`. REQUIRES: sample < size(). Cost: O(1), a few ns.
  std::uint64_t shard_of(std::uint64_t sample) const noexcept;
  /// The first sample of `shard`; size() for num_shards(). REQUIRES: shard <= num_shards().
  std::uint64_t first_sample(std::uint64_t shard) const noexcept;
  /// Offsets of all shards in the samples' numbering: [0, ..., size()], num_shards() + 1 of them.
  std::vector<std::uint64_t> shard_starts() const;

  /// What is known of a shard. Errors: OutOfRange; CorruptIndex. Cost: one row read, some us.
  ShardInfo shard(std::uint64_t shard) const;
  /// The records of a shard, checked in full at each call.
  /// Errors: OutOfRange; CorruptIndex.
  /// Cost: O(members of the shard); keep the view.
  SegmentView segment(std::uint64_t shard) const;

  /// The number of the first sample with this key, or nothing.
  /// Errors: CorruptIndex.
  /// Cost: O(1), about a microsecond.
  std::optional<std::uint64_t> find(std::string_view key) const;

  /// The numbers of all samples with this key, ascending. Errors and cost: as find.
  std::vector<std::uint64_t> find_all(std::string_view key) const;

  /// Errors: CorruptIndex. Cost: O(fields + shards).
  IndexSummary summary() const;
  /// The metadata columns, in the order of SegmentView::value.
  const std::vector<Column>& columns() const noexcept;
  const BadPolicies& policies() const noexcept;
  /// True if the index was built with hashes of all content.
  bool has_hashes() const noexcept;
  /// At most `limit` of what a lenient build left out, in shard order.
  std::vector<SkippedMember> skipped(std::uint64_t limit) const;

  /// Reads every byte of the table and checks it: every segment, directory, and key entry.
  /// Errors: CorruptIndex.
  /// Cost: O(table).
  void check() const;

 private:
  friend class Query;
  struct Impl;
  std::string_view unchecked_key(std::uint64_t shard, std::uint64_t local) const;
  template <class Found>
  void for_each_with_key(std::string_view key, const Found& found) const;
  std::string_view catalogue_bytes() const noexcept;
  explicit Index(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Throws StaleIndex unless a file with this size and time is the shard that was indexed.
SHARDWISE_EXPORT void require_unchanged(const ShardInfo& shard, std::uint64_t size_bytes,
                                        std::int64_t mtime_ns);

}  // namespace shardwise
