#pragma once

#include <string>

namespace shardwise {

/// Returns the text by which a cache identifies a shard's source. All names of one source give the
/// same text. For a remote URL it is the canonical URL without credentials and expiry, see
/// unsigned_url(). For a command or a local shard it is `url` unchanged. Pure.
/// Errors: as canonical_url.
/// Source: docs/formats/cache-directory.md.
std::string source_identity(const std::string& url);

}  // namespace shardwise
