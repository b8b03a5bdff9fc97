#pragma once

#include <cstddef>

namespace shardwise::fuzz {

/// Counts this thread's allocations from malloc(), with those of the image libraries, while it
/// lives. Only one may exist at a time.
class CountedMemory {
 public:
  CountedMemory() noexcept;
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// The most bytes allocated at once, without those from before the constructor.
  [[nodiscard]] std::size_t peak() const noexcept;
};

}  // namespace shardwise::fuzz
