#pragma once

#include <string>
#include <string_view>

#include "shardwise/base/compression.h"

namespace shardwise::fuzz {

/// One stream, as the codec's command-line tool makes it. Without `checked`, it has no checksum of
/// its content.
/// REQUIRES: checked, or zstd, xz or lz4.
std::string compressed_bytes(std::string_view bytes, Compression compression, bool checked = true);

}  // namespace shardwise::fuzz
