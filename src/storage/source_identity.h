#pragma once

#include <string>

namespace shardwise {

/// One text for all names of a source, by which a cache identifies a shard. Pure. For a remote URL
/// it is the canonical URL without credentials and expiry, see unsigned_url(). For a command or a
/// local shard it is the text itself.
/// Errors: as canonical_url.
/// Source: docs/formats/cache-directory.md.
std::string source_identity(const std::string& url);

}  // namespace shardwise
