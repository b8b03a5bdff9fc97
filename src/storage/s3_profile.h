#pragma once

#include <optional>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/aws_services.h"

namespace shardwise {

/// The credentials and the place for requests to S3, once everything was looked up.
struct S3Access {
  AwsKeys keys;
  std::string region;
  std::string endpoint;                 ///< empty: AWS's own
  std::optional<bool> path_style = {};  ///< as Fetchers::S3Options has it
};

/// Looks up the place, where Fetchers::S3Options leaves it open, in the order that it documents:
/// the environment and two small files are read.
/// Errors: InvalidArgument: a named profile that is in neither file.
S3Access resolve_s3_access(const Fetchers::S3Options& options, const AwsKeys& keys);

}  // namespace shardwise
