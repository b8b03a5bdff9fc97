#pragma once

#include <cstdint>
#include <functional>

namespace shardwise {

/// How far some long work has come. Totals are known from the beginning; numbers that a kind of
/// work does not count are 0.
struct Progress {
  std::uint64_t bytes_done = 0;  ///< of shards as they are stored
  std::uint64_t num_bytes = 0;
  std::uint64_t shards_done = 0;
  std::uint64_t num_shards = 0;
  std::uint64_t samples = 0;  ///< found so far
};

/// Called now and then, by one thread at a time, not always the same. An exception from it ends the
/// work.
using ProgressCallback = std::function<void(const Progress&)>;

}  // namespace shardwise
