#pragma once

#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/access_token.h"
#include "storage/http_client.h"
#include "storage/kept_credentials.h"
#include "storage/machine_service.h"

namespace shardwise {

/// An account of Azure's storage, and who asks.
struct AzureAccount {
  std::string name;      ///< empty: only the URL may name it
  std::string endpoint;  ///< "https://name.blob.core.windows.net"; empty where the URL names it
  std::string key = {};  ///< secret, in base64; empty: none
  std::string sas = {};  ///< secret, a query without its question mark; empty: none
  bool may_get_token = true;  ///< its host is Azure's, or the environment's
};

/// What the environment says: AZURE_STORAGE_CONNECTION_STRING; else AZURE_STORAGE_ACCOUNT with
/// AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN.
/// Errors: InvalidArgument for a connection string that is malformed.
AzureAccount find_azure_account();

/// Tokens of Microsoft's Entra ID for storage: of a service principal (AZURE_TENANT_ID,
/// AZURE_CLIENT_ID with AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE), else those of a machine
/// of Azure's. Without any: none.
///
/// Threads: internally synchronised.
class AzureTokens {
 public:
  explicit AzureTokens(const Fetchers::Options& options);

  /// @param refused  the server refused it, so that another is needed.
  /// Errors: InvalidArgument, FetchError, Cancelled. No text holds a secret.
  AccessToken find(const Refused& refused, const CancelToken& cancel);

 private:
  AccessToken of_principal(const CancelToken& cancel);
  AccessToken of_machine(const CancelToken& cancel);

  HttpClient client_;
  MachineService machine_;
  KeptCredentials<AccessToken> kept_;
};

}  // namespace shardwise
