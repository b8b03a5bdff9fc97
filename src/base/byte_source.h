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
  struct Part {
    std::uint64_t offset = 0;
    std::span<char> to = {};  ///< receives the bytes from `offset` on
  };
  /// Reads several parts, which takes less time than to read one after another.
  /// REQUIRES: the source has these bytes.
  /// Errors: an Error that names the source, if the bytes cannot be read or have changed.
  virtual void read_parts(std::span<const Part> parts) const = 0;
  void read(std::uint64_t offset, std::span<char> to) const {
    const Part part{offset, to};
    read_parts({&part, 1});
  }
  /// True if all bytes come over a network, so that none should be read twice.
  [[nodiscard]] virtual bool is_remote() const noexcept = 0;
  /// Returns the size of a read that costs about as much as a read of one byte.
  [[nodiscard]] virtual std::size_t cheap_read_bytes() const noexcept = 0;
};

}  // namespace shardwise::detail
