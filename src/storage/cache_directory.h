#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "shardwise/base/hash.h"
#include "storage/cache_request.h"

namespace shardwise::detail {

/// The paths and file formats of a shard cache, as specified in docs/formats/cache-directory.md.
/// Immutable.
/// Threads: any. Processes: any.
class CacheDirectory {
 public:
  struct Shard {
    std::string name;
    std::uint64_t size_bytes = 0;
    std::int64_t last_use_ns = 0;
  };
  struct Temporary {
    std::string name;  ///< name of the shard that the file will become
    std::string path;
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;
    std::uint64_t inode = 0;
  };
  struct Contents {
    std::vector<Shard> shards;
    std::vector<Temporary> temporaries;
    std::vector<std::string> records;          ///< names of shards
    std::vector<std::string> notes;            ///< names of shards
    std::vector<std::string> temporary_notes;  ///< paths
    std::vector<std::string> foreign;          ///< names of files that do not belong to the cache
  };
  /// Attributes of a shard's file that change if the file is written to.
  struct QuickCheck {
    std::int64_t mtime_ns = 0;
    std::uint64_t start_hash = 0;

    friend bool operator==(const QuickCheck&, const QuickCheck&) = default;
  };
  /// A shard's record, as specified in docs/formats/cache-directory.md.
  struct Record {
    std::string url;
    std::string validator;
    std::string compression;
    std::uint64_t source_bytes = 0;
    Hash128 source_hash;
    std::uint64_t size_bytes = 0;
    Hash128 hash;
    std::optional<Hash128> checked_as;
    QuickCheck quick_check;
  };

  /// Which other users may read and write the cache.
  enum class Sharing : std::uint8_t {
    kOwn,       ///< no user except root; read-only if this user cannot write to the directory
    kGroup,     ///< members of the directory's group
    kReadOnly,  ///< any user; this process writes nothing
  };
  /// @param create  create the directory if it is missing.
  /// Errors: as ShardCache::open.
  CacheDirectory(std::string path, bool create, Sharing sharing);

  bool is_read_only() const noexcept { return is_read_only_; }
  bool is_own() const noexcept { return sharing_ == Sharing::kOwn; }
  /// True if a user other than root may change the open shard, or may have created it. The shard's
  /// record then proves nothing. The check uses the present permissions of the file and of all its
  /// parent folders.
  bool may_be_changed_by_others(const File& shard) const;

  const std::string& path() const noexcept { return path_; }
  std::string shard_path(const std::string& name) const;
  std::string record_path(const std::string& name) const;
  std::string note_path(const std::string& name) const;
  std::string locks_path() const;
  std::string ledger_path() const;
  std::string futures_path() const;

  enum class Listed : std::uint8_t {
    kAll,
    kBytes,  ///< shards and temporaries, which count against the budget, and foreign files
  };
  /// Lists the files. A shard that is renamed during the listing is counted once.
  Contents scan(Listed listed = Listed::kAll) const;
  [[nodiscard]] static QuickCheck quick_check_of(const File& shard);
  struct RecordFile {
    std::optional<Record> record = {};  ///< nullopt if missing or unreadable
    /// The file is not empty, but is not a record of this shard.
    bool is_damaged = false;
  };
  /// Stores a shard's source URL, without secrets, in an extended attribute of its temporary file.
  /// Does nothing if the file system does not support extended attributes.
  static void note_source(const File& temporary, const std::string& url) noexcept;
  /// Returns the URL that note_source() stored; may be empty.
  [[nodiscard]] static std::string source_of(const std::string& temporary_path);
  /// Makes a new file readable for all users who may read the cache. Call this before the rename.
  void publish(const File& file) const noexcept;
  RecordFile read_record(const std::string& name) const;
  void write_record(const std::string& name, const Record& record) const;
  /// Returns the note of the shard whose bytes have this hash; nullopt if the note is missing or
  /// damaged.
  /// Errors: CannotMap.
  std::optional<Note> read_note(const std::string& name, const Hash128& shard_hash) const;
  /// Errors: kIo, kNoSpace.
  void write_note(const std::string& name, const Hash128& shard_hash, std::string_view text) const;
  /// Removes a shard, its record and its note.
  void remove(const std::string& name) const;
  void remove_record(const std::string& name) const noexcept;
  void remove_note(const std::string& name) const noexcept;

 private:
  Contents list(Listed listed, bool& moved) const;
  /// Returns nullopt if the record belongs to another shard. Throws the JSON parser's exceptions.
  [[nodiscard]] static std::optional<Record> parse_record(const std::string& name,
                                                          const std::string& bytes);

  void require_access(const std::string& path) const;
  void require_nobody_elses(const std::string& path) const;
  void make(bool create) const;

  const std::string path_;
  const Sharing sharing_;
  const bool is_read_only_;
};

/// Returns the size of a regular file; nullopt if it does not exist.
std::optional<std::uint64_t> find_size(const std::string& path);
/// Sets the time of the shard's last use to now.
void touch(const std::string& path) noexcept;

}  // namespace shardwise::detail
