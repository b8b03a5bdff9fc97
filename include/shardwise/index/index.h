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
#include "shardwise/index/defect_policies.h"

namespace shardwise {

class Index;

namespace detail {
struct IndexAccess;
class SegmentView;
SegmentView segment_of(const Index& index, std::uint64_t shard);
struct ShardFinder;
ShardFinder shard_finder_of(const Index& index) noexcept;
}  // namespace detail

/// An index opened for reading: sample number or key -> where its members lie.
///
/// Immutable; any thread. It is a snapshot: a later `build_index` on the same path does not change
/// it. After fork() the child may go on using it. Opening maps the offset table and reads a few
/// rows of the catalogue: the cost does not depend on the number of samples.
///
/// That of a dataset which was opened by a descriptor alone (Dataset::open_lazily) has no files. It
/// knows numbers, and of a shard what the descriptor says: its URL, its samples, and its size or 0.
/// num_members() is 0; all that has CorruptIndex among its errors, but for shard(), is Unsupported.
class SHARDWISE_EXPORT Index {
 public:
  /// A metadata column of an index: a value of each sample, taken from one of its fields when the
  /// shard is indexed, and kept in the index for queries.
  ///
  /// The value is SQLite's: with a JSON path, what json_extract gives (objects and arrays as JSON
  /// text); without, an integer or a real if the field holds just that, blanks around it left out,
  /// else a text, or a blob if it is not UTF-8. Null if the sample has no such field, or the field
  /// no such path. Nothing is cut or rounded: a whole number that does not fit 64 bits is the text
  /// of its digits, a number beyond a double's range is its text, and a text with a NUL or a lone
  /// surrogate is a blob. Refused are fields above 1 MiB and, without a JSON path, what is not
  /// UTF-8 above 4 KiB and text that is no JSON above 64 KiB.
  struct Column {
    std::string name;       ///< in SQL: letters, digits and _, in lower case
    std::string field;      ///< lower case
    std::string json_path;  ///< as in SQLite, "$.width"; empty: the field as a whole

    friend bool operator==(const Column&, const Column&) = default;
  };
  /// The content of an index besides the members' places. Stored in it, so that update_index()
  /// reuses it.
  struct Content {
    DefectPolicies policies = {};
    /// Metadata to take from fields, for queries. Reads those fields.
    std::vector<Column> columns = {};
    /// Also hash every shard's and every member's content, for `verify_shard` in full. Reads every
    /// byte.
    bool hashes = false;
    /// Fail if a key comes in two shards. Within a shard `policies.repeated_key` decides.
    bool unique_keys = false;

    friend bool operator==(const Content&, const Content&) = default;
  };

  /// Which part of an index that is built in parts.
  struct Part {
    std::uint64_t number = 1;      ///< from 1
    std::uint64_t count = 1;       ///< parts in all
    std::uint64_t num_shards = 0;  ///< of the whole list
    Hash128 list_hash = {};        ///< of the whole list: every shard's url, in order

    friend bool operator==(const Part&, const Part&) = default;
  };

  /// One shard, as the index describes it.
  struct Shard {
    std::uint64_t number = 0;  ///< place in the source list, from 0
    /// Where the bytes are looked for: of a remote shard its URL, which may be one of Lookup::urls.
    std::string path = {};
    /// As the index knows it: a path, relative to the index's directory or absolute; a URL, without
    /// user, password and signature.
    std::string url = {};
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;  ///< when it was indexed; 0 of a remote shard
    std::string validator =
        {};  ///< of a remote shard, from its server: its ETag, or when it changed
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
    bool any_time = false;                ///< Lookup::accept_times

    friend bool operator==(const Shard&, const Shard&) = default;
  };

  /// A member that was left out: by a rule, or because the build was told to skip defects. Of kind
  /// kNoValue: one that is there, but gave a column no value.
  struct SkippedMember {
    /// Why a member was left out.
    enum class Kind : std::uint8_t {
      kDamage,          ///< DefectPolicies::damage
      kNoField,         ///< DefectPolicies::no_field
      kDuplicateField,  ///< DefectPolicies::duplicate_field
      kRepeatedKey,     ///< DefectPolicies::repeated_key
      kLink,            ///< a hard link or a symlink
      kSpecial,         ///< a device, a FIFO, ...
      kMetaName,        ///< a name that webdataset reserves: "__info.json__"
      kNoValue          ///< DefectPolicies::damage: a column's value is null, the member is there
    };

    std::uint64_t shard = 0;
    std::uint64_t offset = 0;  ///< of its header, bytes
    std::string name;
    std::string reason;
    Kind kind = Kind::kDamage;

    friend bool operator==(const SkippedMember&, const SkippedMember&) = default;
  };

  /// The whole of an index, summed up.
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
    std::uint64_t shard_bytes = 0;    ///< the shards' sizes
    std::uint64_t content_bytes = 0;  ///< the members' sizes
    Hash128 fingerprint;
    std::string built_with;    ///< "shardwise 0.1.0"
    std::string built_at;      ///< UTC, ISO 8601
    Content content;           ///< what it was built to hold
    std::optional<Part> part;  ///< of an index that is built in parts
    /// The folder, with its slash, that the URLs of all remote shards have in common; empty if
    /// there are none, or they have none in common. The index stores it once: it is what
    /// `--url-base NEW` stands in place of.
    std::string url_base;
    std::vector<Field> fields;  ///< by name
    std::uint64_t num_skipped = 0;
  };

  /// How the shards of an index are found and recognised.
  struct Lookup {
    /// A folder below which all shards are looked for, and nowhere else: one that the index stores
    /// relative to its own folder under that relative path; one that it stores by an absolute path
    /// under what follows the deepest folder that all such shards share. Symbolic links below it
    /// are followed. Empty: shards are where the index says.
    std::string root = {};
    /// Accepts local shards whose time differs from the index's, as copies' times do: a shard is
    /// then recognised by its size, its first 512 bytes, and the sizes, names and hashes, if there
    /// are any, of up to eight members. A changed shard that passes these checks is not noticed;
    /// `shardwise verify` compares every header with the index, and with --full every byte.
    bool accept_times = false;
    /// URLs by which remote shards are fetched now, as signed ones: a shard whose URL in the index
    /// is one of these without its user, password and signature is fetched by it. An index that is
    /// opened by its sources (Dataset::open_sources) has theirs. Others may be among them.
    std::vector<std::string> urls = {};

    friend bool operator==(const Lookup&, const Lookup&) = default;
  };

  /// Errors: NotFound; CorruptIndex (damaged, or no index at all); VersionMismatch (another format
  ///   version; the text says to build it again). With a root: NotFound if it is no folder;
  ///   Unsupported if it or a shard is a URL; InvalidArgument if a shard's path has ".." in it.
  /// Cost: with a root or urls, some us a shard more.
  [[nodiscard]] static std::shared_ptr<const Index> open(const std::string& path,
                                                         const Lookup& lookup);
  [[nodiscard]] static std::shared_ptr<const Index> open(const std::string& path);

  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;
  ~Index();

  [[nodiscard]] const std::string& path() const noexcept;  ///< links followed
  [[nodiscard]] const Lookup& lookup() const noexcept;
  [[nodiscard]] std::uint64_t size() const noexcept;  ///< samples
  [[nodiscard]] std::uint64_t num_members() const noexcept;
  [[nodiscard]] std::uint64_t num_shards() const noexcept;
  /// A hash of the samples' numbering and of every shard's headers: equal for equal shards in equal
  /// order, wherever they lie. Resume tokens are bound to it.
  [[nodiscard]] const Hash128& fingerprint() const noexcept;

  /// The shard that holds `sample`. REQUIRES: sample < size(). Cost: O(1), a few ns.
  [[nodiscard]] std::uint64_t shard_of(std::uint64_t sample) const noexcept;
  /// The first sample of `shard`; size() for num_shards(). REQUIRES: shard <= num_shards().
  [[nodiscard]] std::uint64_t first_sample(std::uint64_t shard) const noexcept;
  /// Offsets of all shards in the samples' numbering: [0, ..., size()], num_shards() + 1 of them.
  [[nodiscard]] std::vector<std::uint64_t> shard_starts() const;

  /// The shard with this number. Errors: OutOfRange; CorruptIndex. Cost: one row read, some us.
  [[nodiscard]] Shard shard(std::uint64_t shard) const;

  /// The number of the first sample with this key, or nothing.
  /// Errors: CorruptIndex.
  /// Cost: O(1), about a microsecond.
  [[nodiscard]] std::optional<std::uint64_t> find(std::string_view key) const;

  /// The numbers of all samples with this key, ascending. Errors and cost: as find.
  [[nodiscard]] std::vector<std::uint64_t> find_all(std::string_view key) const;

  /// Errors: CorruptIndex. Cost: O(fields + shards).
  [[nodiscard]] Summary summary() const;
  /// The content it was built with; `columns` in the order of the tables.
  [[nodiscard]] const Content& content() const noexcept;
  /// At most `limit` of what was left out, in shard order. Errors: CorruptIndex.
  [[nodiscard]] std::vector<SkippedMember> skipped(std::uint64_t limit) const;

  /// Reads all of both files and checks it: every row, segment, directory and key entry.
  /// Errors: CorruptIndex.
  /// Cost: O(table + catalogue).
  void validate() const;

 private:
  friend struct detail::IndexAccess;
  friend detail::SegmentView detail::segment_of(const Index& index, std::uint64_t shard);
  friend detail::ShardFinder detail::shard_finder_of(const Index& index) noexcept;

  struct Impl;
  [[nodiscard]] std::string_view unchecked_key(std::uint64_t shard, std::uint64_t local) const;
  template <class Found>
  void for_each_with_key(std::string_view key, const Found& found) const;
  explicit Index(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// "2/8 of 100 shards".
SHARDWISE_EXPORT std::string to_string(const Index::Part& part);
/// "damage", "no-field", "duplicate-field", "repeated-key", "link", "special", "meta", "no-value".
SHARDWISE_EXPORT std::string_view left_out_name(Index::SkippedMember::Kind kind) noexcept;

/// Reads `[NAME=]FIELD[:JSONPATH]`: "cls", "json:$.width", "w=meta.json:$.size[0]". Without NAME it
/// is the last part of the path, or the field.
/// Errors: InvalidArgument, if the name is none that SQL can use or is one of the index's own
///   (sample, key, shard, ...), or the path is malformed.
SHARDWISE_EXPORT Index::Column parse_column(std::string_view text);
/// "NAME=FIELD" or "NAME=FIELD:JSONPATH": what parse_column reads.
SHARDWISE_EXPORT std::string to_string(const Index::Column& column);

/// Throws StaleIndex unless a file with this size and time is the shard that was indexed. The time
/// does not matter for a shard that may have any.
SHARDWISE_EXPORT void require_unchanged(const Index::Shard& shard, std::uint64_t size_bytes,
                                        std::int64_t mtime_ns);

}  // namespace shardwise
