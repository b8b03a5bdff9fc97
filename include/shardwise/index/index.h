#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/side_table.h"

namespace shardwise {

class Index;

namespace detail {
struct IndexAccess;
class SegmentView;
SegmentView segment_of(const Index& index, std::uint64_t shard);
class SideTables;
const SideTables& side_tables_of(const Index& index) noexcept;
std::string_view key_of_sample(const Index& index, std::uint64_t sample);
struct ShardFinder;
ShardFinder shard_finder_of(const Index& index) noexcept;
}  // namespace detail

/// An index opened for reading: it maps the number or key of a sample to the shard and the offsets
/// of its members.
///
/// An index is a snapshot: a later build_index() on the same path does not change it.
///
/// The index of a dataset that Dataset::open_lazily() opened has no files. For each shard it has
/// only the data of the descriptor: URL, number of samples, and size (0 if not stated). Its
/// num_members() is 0. All functions with the error CorruptIndex, except shard(), throw
/// Unsupported.
///
/// Threads: immutable; safe from any thread. A forked child may continue to use it.
/// Cost: opening maps the offset table and reads a few rows of the catalogue. The cost does not
///   depend on the number of samples.
class SHARDWISE_EXPORT Index {
 public:
  /// A metadata column of an index: one value per sample for queries. It is taken from a field when
  /// the shard is indexed.
  ///
  /// With a JSON path, the value is the result of SQLite's json_extract, where objects and arrays
  /// become JSON text. Without a path, a field that contains only a number and blanks becomes an
  /// integer or real. Any other field becomes a text, or a blob if it is not UTF-8. The value is
  /// null if the sample lacks the field, or the JSON lacks the path.
  ///
  /// Values are never truncated or rounded. A whole number beyond 64 bits becomes the text of its
  /// digits. A number beyond the range of a double becomes its text. A text with a NUL or a lone
  /// surrogate becomes a blob.
  ///
  /// Fields above 1 MiB are refused. Without a JSON path the limit is 4 KiB if the field is not
  /// UTF-8, and 64 KiB if it is not valid JSON.
  struct Column {
    std::string name;       ///< name in SQL: letters, digits and _, in lower case
    std::string field;      ///< lower case
    std::string json_path;  ///< in SQLite's syntax, e.g. "$.width"; empty means the whole field

    friend bool operator==(const Column&, const Column&) = default;
  };
  /// Options that determine the content of an index. The index stores them, and update_index() uses
  /// them again.
  struct Content {
    DefectPolicies policies = {};
    /// Metadata columns for queries. Building them reads their fields.
    std::vector<Column> columns = {};
    /// Hashes of the content of every shard and member, for a full `verify_shard`. The build then
    /// reads every byte.
    bool hashes = false;
    /// Fail if a key occurs in two shards. Within one shard, `policies.repeated_key` decides.
    bool unique_keys = false;

    friend bool operator==(const Content&, const Content&) = default;
  };

  /// The identity of one part of an index that is built in parts.
  struct Part {
    std::uint64_t number = 1;      ///< from 1
    std::uint64_t count = 1;       ///< number of parts
    std::uint64_t num_shards = 0;  ///< of the whole list
    Hash128 list_hash = {};        ///< of the whole list of shard URLs, in order

    friend bool operator==(const Part&, const Part&) = default;
  };

  /// The record of one shard in an index.
  struct Shard {
    std::uint64_t number = 0;  ///< place in the source list, from 0
    /// The path or URL from which the shard is read. A URL may be one of Lookup::urls.
    std::string path = {};
    /// The path or URL as the index stores it. A path is absolute, or relative to the index's
    /// directory. A URL has no user, password or signature.
    std::string url = {};
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;   ///< modification time when indexed; 0 for a remote shard
    std::string validator = {};  ///< of a remote shard: ETag or Last-Modified
    std::uint64_t first_sample = 0;
    std::uint64_t num_samples = 0;
    std::uint64_t num_members = 0;  ///< members of samples, without links, directories and devices
    std::uint64_t num_not_samples = 0;  ///< links, directories and devices, which were left out
    std::uint64_t num_archives = 1;     ///< above 1 if archives were concatenated
    std::uint64_t trailing_bytes = 0;   ///< bytes of other data after the end marker
    bool end_marker = true;             ///< false if the archive ends without an end marker
    Compression compression = Compression::kNone;
    bool unchecked = false;  ///< true if it is compressed by a codec without a checksum of the
                             ///< content
    /// Size of the expanded shard; equals size_bytes if not compressed. Offsets of members refer to
    /// the expanded shard.
    std::uint64_t expanded_bytes = 0;
    /// hash128 of the file. Present if the index was built with hashes or the server gave no
    /// validator.
    std::optional<Hash128> content_hash = {};
    Hash128 header_hash = {};             ///< of all header blocks of the shard, in order
    std::uint64_t first_header_hash = 0;  ///< hash64 of the first 512 bytes
    std::uint64_t segment_checksum = 0;   ///< of its segment in the offset table
    bool any_time = false;                ///< true if Lookup::accept_times is set

    friend bool operator==(const Shard&, const Shard&) = default;
  };

  /// A member that was left out, by a rule of the format or by a policy that skips defects. With
  /// kNoValue the member is present, but a column of its sample is null.
  struct SkippedMember {
    /// The reason why a member was left out.
    enum class Kind : std::uint8_t {
      kDamage,          ///< DefectPolicies::damage
      kNoField,         ///< DefectPolicies::no_field
      kDuplicateField,  ///< DefectPolicies::duplicate_field
      kRepeatedKey,     ///< DefectPolicies::repeated_key
      kLink,            ///< a hard link or a symlink
      kSpecial,         ///< a device, a FIFO, ...
      kMetaName,        ///< a name that webdataset reserves: "__info.json__"
      kNoValue          ///< DefectPolicies::damage: the member is kept, a column is null
    };

    std::uint64_t shard = 0;
    std::uint64_t offset = 0;  ///< of its header, bytes
    std::string name;
    std::string reason;
    Kind kind = Kind::kDamage;

    friend bool operator==(const SkippedMember&, const SkippedMember&) = default;
  };

  /// Totals and properties of a whole index.
  struct Summary {
    struct Field {
      std::string name;
      std::uint64_t num_members = 0;
      std::uint64_t bytes = 0;

      friend bool operator==(const Field&, const Field&) = default;
    };

    std::uint64_t num_shards = 0;
    std::uint64_t num_samples = 0;
    std::uint64_t num_members = 0;
    std::uint64_t shard_bytes = 0;    ///< sizes of the shards
    std::uint64_t content_bytes = 0;  ///< sizes of the members
    Hash128 fingerprint;
    std::string built_with;    ///< "shardwise 0.2.0"
    std::string built_at;      ///< time in UTC, ISO 8601
    Content content;           ///< the options of the build
    std::optional<Part> part;  ///< present if the index is one of several parts
    /// The longest folder, with its slash, that the URLs of all remote shards share; empty if they
    /// share none. The command line's option `--url-base NEW` replaces this folder.
    std::string url_base;
    std::vector<Field> fields;  ///< by name
    std::uint64_t num_skipped = 0;
  };

  /// How the shards of an index are found and recognised.
  struct Lookup {
    /// A folder below which all shards are found. Empty means the paths in the index. For a shard
    /// with a relative path in the index, the path is relative to `root` instead of the index's
    /// folder. For shards with absolute paths, `root` replaces the deepest folder that all of them
    /// share. Symbolic links below `root` are followed.
    std::string root = {};
    /// Accept local shards whose modification time differs from the index, e.g. copies. Their size,
    /// their first 512 bytes, and up to eight members must match the index. For these members,
    /// sizes, names and, if the index has them, hashes are compared. A changed shard that passes
    /// these checks is not detected. `shardwise verify` compares all headers, and with --full all
    /// bytes.
    bool accept_times = false;
    /// Current URLs of remote shards, e.g. newly signed. A shard is read from the URL in this list
    /// that equals its stored URL apart from user, password and signature. URLs that match no shard
    /// are ignored. Dataset::open_sources() passes its sources here.
    std::vector<std::string> urls = {};

    friend bool operator==(const Lookup&, const Lookup&) = default;
  };

  /// Opens the index at `path`. Dataset::open() also opens an index at a URL.
  /// Errors: NotFound. CorruptIndex if it is damaged or not an index, or if its file of side tables
  ///   is damaged. VersionMismatch for another format version; the remedy is to build it again.
  /// Errors: InvalidArgument if a side table has a column of the same name as another column.
  /// Errors: with a root, NotFound if the root is not a folder. Unsupported if the root or a shard
  ///   is a URL. InvalidArgument if the path of a shard contains "..".
  /// Cost: O(1); with a root or urls, O(shards).
  [[nodiscard]] static std::shared_ptr<const Index> open(const std::string& path,
                                                         const Lookup& lookup);
  [[nodiscard]] static std::shared_ptr<const Index> open(const std::string& path);

  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;
  ~Index();

  [[nodiscard]] const std::string& path() const noexcept;  ///< symbolic links resolved
  /// The URL from which the index was fetched, without user, password and signature; empty if it
  /// was not fetched. Relative paths of shards are then relative to this URL. See index_for().
  [[nodiscard]] const std::string& origin() const noexcept;
  [[nodiscard]] const Lookup& lookup() const noexcept;
  [[nodiscard]] std::uint64_t size() const noexcept;  ///< samples
  [[nodiscard]] std::uint64_t num_members() const noexcept;
  [[nodiscard]] std::uint64_t num_shards() const noexcept;
  /// A hash of the numbering of samples and of the headers of all shards. It does not depend on
  /// where the shards are stored. A resume token is valid only for one fingerprint.
  [[nodiscard]] const Hash128& fingerprint() const noexcept;

  /// The shard that contains `sample`. REQUIRES: sample < size(). Cost: O(1).
  [[nodiscard]] std::uint64_t shard_of(std::uint64_t sample) const noexcept;
  /// The first sample of `shard`, or size() for num_shards(). REQUIRES: shard <= num_shards().
  [[nodiscard]] std::uint64_t first_sample(std::uint64_t shard) const noexcept;
  /// Returns the first sample of each shard, then size(): num_shards() + 1 numbers.
  [[nodiscard]] std::vector<std::uint64_t> shard_starts() const;

  /// The shard with this number. Errors: OutOfRange; CorruptIndex. Cost: reads one row.
  [[nodiscard]] Shard shard(std::uint64_t shard) const;

  /// The number of the first sample with this key, or nothing.
  /// Errors: CorruptIndex.
  /// Cost: O(1).
  [[nodiscard]] std::optional<std::uint64_t> find(std::string_view key) const;

  /// The numbers of all samples with this key, ascending. Errors and cost: see find().
  [[nodiscard]] std::vector<std::uint64_t> find_all(std::string_view key) const;

  /// Errors: CorruptIndex. Cost: O(fields + shards).
  [[nodiscard]] Summary summary() const;
  /// The options of the build; `columns` in the order of the tables.
  [[nodiscard]] const Content& content() const noexcept;
  /// The side tables that were attached when the index was opened.
  [[nodiscard]] std::vector<SideTable> side_tables() const;
  /// The first `limit` members that were left out, in shard order. Errors: CorruptIndex.
  [[nodiscard]] std::vector<SkippedMember> skipped(std::uint64_t limit) const;

  /// Reads and checks both files and the side tables completely: every row, segment, directory and
  /// key entry.
  /// @param progress  called after each shard.
  /// Errors: CorruptIndex. Cancelled.
  /// Cost: O(table + catalogue).
  void validate(const CancelToken& cancel = {},
                const std::function<void(std::uint64_t samples_done)>& progress = {}) const;

 private:
  friend struct detail::IndexAccess;
  friend detail::SegmentView detail::segment_of(const Index& index, std::uint64_t shard);
  friend detail::ShardFinder detail::shard_finder_of(const Index& index) noexcept;
  friend std::string_view detail::key_of_sample(const Index& index, std::uint64_t sample);
  friend const detail::SideTables& detail::side_tables_of(const Index& index) noexcept;

  struct Impl;
  explicit Index(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Returns e.g. "2/8 of 100 shards".
SHARDWISE_EXPORT std::string to_string(const Index::Part& part);
/// Returns "damage", "no-field", "duplicate-field", "repeated-key", "link", "special", "meta" or
/// "no-value".
SHARDWISE_EXPORT std::string_view left_out_name(Index::SkippedMember::Kind kind) noexcept;

/// Parses `[NAME=]FIELD[:JSONPATH]`, e.g. "cls", "json:$.width", "w=meta.json:$.size[0]". NAME
/// defaults to the last part of the path, or the field.
/// Errors: InvalidArgument if the path is malformed, if SQL cannot use the name, or if the index
///   has another column of this name (sample, key, shard, ...).
SHARDWISE_EXPORT Index::Column parse_column(std::string_view text);
/// Returns "NAME=FIELD" or "NAME=FIELD:JSONPATH", which parse_column() reads.
SHARDWISE_EXPORT std::string to_string(const Index::Column& column);

/// Throws StaleIndex if `size_bytes` or `mtime_ns` differ from the indexed shard. The time is
/// ignored if `shard.any_time` is set.
SHARDWISE_EXPORT void require_unchanged(const Index::Shard& shard, std::uint64_t size_bytes,
                                        std::int64_t mtime_ns);

}  // namespace shardwise
