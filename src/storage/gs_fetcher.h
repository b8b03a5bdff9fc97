#pragma once

#include <memory>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Fetches gs://bucket/object from Google Cloud Storage, with credentials from the environment. See
/// docs/remote.md.
std::unique_ptr<Fetcher> make_gs_fetcher(const Fetchers::Options& options);

}  // namespace shardwise
