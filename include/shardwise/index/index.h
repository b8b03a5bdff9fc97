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

namespace shardwise {

namespace detail {
class SegmentView;
}  // namespace detail

/// The content of an index besides the members' places. Stored in it, so that update_index() reuses
/// it.
struct IndexContent {
  BadPolicies policies = {};
  /// Metadata to take from fields, for queries. Reads those fields.
  std::vector<Column> columns = {};
  /// Also hash every shard's and every member's content, for `verify_shard` in full. Reads every
  /// byte.
  bool hashes = false;
  /// Fail if a key comes in two shards. Within a shard `policies.repeated_key` decides.
  bool unique_keys = false;

  friend bool operator==(const IndexContent&, const IndexContent&) = default;
};

/// Which part of an index that is built in parts.
struct IndexPart {
  std::uint64_t number = 1;      ///< from 1
  std::uint64_t count = 1;       ///< parts in all
  std::uint64_t num_shards = 0;  ///< of the whole list
  Hash128 list_hash = {};        ///< of the whole list: every shard's url, in order

  friend bool operator==(const IndexPart&, const IndexPart&) = default;
};
/// "2/8 of 100 shards".
SHARDWISE_EXPORT std::string to_string(const IndexPart& part);

/// One shard, as the index describes it.
struct ShardInfo {
  std::uint64_t number = 0;  ///< place in the source list, from 0
  std::string path = {};     ///< where the bytes are looked for: of a remote shard its URL
  std::string url = {};      ///< as stored: relative to the index's directory, or absolute
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;   ///< when it was indexed; 0 of a remote shard
  std::string validator = {};  ///< of a remote shard, from its server: its ETag, or when it changed
  std::uint64_t first_sample = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_members = 0;  ///< members of samples; links, directories and devices are not
  std::uint64_t num_not_samples = 0;  ///< links, directories, devices: seen, and left out
  std::uint64_t num_archives = 1;     ///< more if archives were concatenated
  std::uint64_t trailing_bytes = 0;   ///< of rubbish after the end marker
  bool end_marker = true;             ///< false: the shard ends at a member
  Compression compression = Compression::kNone;
  bool unchecked = false;  ///< compressed, and its codec has no checksum over the content
  /// Offsets of members are in these: size_bytes of them unless the shard is compressed.
  std::uint64_t expanded_bytes = 0;
  /// hash128 of the file, if the index was built with hashes, or its server gave no validator.
  std::optional<Hash128> content_hash = {};
  Hash128 header_hash = {};             ///< of every header block in the shard, in order
  std::uint64_t first_header_hash = 0;  ///< hash64 of the shard's first 512 bytes
  std::uint64_t segment_checksum = 0;   ///< of its segment in the offset table
  bool any_time = false;                ///< ShardLookup::accept_times

  friend bool operator==(const ShardInfo&, const ShardInfo&) = default;
};

/// A member that was left out: by a rule, or because the build was told to skip defects.
struct SkippedMember {
  /// Why a member was left out.
  enum class Kind : std::uint8_t {
    kDamage,          ///< BadPolicies::damage
    kNoField,         ///< BadPolicies::no_field
    kDuplicateField,  ///< BadPolicies::duplicate_field
    kRepeatedKey,     ///< BadPolicies::repeated_key
    kLink,            ///< a hard link or a symlink
    kSpecial,         ///< a device, a FIFO, ...
    kMetaName         ///< a name that webdataset reserves: "__info.json__"
  };

  std::uint64_t shard = 0;
  std::uint64_t offset = 0;  ///< of its header, bytes
  std::string name;
  std::string reason;
  Kind kind = Kind::kDamage;

  friend bool operator==(const SkippedMember&, const SkippedMember&) = default;
};

/// "damage", "no-field", "duplicate-field", "repeated-key", "link", "special", "meta".
SHARDWISE_EXPORT std::string_view left_out_name(SkippedMember::Kind kind) noexcept;

/// The whole of an index, summed up.
struct IndexSummary {
  struct Field {
    std::string name;
    std::uint64_t num_members = 0;
    std::uint64_t bytes = 0;

    friend bool operator==(const Field&, const Field&) = default;
  };

  std::uint64_t num_shards = 0;
  std::uint64_t num_samples = 0;
  std::uint64_t num_members = 0;
  std::uint64_t shard_bytes = 0;    ///< the shards' sizes
  std::uint64_t content_bytes = 0;  ///< the members' sizes
  Hash128 fingerprint;
  std::string built_with;         ///< "shardwise 0.1.0"
  std::string built_at;           ///< UTC, ISO 8601
  IndexContent content;           ///< what it was built to hold
  std::optional<IndexPart> part;  ///< of an index that is built in parts
  std::vector<Field> fields;      ///< by name
  std::uint64_t num_skipped = 0;
};

/// How the shards of an index are found and recognised.
struct ShardLookup {
  /// A folder below which all shards are looked for, and nowhere else: one that the index stores
  /// relative to its own folder under that relative path; one that it stores by an absolute path
  /// under what follows the deepest folder that all such shards share. Symbolic links below it are
  /// followed. Empty: shards are where the index says.
  std::string root = {};
  /// Accepts local shards whose time differs from the index's, as copies' times do: a shard is then
  /// recognised by its size, its first 512 bytes and the headers of up to eight members, the last
  /// one among them. A changed shard that passes these checks is not noticed; `shardwise verify`
  /// compares every header with the index, and with --full every byte.
  bool accept_times = false;

  friend bool operator==(const ShardLookup&, const ShardLookup&) = default;
};

/// An index opened for reading: sample number or key -> where its members lie.
///
/// Immutable; any thread. It is a snapshot: a later `build_index` on the same path does not change
/// it. After fork() the child may go on using it. Opening maps the offset table and reads a few
/// rows of the catalogue: the cost does not depend on the number of samples.
class SHARDWISE_EXPORT Index {
 public:
  /// Errors: NotFound; CorruptIndex (damaged, or no index at all); VersionMismatch (another format
  ///   version; the text says to build it again). With a root: NotFound if it is no folder;
  ///   Unsupported if it or a shard is a URL; InvalidArgument if a shard's path has ".." in it.
  /// Cost: with a root, some us a shard more.
  static std::shared_ptr<const Index> open(const std::string& path, const ShardLookup& lookup = {});

  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;
  ~Index();

  const std::string& path() const noexcept;  ///< links followed
  const ShardLookup& lookup() const noexcept;
  std::uint64_t size() const noexcept;  ///< samples
  std::uint64_t num_members() const noexcept;
  std::uint64_t num_shards() const noexcept;
  /// A hash of the samples' numbering and of every shard's headers: equal for equal shards in equal
  /// order, wherever they lie. Resume tokens are bound to it.
  const Hash128& fingerprint() const noexcept;

  /// The shard that holds `sample`. REQUIRES: sample < size(). Cost: O(1), a few ns.
  std::uint64_t shard_of(std::uint64_t sample) const noexcept;
  /// The first sample of `shard`; size() for num_shards(). REQUIRES: shard <= num_shards().
  std::uint64_t first_sample(std::uint64_t shard) const noexcept;
  /// Offsets of all shards in the samples' numbering: [0, ..., size()], num_shards() + 1 of them.
  std::vector<std::uint64_t> shard_starts() const;

  /// The shard with this number. Errors: OutOfRange; CorruptIndex. Cost: one row read, some us.
  ShardInfo shard(std::uint64_t shard) const;
  /// The records of a shard, checked in full at each call; for the library itself.
  /// Errors: OutOfRange; CorruptIndex.
  /// Cost: O(members of the shard); keep the view.
  detail::SegmentView segment(std::uint64_t shard) const;

  /// The number of the first sample with this key, or nothing.
  /// Errors: CorruptIndex.
  /// Cost: O(1), about a microsecond.
  std::optional<std::uint64_t> find(std::string_view key) const;

  /// The numbers of all samples with this key, ascending. Errors and cost: as find.
  std::vector<std::uint64_t> find_all(std::string_view key) const;

  /// Errors: CorruptIndex. Cost: O(fields + shards).
  IndexSummary summary() const;
  /// The content it was built with; `columns` in the order of the tables.
  const IndexContent& content() const noexcept;
  /// At most `limit` of what was left out, in shard order. Errors: CorruptIndex.
  std::vector<SkippedMember> skipped(std::uint64_t limit) const;

  /// Reads all of both files and checks it: every row, segment, directory and key entry.
  /// Errors: CorruptIndex.
  /// Cost: O(table + catalogue).
  void check() const;

 private:
  struct Impl;
  std::string_view unchecked_key(std::uint64_t shard, std::uint64_t local) const;
  template <class Found>
  void for_each_with_key(std::string_view key, const Found& found) const;
  explicit Index(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Throws StaleIndex unless a file with this size and time is the shard that was indexed. The time
/// does not matter for a shard that may have any.
SHARDWISE_EXPORT void require_unchanged(const ShardInfo& shard, std::uint64_t size_bytes,
                                        std::int64_t mtime_ns);

}  // namespace shardwise
