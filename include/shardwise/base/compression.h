#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// How a file is compressed as a whole.
enum class Compression : std::uint8_t { kNone, kGzip, kZstd, kXz, kBzip2, kLz4 };

/// "none", "gzip", "zstd", "xz", "bzip2", "lz4".
SHARDWISE_EXPORT std::string_view compression_name(Compression compression) noexcept;
/// The other way round. Errors: InvalidArgument, with the valid names.
SHARDWISE_EXPORT Compression parse_compression(std::string_view name);

/// By content, never by name: from the first bytes of a file, of which six are enough.
SHARDWISE_EXPORT Compression detect_compression(std::string_view first_bytes) noexcept;

/// What a compressed file may expand to: a small file can stand for terabytes of zeros.
struct ExpansionLimits {
  std::uint64_t max_bytes = std::uint64_t{1} << 40;
  /// Expanded bytes a compressed byte. Not applied below 64 MiB. Deflate reaches 1,032 at most.
  std::uint64_t max_ratio = 1100;
};

/// Reads the expanded bytes of a compressed file in memory, from front to back. Frames and members
/// one after another are read as one, as their command-line tools do. One thread.
class SHARDWISE_EXPORT ExpandingReader {
 public:
  /// @param compressed  must outlive the reader.
  /// @param name        of the file, for error texts.
  /// REQUIRES: compression is not kNone.
  /// Errors: Unsupported, if the system's libarchive was built without this compression.
  ExpandingReader(std::string_view compressed, Compression compression, std::string name,
                  const ExpansionLimits& limits = {});
  ~ExpandingReader();
  ExpandingReader(ExpandingReader&&) noexcept;
  ExpandingReader& operator=(ExpandingReader&&) noexcept;

  /// Fills `buffer`; fewer bytes only at the end.
  /// Errors: CorruptShard (damaged or truncated, with the expanded offset); Unsupported (beyond the
  ///   limits).
  std::size_t read(char* buffer, std::size_t size);
  /// Expanded bytes read so far.
  std::uint64_t position() const noexcept;
  /// How much of the compressed bytes that took.
  std::uint64_t compressed_position() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
