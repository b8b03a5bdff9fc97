#pragma once

#include <cstdint>
#include <functional>

namespace shardwise {

/// The progress of long work. Totals are known from the beginning. A number that this kind of work
/// does not count is 0.
struct Progress {
  std::uint64_t bytes_done = 0;  ///< of shards, in the size that they are stored in
  std::uint64_t num_bytes = 0;
  std::uint64_t shards_done = 0;
  std::uint64_t num_shards = 0;
  std::uint64_t samples = 0;  ///< found so far
};

/// Receives progress from time to time. An exception from the callback ends the work.
/// Threads: called by one thread at a time, not always the same one.
using ProgressCallback = std::function<void(const Progress&)>;

}  // namespace shardwise
