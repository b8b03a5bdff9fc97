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

/// The name without the ".gz", ".zst", ".xz", ".bz2" or ".lz4" that it ends with, if it does.
SHARDWISE_EXPORT std::string_view without_compression_suffix(std::string_view name) noexcept;

/// What such a name says; kNone without one.
SHARDWISE_EXPORT Compression compression_by_suffix(std::string_view name) noexcept;

/// By content, never by name: from the first bytes of a file, of which 512 are looked at. Skippable
/// frames in front, as pzstd writes them, are stepped over; where they reach further it is zstd.
SHARDWISE_EXPORT Compression detect_compression(std::string_view first_bytes) noexcept;

/// Limits on what a compressed file may expand to: a small file can stand for terabytes of zeros.
struct ExpansionLimits {
  std::uint64_t max_bytes = std::uint64_t{1} << 40;
  /// Expanded bytes a compressed byte. Not applied below 64 MiB. Deflate reaches 1,032 at most.
  std::uint64_t max_ratio = 1100;
  /// How far back a stream may refer, for which zstd and xz hold that much memory: the whole of it
  /// is asked for, what is used is touched. `zstd --long=31` has 2 GiB, its default is 8 MiB.
  std::uint64_t max_window_bytes = std::uint64_t{1} << 31;
};

/// Why bytes cannot be expanded: a reason for an error text.
class SHARDWISE_EXPORT ExpansionFailure : public std::runtime_error {
 public:
  ExpansionFailure(const std::string& why, bool is_beyond_max_bytes)
      : std::runtime_error(why), is_beyond_max_bytes_(is_beyond_max_bytes) {}

  /// Whether a larger ExpansionLimits::max_bytes would help.
  [[nodiscard]] bool is_beyond_max_bytes() const noexcept { return is_beyond_max_bytes_; }

 private:
  bool is_beyond_max_bytes_;
};

struct ExpandedBytes {
  std::unique_ptr<char[]> bytes;
  std::size_t size = 0;
};

/// All that small compressed bytes expand to, at once; see ExpandingReader.
/// REQUIRES: compression is not kNone.
/// Errors: ExpansionFailure.
/// Cost: up to twice limits.max_bytes of memory, if they expand to that much.
SHARDWISE_EXPORT ExpandedBytes expand_all(std::string_view compressed, Compression compression,
                                          const ExpansionLimits& limits);

/// Reads the expanded bytes of a compressed file in memory, from front to back. The file is one
/// stream (gzip's members, zstd's frames), or several that are read as one, as their command-line
/// tools do. Each is checked against every checksum that it carries. Between streams and at the end
/// there may be zeros, and for zstd and lz4 skippable frames; anything else is damage. One thread.
class SHARDWISE_EXPORT ExpandingReader {
 public:
  /// @param compressed  must outlive the reader.
  /// @param name        of the file, for error texts.
  /// REQUIRES: compression is not kNone.
  /// Errors: those of read().
  ExpandingReader(std::string_view compressed, Compression compression, std::string name,
                  const ExpansionLimits& limits = {});
  ~ExpandingReader();
  ExpandingReader(ExpandingReader&&) noexcept;
  ExpandingReader& operator=(ExpandingReader&&) noexcept;

  /// Fills `buffer`; fewer bytes only at the end, and then all checksums were right: what was given
  /// before is not to be believed until then.
  /// Errors: CorruptShard (damaged or truncated, with the offsets in the file and in what it
  ///   expands to); Unsupported (beyond the limits, or it needs a dictionary).
  std::size_t read(char* buffer, std::size_t size);
  /// Expanded bytes read so far.
  std::uint64_t position() const noexcept;
  /// How much of the compressed bytes that took.
  std::uint64_t compressed_position() const noexcept;
  /// True if a stream that was begun so far carries no checksum over its content: damage to it may
  /// go unseen. zstd, xz and lz4 can be written so.
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
