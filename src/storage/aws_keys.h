#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/aws_services.h"
#include "storage/kept_credentials.h"

namespace shardwise {

/// Finds the keys for requests to S3. Fetchers::S3Options documents the order in which sources are
/// tried.
///
/// Keys that come from a service are cached; see KeptCredentials.
///
/// Threads: internally synchronised.
/// Processes: a forked child inherits the cached keys.
class AwsKeyChain {
 public:
  explicit AwsKeyChain(const Fetchers::Options& options)
      : options_(options.s3), services_(options) {}

  /// Returns the keys; empty if no source has keys.
  /// @param refused  id() of the keys that the server refused; they are not taken from the cache
  ///   again.
  /// Errors: as AwsServices; InvalidArgument for contradictory settings.
  AwsKeys find(const Refused& refused, const CancelToken& cancel);

 private:
  /// A source of keys.
  struct Origin {
    std::string name;  ///< cache key; empty if the keys of this source are not cached
    std::function<AwsKeys(const CancelToken&)> ask;
  };
  std::optional<Origin> find_origin();
  std::optional<Origin> origin_in_profile(const std::string& name, bool must_be_there, int depth);
  Origin role_in_profile(const std::string& name, const AwsSettings& profile, int depth);
  Origin source_of_role(const std::string& name, const AwsSettings& profile, int depth);
  static Origin fixed(const AwsKeys& keys);
  Origin container_origin();
  Origin instance_origin();
  Origin web_identity_origin(const AwsRole& role, const std::string& token_file);

  const Fetchers::S3Options options_;
  AwsServices services_;
  KeptCredentials<AwsKeys> kept_;
};

}  // namespace shardwise
