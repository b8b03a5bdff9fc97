#pragma once

#include <memory>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Fetches file:///path. The validator is derived from the file's identity.
std::unique_ptr<Fetcher> make_file_fetcher();

}  // namespace shardwise
