#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/fork.h"
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
  /// Shows at a glance that nobody wrote to a shard.
  struct Glance {
    std::int64_t mtime_ns = 0;
    std::uint64_t start_hash = 0;

    friend bool operator==(const Glance&, const Glance&) = default;
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
    Glance glance;
  };

  /// Errors: as ShardCache::open.
  /// @param create  make the directory if there is none.
  CacheDirectory(std::string path, bool create);

  const std::string& path() const noexcept { return path_; }
  std::string shard_path(const std::string& name) const;
  std::string record_path(const std::string& name) const;
  std::string note_path(const std::string& name) const;
  std::string locks_path() const;

  /// Lists the files that are there. A shard that gets its name meanwhile is counted once.
  Contents scan() const;
  [[nodiscard]] static Glance glance_at(const File& shard);
  struct RecordFile {
    std::optional<Record> record = {};  ///< nothing if there is none, or none that can be read
    bool is_damaged = false;            ///< it is not empty, but no record of this shard
  };
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
  Contents list(bool& moved) const;
  /// Parses a record; returns nothing if it is another shard's. Throws what parsing does.
  [[nodiscard]] static std::optional<Record> parse_record(const std::string& name,
                                                          const std::string& bytes);

  const std::string path_;
};

/// The byte of the locks file that is locked while room is made, ...
inline constexpr std::uint64_t kRoomByte = 0;
/// ... while the shard is fetched, ...
std::uint64_t fetch_byte(std::string_view name);
/// ... and, shared, while it is in use.
std::uint64_t use_byte(std::string_view name);

/// An exclusive lock on a byte of the locks file; freed when this is destroyed or the process ends.
/// Movable.
class [[nodiscard]] ByteLock {
 public:
  /// Takes the lock; returns nothing if another holds it.
  [[nodiscard]] static std::optional<ByteLock> try_take(const CacheDirectory& directory,
                                                        std::uint64_t byte);

 private:
  explicit ByteLock(File file) : file_(std::move(file)) {}
  File file_;  // of its own: closing it frees the lock
};

/// Exclusive locks on any number of bytes of the locks file, with one descriptor; freed when this
/// is destroyed or the process ends.
class ByteLocks {
 public:
  explicit ByteLocks(const CacheDirectory& directory) : directory_(directory) {}
  /// False if another holds it.
  [[nodiscard]] bool try_take(std::uint64_t byte);

 private:
  const CacheDirectory& directory_;
  File file_;
};

/// The shards that this process uses. Threads: internally synchronised.
///
/// After fork() the parent's holds stay the parent's. The child has holds of its own on the shards
/// that the parent kept, from the time on at which it first holds or releases one.
class UseTable {
 public:
  explicit UseTable(const CacheDirectory& directory) : directory_(directory) {}

  /// One user of a shard. Until it is kept, it belongs to a thread that may not exist after fork().
  struct Hold {
    std::uint64_t process = 0;
    bool is_kept = false;
  };
  /// Counts a user of the shard. Returns nothing while it is being evicted, which is brief.
  [[nodiscard]] std::optional<Hold> try_hold(const std::string& name);
  /// Marks a hold that a forked child has a copy of, and will release.
  void keep(const std::string& name, Hold& hold) noexcept;
  void release(const std::string& name, const Hold& hold) noexcept;

 private:
  struct Users {
    std::size_t passing = 0;
    std::size_t kept = 0;
    bool is_locked = false;
  };
  /// In a forked child: drops the users that are the parent's alone.
  void adopt() noexcept SHARDWISE_REQUIRES(mutex_);
  /// Opens the locks file if that has not been done by this process, or if it was unlinked.
  void renew() SHARDWISE_REQUIRES(mutex_);

  const CacheDirectory& directory_;
  Mutex mutex_;
  File file_ SHARDWISE_GUARDED_BY(mutex_);  // a child finds it closed
  std::uint64_t process_ SHARDWISE_GUARDED_BY(mutex_) = process_generation();
  std::map<std::string, Users> users_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
