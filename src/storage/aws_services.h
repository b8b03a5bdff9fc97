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

/// Who asks AWS.
struct AwsKeys {
  std::string access_key_id;  ///< empty: nobody; requests are anonymous
  std::string secret_access_key;
  std::string session_token;
  std::string source;  ///< where they come from, for people: "the environment"
  /// When they are void; nothing: never, as far as is known.
  std::optional<std::chrono::system_clock::time_point> expires = {};

  bool are_there() const { return !access_key_id.empty(); }
  const std::string& id() const { return access_key_id; }
};

/// A role to assume.
struct AwsRole {
  std::string arn;
  std::string session_name;      ///< empty: "shardwise"
  std::string external_id = {};  ///< empty: none
  std::string duration_seconds = {};
  std::string region;
  std::string endpoint = {};  ///< of the service that gives its keys (STS); empty: AWS's own
};

/// The services that give keys. Each call asks; nothing is kept.
///
/// Threads: any.
/// Errors: FetchError (the service refused, failed, or gave no keys), InvalidArgument (a setting or
///   a token that is not valid), Cancelled. No text holds a key or a token.
class AwsServices {
 public:
  explicit AwsServices(const Fetchers::Options& options);

  AwsKeys assume_role(const AwsRole& role, const AwsKeys& by, const CancelToken& cancel);
  AwsKeys assume_role_with_web_identity(const AwsRole& role, const std::string& token_file,
                                        const CancelToken& cancel);
  /// Keys of the role that an SSO profile names, by the token that `aws sso login` left.
  AwsKeys sso(const AwsSettings& profile, const CancelToken& cancel);
  /// Those of the container's service. REQUIRES: has_container().
  AwsKeys container(const CancelToken& cancel);
  static bool has_container();
  /// Those of the machine's service (IMDSv2); none if it does not answer, or has no role.
  AwsKeys instance(const CancelToken& cancel);
  /// What the command prints.
  AwsKeys process(const std::string& command, const CancelToken& cancel);

 private:
  AwsKeys ask_sts(const std::vector<std::pair<std::string, std::string>>& form, const AwsRole& role,
                  const AwsKeys& by, const CancelToken& cancel);
  /// The text of a 200. Errors: FetchError, with `remedy`, for all else.
  std::string ask(HttpClient& client, const HttpTarget& target, const HttpQuery& query,
                  const std::string& remedy, const CancelToken& cancel);

  HttpClient client_;
  MachineService machine_;
};

}  // namespace shardwise
