#pragma once

#include <string>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// The credentials and the place for requests to S3, once everything was looked up.
struct S3Access {
  std::string access_key_id;  ///< empty: requests are anonymous
  std::string secret_access_key;
  std::string session_token;
  std::string region;
  std::string endpoint;  ///< empty: AWS's own
  std::string source;    ///< where the keys come from, for people: "the environment"
};

/// Looks up what Fetchers::S3Options leaves open, in the order that it documents. Reads the
/// environment and two small files; runs nothing, and asks no service.
/// Errors: InvalidArgument: half a pair of keys, or a named profile that is in neither file.
S3Access resolve_s3_access(const Fetchers::S3Options& options);

}  // namespace shardwise
