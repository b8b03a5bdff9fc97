#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/access_token.h"
#include "storage/http_client.h"
#include "storage/kept_credentials.h"
#include "storage/machine_service.h"

namespace shardwise {

/// Tokens for Google's services, as their libraries find them ("application default credentials"):
/// the file that GOOGLE_APPLICATION_CREDENTIALS names, or the one that `gcloud auth
/// application-default login` left: a service account, a user, or an external account (workload
/// identity federation: another provider's token, from a file or an address, is exchanged for one
/// of Google's, and that for a service account's, if one is to be impersonated); else the metadata
/// server of a machine of Google's. Without any of these: none.
///
/// Threads: internally synchronised.
class GoogleTokens {
 public:
  explicit GoogleTokens(const Fetchers::Options& options);

  /// @param refused  the server refused it, so that another is needed.
  /// Errors: InvalidArgument (a file that is malformed), Unsupported (credentials of another kind),
  ///   FetchError, Cancelled. No text holds a key or a token.
  AccessToken find(const Refused& refused, const CancelToken& cancel);

 private:
  AccessToken of_file(const std::string& path, const CancelToken& cancel);
  AccessToken of_external_account(const nlohmann::json& json, const std::string& path,
                                  const CancelToken& cancel);
  /// The token of the other provider.
  std::string subject_token(const nlohmann::json& json, const std::string& path,
                            const CancelToken& cancel);
  AccessToken impersonated(const nlohmann::json& json, const std::string& url,
                           const AccessToken& by, const CancelToken& cancel);
  AccessToken of_machine(const CancelToken& cancel);
  AccessToken exchanged(const std::string& url, const std::string& form, const std::string& source,
                        const CancelToken& cancel, const std::string& authorization = {});

  HttpClient client_;
  MachineService machine_;
  KeptCredentials<AccessToken> kept_;
};

/// What a service account sends to be given a token: a JSON Web Token (RFC 7519), signed with its
/// key by RS256.
/// @param json_claims  the text of its claims.
std::string signed_jwt(const std::string& json_header, const std::string& json_claims,
                       const std::string& key_pem);

}  // namespace shardwise
