#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/aws_services.h"
#include "storage/kept_credentials.h"

namespace shardwise {

/// Finds the keys for requests to S3, in the order that Fetchers::S3Options documents.
///
/// Keys that a service gave are kept: see KeptCredentials.
///
/// Threads: internally synchronised. Processes: a forked child keeps what its parent had.
class AwsKeyChain {
 public:
  explicit AwsKeyChain(const Fetchers::Options& options)
      : options_(options.s3), services_(options) {}

  /// The keys; none if nobody has any.
  /// @param refused  the server refused these, so that others are needed.
  /// Errors: those of AwsServices; InvalidArgument for settings that contradict each other.
  AwsKeys find(const Refused& refused, const CancelToken& cancel);

 private:
  /// Somebody who has keys.
  struct Origin {
    std::string name;  ///< tells it from others; empty: to be asked each time
    std::function<AwsKeys(const CancelToken&)> ask;
  };
  std::optional<Origin> find_origin();
  std::optional<Origin> origin_in_profile(const std::string& name, bool must_be_there, int depth);
  Origin role_in_profile(const std::string& name, const AwsSettings& profile, int depth);
  Origin source_of_role(const std::string& name, const AwsSettings& profile, int depth);
  Origin instance_origin();
  std::string region(const AwsSettings& profile) const;

  const Fetchers::S3Options options_;
  AwsServices services_;
  KeptCredentials<AwsKeys> kept_;
};

}  // namespace shardwise
