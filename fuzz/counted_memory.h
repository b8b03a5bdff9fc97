#pragma once

#include <cstddef>

namespace shardwise::fuzz {

/// Counts what this thread takes from malloc(), in the image libraries too, as long as it lives.
/// One at a time.
class CountedMemory {
 public:
  CountedMemory() noexcept;
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// The most bytes that were held at once; what was held before does not count.
  [[nodiscard]] std::size_t peak() const noexcept;
};

}  // namespace shardwise::fuzz
