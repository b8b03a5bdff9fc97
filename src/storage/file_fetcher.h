#pragma once

#include <memory>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// For file:///path. The validator is made of what file_identity tells.
std::unique_ptr<Fetcher> make_file_fetcher();

}  // namespace shardwise
