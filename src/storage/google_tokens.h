#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/access_token.h"
#include "storage/http_client.h"
#include "storage/kept_credentials.h"
#include "storage/machine_service.h"

namespace shardwise {

/// Tokens for Google's services, from the "application default credentials" of Google's libraries.
///
/// The first of these sources is used:
/// * the file that GOOGLE_APPLICATION_CREDENTIALS names;
/// * the file that `gcloud auth application-default login` stored;
/// * the metadata server of a machine at Google.
///
/// A file describes a service account, a user, or an external account (workload identity
/// federation). For an external account, another provider's token is exchanged for one of Google's,
/// and that for a service account's if the file names one to impersonate.
///
/// Threads: internally synchronised.
class GoogleTokens {
 public:
  explicit GoogleTokens(const Fetchers::Options& options);

  /// Returns a token; empty without any source of tokens.
  /// @param refused  the token that the server refused; another is returned.
  /// Errors: InvalidArgument (malformed file), Unsupported (other kinds of credentials),
  ///   FetchError, Cancelled. No message holds a key or a token.
  AccessToken find(const Refused& refused, const CancelToken& cancel);

 private:
  AccessToken of_file(const std::string& path, const CancelToken& cancel);
  AccessToken of_external_account(const nlohmann::json& json, const std::string& path,
                                  const CancelToken& cancel);
  /// Gets the token of the other provider.
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

/// The JSON Web Token (RFC 7519) that a service account exchanges for an access token, signed with
/// its key by RS256.
/// @param json_claims  the claims as JSON text.
std::string signed_jwt(const std::string& json_header, const std::string& json_claims,
                       const std::string& key_pem);

}  // namespace shardwise
