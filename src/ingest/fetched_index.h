#pragma once

#include <string>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/ingest/index_cache.h"

namespace shardwise::detail {

/// True for the URL of an index: its path ends in ".idx".
bool is_index_url(std::string_view name);

/// Returns the path of this user's copy of the index at `url`. Fetches the index first if there is
/// no copy, or the server has another version. See index_for().
std::string fetched_index(const std::string& url, const IndexCacheOptions& options);

}  // namespace shardwise::detail
