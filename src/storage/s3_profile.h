#pragma once

#include <optional>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/aws_services.h"

namespace shardwise {

/// The resolved credentials, region and endpoint for requests to S3.
struct S3Access {
  AwsKeys keys;
  std::string region;
  std::string endpoint;                 ///< empty means AWS's own
  std::optional<bool> path_style = {};  ///< see Fetchers::S3Options::path_style
};

/// Resolves the options that Fetchers::S3Options leaves unset, in the order documented there. Reads
/// the environment and two small files.
/// Errors: InvalidArgument if neither file has the named profile.
S3Access resolve_s3_access(const Fetchers::S3Options& options, const AwsKeys& keys);

}  // namespace shardwise
