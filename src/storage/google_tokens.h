#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/access_token.h"
#include "storage/http_client.h"
#include "storage/kept_credentials.h"
#include "storage/machine_service.h"

namespace shardwise {

/// Provides tokens for Google's services, from the "application default credentials" of Google's
/// libraries.
///
/// The first of these sources that exists is used:
/// * the file that GOOGLE_APPLICATION_CREDENTIALS names;
/// * the file that `gcloud auth application-default login` stored;
/// * the metadata server of a Google Cloud machine.
///
/// The file describes a service account, a user, or an external account (workload identity
/// federation). For an external account, the token of another provider is exchanged for a Google
/// token. If the file names a service account to impersonate, that Google token is exchanged for a
/// token of the service account.
///
/// Threads: internally synchronised.
class GoogleTokens {
 public:
  explicit GoogleTokens(const Fetchers::Options& options);

  /// Returns a token; empty if no source is configured.
  /// @param refused  token that the server refused; it is not taken from the cache again.
  /// Errors: InvalidArgument (malformed file), Unsupported (other kinds of credentials),
  ///   FetchError, Cancelled. Messages never contain a key or a token.
  AccessToken find(const Refused& refused, const CancelToken& cancel);

 private:
  AccessToken of_file(const std::string& path, const CancelToken& cancel);
  AccessToken of_external_account(const nlohmann::json& json, const std::string& path,
                                  const CancelToken& cancel);
  /// Gets the token of the other provider ("subject token").
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

/// Returns the JSON Web Token (RFC 7519) that a service account exchanges for an access token. It
/// is signed with the account's key by RS256.
/// @param json_claims  the claims as JSON text.
std::string signed_jwt(const std::string& json_header, const std::string& json_claims,
                       const std::string& key_pem);

}  // namespace shardwise
