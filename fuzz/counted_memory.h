#pragma once

#include <cstddef>

namespace shardwise::fuzz {

/// Counts this thread's allocations from malloc() while it exists, including those of the image
/// libraries. Only one object may exist at a time.
class CountedMemory {
 public:
  CountedMemory() noexcept;
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// The largest number of bytes that were allocated at one time, without allocations from before
  /// the constructor.
  [[nodiscard]] std::size_t peak() const noexcept;
};

}  // namespace shardwise::fuzz
