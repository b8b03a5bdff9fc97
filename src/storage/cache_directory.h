#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "shardwise/base/file.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {

/// The files of a shard cache, as shard_cache.h draws them. Immutable; any thread and process.
class CacheDirectory {
 public:
  struct Shard {
    std::string name;
    std::uint64_t size_bytes = 0;
    std::int64_t last_use_ns = 0;
  };
  struct Temporary {
    std::string name;  ///< of the shard that it is to become
    std::string path;
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;
    std::uint64_t inode = 0;
  };
  struct Contents {
    std::vector<Shard> shards;
    std::vector<Temporary> temporaries;
    std::vector<std::string> records;  ///< names of shards
    std::vector<std::string> foreign;  ///< file names
  };
  struct Record {
    std::string url;  ///< nothing secret in it
    std::uint64_t size_bytes = 0;
    Hash128 hash;
  };

  /// Errors: as ShardCache::open.
  /// @param create  make the directory if there is none.
  CacheDirectory(std::string path, bool create);

  const std::string& path() const noexcept { return path_; }
  std::string shard_path(const std::string& name) const;
  std::string record_path(const std::string& name) const;
  std::string locks_path() const;

  /// What is there. A shard that gets its name meanwhile is counted once.
  Contents scan() const;
  /// Nothing if there is none, or none that can be read.
  std::optional<Record> read_record(const std::string& name) const;
  void write_record(const std::string& name, const Record& record) const;
  /// Removes a shard and its record.
  void remove(const std::string& name) const;

 private:
  Contents list(bool& moved) const;

  const std::string path_;
};

/// The byte of the locks file that is locked while room is made, ...
inline constexpr std::uint64_t kRoomByte = 0;
/// ... while the shard is fetched, ...
std::uint64_t fetch_byte(std::string_view name);
/// ... and, shared, while it is in use.
std::uint64_t use_byte(std::string_view name);

/// An exclusive lock on a byte of the locks file; free when this goes, or the process does.
/// Movable.
class ByteLock {
 public:
  /// Nothing if another holds it.
  static std::optional<ByteLock> try_take(const CacheDirectory& directory, std::uint64_t byte);

 private:
  explicit ByteLock(File file) : file_(std::move(file)) {}
  File file_;  // of its own: closing it frees the lock
};

/// The shards that this process uses. Threads: internally synchronised.
class UseTable {
 public:
  explicit UseTable(const CacheDirectory& directory) : directory_(directory) {}

  /// Counts a user of the shard. Nothing while somebody evicts it, which takes no time.
  /// @return  what release() is to be given.
  std::optional<std::uint64_t> try_hold(const std::string& name);
  /// Of a hold that was taken before fork() nothing is done in the child: the parent has it.
  void release(const std::string& name, std::uint64_t generation) noexcept;

 private:
  /// Opens the locks file if that has not been done by this process, or if it was unlinked.
  void renew();

  const CacheDirectory& directory_;
  std::mutex mutex_;
  File file_;  // guarded by mutex_, as all below
  pid_t owner_ = 0;
  std::uint64_t generation_ = 0;
  std::map<std::string, std::size_t> counts_;
};

}  // namespace shardwise::detail
