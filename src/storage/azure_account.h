#pragma once

#include <string>

#include "shardwise/storage/fetcher.h"
#include "storage/access_token.h"
#include "storage/http_client.h"
#include "storage/kept_credentials.h"
#include "storage/machine_service.h"

namespace shardwise {

/// An account of Azure Storage and its credentials.
struct AzureAccount {
  std::string name;      ///< empty if the URL must name it
  std::string endpoint;  ///< "https://name.blob.core.windows.net"; empty if the URL must name it
  std::string key = {};  ///< secret, in base64; optional
  std::string sas = {};  ///< secret, a query string without the question mark; optional
  /// False if a token must not be sent, because the host does not belong to Azure and the
  /// environment does not name it.
  bool may_get_token = true;
};

/// Reads the account from AZURE_STORAGE_CONNECTION_STRING, else from AZURE_STORAGE_ACCOUNT with
/// AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN.
/// Errors: InvalidArgument for a malformed connection string.
AzureAccount find_azure_account();

/// Provides tokens of Microsoft's Entra ID for storage. The source is a service principal
/// (AZURE_TENANT_ID, AZURE_CLIENT_ID with AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE), else
/// the managed identity of an Azure machine.
///
/// Threads: internally synchronised.
class AzureTokens {
 public:
  explicit AzureTokens(const Fetchers::Options& options);

  /// Returns a token; empty if no source is configured.
  /// @param refused  token that the server refused; it is not taken from the cache again.
  /// Errors: InvalidArgument, FetchError, Cancelled. Messages never contain a secret.
  AccessToken find(const Refused& refused, const CancelToken& cancel);

 private:
  AccessToken of_principal(const CancelToken& cancel);
  AccessToken of_machine(const CancelToken& cancel);

  HttpClient client_;
  MachineService machine_;
  KeptCredentials<AccessToken> kept_;
};

}  // namespace shardwise
