#pragma once

#include <string>

namespace shardwise {

/// One text for all names of a source by which a cache may know a shard: of a remote URL the
/// canonical URL without what says who asks and until when, as unsigned_url() says; of a command or
/// a local shard the text itself. Pure.
/// Errors: as canonical_url.
/// Source: docs/formats/cache-directory.md.
std::string source_identity(const std::string& url);

}  // namespace shardwise
