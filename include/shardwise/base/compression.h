#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// How a file is compressed as a whole.
enum class Compression : std::uint8_t { kNone, kGzip, kZstd, kXz, kBzip2, kLz4 };

/// Returns "none", "gzip", "zstd", "xz", "bzip2" or "lz4".
SHARDWISE_EXPORT std::string_view compression_name(Compression compression) noexcept;
/// Parses a name that compression_name() returns.
/// Errors: InvalidArgument; the text lists the valid names.
SHARDWISE_EXPORT Compression parse_compression(std::string_view name);

}  // namespace shardwise
