#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardwise::detail {

/// Bytes of known size that are read in parts, e.g. a field of a shard.
/// Threads: one at a time.
class ByteSource {
 public:
  ByteSource() = default;
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  /// Fills `to` with the bytes from `offset` on. REQUIRES: the source has these bytes.
  /// Errors: an Error that names the source, if the bytes cannot be read or have changed.
  virtual void read(std::uint64_t offset, std::span<char> to) const = 0;
  /// Returns the size of a read that costs about as much as a read of one byte.
  [[nodiscard]] virtual std::size_t cheap_read_bytes() const noexcept = 0;
};

}  // namespace shardwise::detail
