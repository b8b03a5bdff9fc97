#pragma once

#include <memory>
#include <string>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Fetches hf://datasets/owner/name[@revision]/path and hf://buckets/owner/name/path from the
/// Hugging Face Hub, with the token that the environment provides. See docs/remote.md.
std::unique_ptr<Fetcher> make_hf_fetcher(const Fetchers::Options& options);

/// A file or folder in a repository of the Hub.
struct HubPath {
  std::string kind;  ///< "datasets", "spaces", "models", "kernels", or "buckets"
  std::string repository;
  std::string revision;  ///< "main" by default; empty for a bucket, which has no revisions
  std::string path;
};

/// Parses an hf: URL.
/// @param may_be_start  the path is a prefix for a listing, and may be empty.
/// Errors: InvalidArgument.
HubPath parse_hub_path(const std::string& url, bool may_be_start = false);

}  // namespace shardwise
