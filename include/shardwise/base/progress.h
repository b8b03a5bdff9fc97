#pragma once

#include <cstdint>
#include <functional>

namespace shardwise {

/// The progress of a long operation. The totals are known from its beginning. A field that the
/// operation does not count is 0.
struct Progress {
  std::uint64_t bytes_done = 0;  ///< of shards, as stored (compressed shards are not expanded)
  std::uint64_t num_bytes = 0;
  std::uint64_t shards_done = 0;
  std::uint64_t num_shards = 0;
  std::uint64_t samples = 0;  ///< found so far
};

/// Receives progress from time to time. An exception from the callback ends the operation.
/// Threads: called by one thread at a time, not always the same one.
using ProgressCallback = std::function<void(const Progress&)>;

}  // namespace shardwise
