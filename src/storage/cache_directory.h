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

/// The files of a shard cache, as docs/formats/cache-directory.md draws them. Immutable; any thread
/// and process.
class CacheDirectory {
 public:
  struct Shard {
    std::string name;
    std::uint64_t size_bytes = 0;
    std::int64_t last_use_ns = 0;
  };
  struct Temporary {
    std::string name;  ///< name of the shard that it is to become
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
    std::vector<std::string> foreign;          ///< file names
  };
  /// Shows without reading it that nobody wrote to a shard.
  struct QuickCheck {
    std::int64_t mtime_ns = 0;
    std::uint64_t start_hash = 0;

    friend bool operator==(const QuickCheck&, const QuickCheck&) = default;
  };
  /// A record, as that page specifies it.
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

  /// Who reads and writes it, besides other processes of this user.
  enum class Sharing : std::uint8_t {
    kOwn,       ///< nobody; read only, if this user may not write to what is this user's or root's
    kGroup,     ///< its group
    kReadOnly,  ///< whoever may; this process writes nothing
  };
  /// Errors: as ShardCache::open.
  /// @param create  make the directory if there is none.
  CacheDirectory(std::string path, bool create, Sharing sharing);

  bool is_read_only() const noexcept { return is_read_only_; }
  bool is_own() const noexcept { return sharing_ == Sharing::kOwn; }
  /// True if another user than root may change the open shard, or may have put it there: by the
  /// rights that it, its folders and those above them have now. Its record is worth no more.
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
    kBytes,  ///< no records and notes: what takes of the budget, and what is not the cache's
  };
  /// Lists the files that are there. A shard that gets its name meanwhile is counted once.
  Contents scan(Listed listed = Listed::kAll) const;
  [[nodiscard]] static QuickCheck quick_check_of(const File& shard);
  struct RecordFile {
    std::optional<Record> record = {};  ///< nothing if there is none, or none that can be read
    bool is_damaged = false;            ///< it is not empty, but no record of this shard
  };
  /// Writes a temporary file's source on it, without what may be secret: where its file system
  /// keeps no such attributes, nothing is known of what comes.
  static void note_source(const File& temporary, const std::string& url) noexcept;
  /// What was written; empty: nothing.
  [[nodiscard]] static std::string source_of(const std::string& temporary_path);
  /// Lets those read a file of the cache who may read the cache, before it gets its name.
  void publish(const File& file) const noexcept;
  RecordFile read_record(const std::string& name) const;
  void write_record(const std::string& name, const Record& record) const;
  /// The note of the shard whose bytes have this hash: nothing if there is none that is intact.
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
  /// Parses a record; returns nothing if it is another shard's. Throws what parsing does.
  [[nodiscard]] static std::optional<Record> parse_record(const std::string& name,
                                                          const std::string& bytes);

  void require_access(const std::string& path) const;
  void require_nobody_elses(const std::string& path) const;
  void make(bool create) const;

  const std::string path_;
  const Sharing sharing_;
  const bool is_read_only_;
};

/// The size of a regular file; nothing if there is none.
std::optional<std::uint64_t> find_size(const std::string& path);
/// Sets the shard's last use to now.
void touch(const std::string& path) noexcept;

}  // namespace shardwise::detail
