#pragma once

#include <memory>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// For http and https.
std::unique_ptr<Fetcher> make_http_fetcher(const Fetchers::Options& options);

}  // namespace shardwise
