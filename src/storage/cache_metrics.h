#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork.h"
#include "shardwise/base/export.h"
#include "shardwise/storage/shard_cache.h"

// Statistics in Prometheus' text format, version 0.0.4, for node_exporter's textfile collector.
// Every metric has the label `directory`. Metrics of a single process also have the label `pid`, so
// that the collector can read the files of several processes.

namespace shardwise::detail {

/// Formats the metrics of one process's use of a cache. Pure.
SHARDWISE_EXPORT std::string process_metrics(const ShardCache::Stats& stats,
                                             const ShardCache::Options& options, std::int64_t pid);

/// Formats the metrics of a cache's contents. Pure.
/// @param entries  complete shards.
/// @param coming   shards that are being fetched.
SHARDWISE_EXPORT std::string directory_metrics(const std::vector<ShardCache::Entry>& entries,
                                               const std::vector<ShardCache::Entry>& coming,
                                               std::string_view directory);

/// Replaces a file atomically, by rename, as the collector requires. Not synced.
/// Errors: InvalidArgument if `path` is a device; kIo; kNoSpace.
SHARDWISE_EXPORT void write_metrics(const std::string& path, std::string_view text);

/// Counts this process's use of a cache. Writes the metrics file if the options name one.
///
/// Threads: internally synchronised.
/// Processes: a forked child never writes the metrics file, because it belongs to the parent.
class CacheCounts {
 public:
  explicit CacheCounts(const ShardCache::Options& options) : options_(options) {}
  ~CacheCounts() { try_write(); }
  CacheCounts(const CacheCounts&) = delete;
  CacheCounts& operator=(const CacheCounts&) = delete;

  template <class Change>
  void add(const Change& change) {
    const Lock lock(mutex_);
    change(stats_);
  }
  ShardCache::Stats stats() const;
  std::string metrics() const;
  /// Writes the metrics file if the interval has passed. If the write fails, the next write is
  /// tried after the next interval.
  void write_if_due() noexcept;

 private:
  bool writes_file() const noexcept;
  void try_write() const noexcept;

  const ShardCache::Options& options_;
  const std::uint64_t process_ = process_generation();
  mutable Mutex mutex_;
  ShardCache::Stats stats_ SHARDWISE_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point written_ SHARDWISE_GUARDED_BY(mutex_) = {};
};

}  // namespace shardwise::detail
