#pragma once

#include <memory>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// For gs://bucket/object: Google Cloud Storage, with the credentials of the environment. See
/// docs/remote.md.
std::unique_ptr<Fetcher> make_gs_fetcher(const Fetchers::Options& options);

}  // namespace shardwise
