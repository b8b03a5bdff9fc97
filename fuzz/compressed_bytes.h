#pragma once

#include <string>
#include <string_view>

#include "shardwise/base/compression.h"

namespace shardwise::fuzz {

/// Returns one stream, as the codec's command-line tool makes it. If `checked` is false, it has no
/// checksum of its content.
/// REQUIRES: `checked` is true, or the compression is zstd, xz or lz4.
std::string compressed_bytes(std::string_view bytes, Compression compression, bool checked = true);

}  // namespace shardwise::fuzz
