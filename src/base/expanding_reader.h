#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shardwise/base/compression.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns `name` without a suffix ".gz", ".zst", ".xz", ".bz2" or ".lz4".
SHARDWISE_EXPORT std::string_view without_compression_suffix(std::string_view name) noexcept;

/// Returns the compression that the suffix of `name` denotes, or kNone if it denotes no
/// compression.
SHARDWISE_EXPORT Compression compression_by_suffix(std::string_view name) noexcept;

/// Detects the compression of a file by its first 512 bytes. It skips leading skippable frames,
/// which pzstd writes. If these frames fill all 512 bytes, it returns zstd.
SHARDWISE_EXPORT Compression detect_compression(std::string_view first_bytes) noexcept;

/// Limits on the expansion of a compressed file. A small file can expand to terabytes of zeros.
struct ExpansionLimits {
  std::uint64_t max_bytes = std::uint64_t{1} << 40;
  /// Largest number of expanded bytes per compressed byte. The limit does not apply below 64 MiB.
  /// Deflate reaches at most 1,032.
  std::uint64_t max_ratio = 1100;
  /// Largest distance of a stream's back-references. zstd and xz allocate a buffer of the stream's
  /// window size, but touch only the part in use. `zstd --long=31` uses 2 GiB; its default is 8
  /// MiB.
  std::uint64_t max_window_bytes = std::uint64_t{1} << 31;
};

/// The reason why bytes cannot be expanded, for an error text.
class SHARDWISE_EXPORT ExpansionFailure : public std::runtime_error {
 public:
  ExpansionFailure(const std::string& why, bool is_beyond_max_bytes)
      : std::runtime_error(why), is_beyond_max_bytes_(is_beyond_max_bytes) {}

  /// True if a larger ExpansionLimits::max_bytes would help.
  [[nodiscard]] bool is_beyond_max_bytes() const noexcept { return is_beyond_max_bytes_; }

 private:
  bool is_beyond_max_bytes_;
};

struct ExpandedBytes {
  std::unique_ptr<char[]> bytes;
  std::size_t size = 0;
};

/// Expands all of `compressed` at once. Use it for small data, and ExpandingReader for large data.
/// REQUIRES: compression is not kNone.
/// Errors: ExpansionFailure.
/// Cost: up to twice limits.max_bytes of memory.
SHARDWISE_EXPORT ExpandedBytes expand_all(std::string_view compressed, Compression compression,
                                          const ExpansionLimits& limits);

/// Reads the expanded bytes of a compressed file in memory, from front to back. The file is one
/// stream (a gzip member, a zstd frame), or several streams, whose contents are joined as by the
/// command-line tools. All checksums are checked. Between streams and at the end there may be
/// zeros, and skippable frames of zstd and lz4. Anything else is damage.
/// Threads: one.
class SHARDWISE_EXPORT ExpandingReader {
 public:
  /// @param compressed  must outlive the reader.
  /// @param name        the file's name, for error texts.
  /// REQUIRES: compression is not kNone.
  /// Errors: those of read().
  ExpandingReader(std::string_view compressed, Compression compression, std::string name,
                  const ExpansionLimits& limits = {});
  ~ExpandingReader();
  ExpandingReader(ExpandingReader&&) noexcept;
  ExpandingReader& operator=(ExpandingReader&&) noexcept;

  /// Fills `buffer`, and returns the number of bytes. It is smaller than `size` only at the end,
  /// when all checksums have matched. Bytes returned before the end are unverified.
  /// Errors: CorruptShard (damaged or truncated; the text has the offsets in the file and in its
  ///   expanded bytes); Unsupported (a limit is exceeded, or the stream needs a dictionary).
  std::size_t read(char* buffer, std::size_t size);
  /// Expanded bytes returned so far.
  std::uint64_t position() const noexcept;
  /// Compressed bytes consumed so far.
  std::uint64_t compressed_position() const noexcept;
  /// True if any stream that was reached so far has no checksum of its content. Damage in such a
  /// stream may be undetected. zstd, xz and lz4 can write such streams.
  bool unchecked() const noexcept;

 private:
  friend ExpandedBytes expand_all(std::string_view compressed, Compression compression,
                                  const ExpansionLimits& limits);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::compression_by_suffix;
using detail::detect_compression;
using detail::expand_all;
using detail::ExpandedBytes;
using detail::ExpandingReader;
using detail::ExpansionFailure;
using detail::ExpansionLimits;
using detail::without_compression_suffix;
}  // namespace shardwise
