#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/storage/fetcher.h"
#include "storage/aws_profile.h"
#include "storage/http_client.h"
#include "storage/machine_service.h"

namespace shardwise {

/// Keys for requests to AWS.
struct AwsKeys {
  std::string access_key_id;  ///< empty for anonymous requests
  std::string secret_access_key;
  std::string session_token;
  std::string source;  ///< where the keys come from, for messages, e.g. "the environment"
  /// Expiry time; nullopt if it is unknown or the keys never expire.
  std::optional<std::chrono::system_clock::time_point> expires = {};

  bool are_there() const { return !access_key_id.empty(); }
  const std::string& id() const { return access_key_id; }
};

/// Returns the domain of AWS's services in a region, e.g. "us-east-1.amazonaws.com".
std::string aws_domain(const std::string& region);

/// A role to assume.
struct AwsRole {
  std::string arn;
  std::string session_name;      ///< empty means "shardwise"
  std::string external_id = {};  ///< optional
  std::string duration_seconds = {};
  std::string region;
  /// Address of STS, the service that issues the role's keys; empty means AWS's own.
  std::string endpoint = {};
};

/// The services that issue keys. Each call sends requests; answers are not cached.
///
/// Threads: any.
/// Errors: FetchError if the service refuses, fails or returns no keys; InvalidArgument for an
///   invalid setting or token; Cancelled. Messages never contain a key or a token.
class AwsServices {
 public:
  explicit AwsServices(const Fetchers::Options& options);

  AwsKeys assume_role(const AwsRole& role, const AwsKeys& by, const CancelToken& cancel);
  AwsKeys assume_role_with_web_identity(const AwsRole& role, const std::string& token_file,
                                        const CancelToken& cancel);
  /// Gets the keys of the role that an SSO profile names. Uses the token that `aws sso login`
  /// stored.
  AwsKeys sso(const AwsSettings& profile, const CancelToken& cancel);
  /// Gets keys from the container's credentials service. REQUIRES: has_container().
  AwsKeys container(const CancelToken& cancel);
  static bool has_container();
  /// Gets keys from the machine's metadata service (IMDSv2); empty if it does not answer or has no
  /// role.
  AwsKeys instance(const CancelToken& cancel);
  /// Runs a credential_process command, and parses its output.
  AwsKeys process(const std::string& command, const CancelToken& cancel);

 private:
  AwsKeys ask_sts(const std::vector<std::pair<std::string, std::string>>& form, const AwsRole& role,
                  const AwsKeys& by, const CancelToken& cancel);
  /// Returns the body of an answer with status 200. Errors: FetchError with `remedy` for any other
  /// status.
  std::string ask(HttpClient& client, const HttpTarget& target, const HttpQuery& query,
                  const std::string& remedy, const CancelToken& cancel);

  HttpClient client_;
  MachineService machine_;
};

}  // namespace shardwise
