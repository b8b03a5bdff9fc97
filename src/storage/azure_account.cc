#include "storage/azure_account.h"

#include <algorithm>
#include <string_view>

#include "base/ascii.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"
#include "storage/this_machine.h"
#include "storage/token_file.h"

namespace shardwise {
namespace {

/// Returns the value of `name` in "Name=value;Name=value"; empty if the name is missing.
std::string part_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string_view part = trimmed(text.substr(0, end));
    const std::size_t equals = std::min(part.find('='), part.size());
    if (to_lower(part.substr(0, equals)) == to_lower(name) && equals < part.size()) {
      return std::string(part.substr(equals + 1));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::string value = environment(name);
    if (!value.empty()) return value;
  }
  return {};
}

AzureAccount of_connection_string(const std::string& text) {
  AzureAccount account{.name = part_of(text, "AccountName"),
                       .endpoint = part_of(text, "BlobEndpoint"),
                       .key = part_of(text, "AccountKey"),
                       .sas = part_of(text, "SharedAccessSignature")};
  if (account.endpoint.empty() && !account.name.empty()) {
    const std::string protocol = part_of(text, "DefaultEndpointsProtocol");
    const std::string suffix = part_of(text, "EndpointSuffix");
    account.endpoint = (protocol.empty() ? "https" : protocol) + "://" + account.name + ".blob." +
                       (suffix.empty() ? "core.windows.net" : suffix);
  }
  if (account.endpoint.empty()) {
    throw InvalidArgument("the connection string of Azure is malformed", "",
                          "set AZURE_STORAGE_CONNECTION_STRING to AccountName=...;AccountKey=... "
                          "or to BlobEndpoint=...;SharedAccessSignature=...");
  }
  return account;
}

}  // namespace

AzureAccount find_azure_account() {
  const std::string connection = environment("AZURE_STORAGE_CONNECTION_STRING");
  AzureAccount account;
  if (!connection.empty()) {
    account = of_connection_string(connection);
  } else {
    account.name = first_set({"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"});
    account.key = first_set({"AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"});
    account.sas = environment("AZURE_STORAGE_SAS_TOKEN");
    if (!account.name.empty()) {
      account.endpoint = "https://" + account.name + ".blob.core.windows.net";
    }
  }
  while (account.endpoint.ends_with('/')) account.endpoint.pop_back();
  if (account.sas.starts_with('?')) account.sas.erase(0, 1);
  return account;
}

AzureTokens::AzureTokens(const Fetchers::Options& options) : client_(options), machine_(options) {}

AccessToken AzureTokens::of_principal(const CancelToken& cancel) {
  const std::string authority = environment("AZURE_AUTHORITY_HOST");
  std::string url = authority.empty() ? "https://login.microsoftonline.com" : authority;
  while (url.ends_with('/')) url.pop_back();
  require_keeps_secrets(url, "AZURE_AUTHORITY_HOST");
  url += "/" + percent_encoded(environment("AZURE_TENANT_ID")) + "/oauth2/v2.0/token";
  std::string form =
      "grant_type=client_credentials&scope=https%3A%2F%2Fstorage.azure.com%2F."
      "default&client_id=" +
      percent_encoded(environment("AZURE_CLIENT_ID"));
  const std::string secret = environment("AZURE_CLIENT_SECRET");
  if (!secret.empty()) {
    form += "&client_secret=" + percent_encoded(secret);
  } else {
    form +=
        "&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer"
        "&client_assertion=" +
        percent_encoded(read_token(environment("AZURE_FEDERATED_TOKEN_FILE"),
                                   "federated token of Azure", cancel));
  }
  const HttpTarget target{.url = url,
                          .headers = {"Content-Type: application/x-www-form-urlencoded"},
                          .follows_redirects = false,
                          .login_remedy = "check AZURE_TENANT_ID, AZURE_CLIENT_ID and the secret"};
  return parse_access_token(
      client_.get_text(target, {.url = url, .cancel = cancel}, {.method = "POST", .body = form}),
      "the Azure service principal");
}

AccessToken AzureTokens::of_machine(const CancelToken& cancel) {
  constexpr const char* kHost = "AZURE_POD_IDENTITY_AUTHORITY_HOST";
  std::string base = environment(kHost);
  const std::string promised_by = base.empty() ? "" : kHost;
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/')) base.pop_back();
  const std::string client = environment("AZURE_CLIENT_ID");
  const HttpTarget target{.url = base +
                                 "/metadata/identity/oauth2/token?api-version=2018-02-01&resource="
                                 "https%3A%2F%2Fstorage.azure.com%2F" +
                                 (client.empty() ? "" : "&client_id=" + percent_encoded(client)),
                          .headers = {"Metadata: true"},
                          .bypasses_proxy = true,
                          .follows_redirects = false};
  const auto text = machine_.ask(target, {}, promised_by, cancel);
  return text ? parse_access_token(*text, "the machine's identity") : AccessToken{};
}

AccessToken AzureTokens::find(const Refused& refused, const CancelToken& cancel) {
  const std::string tenant = environment("AZURE_TENANT_ID"),
                    client = environment("AZURE_CLIENT_ID");
  const bool is_principal =
      !tenant.empty() && !client.empty() &&
      !first_set({"AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"}).empty();
  return kept_.get((is_principal ? "principal " : "machine ") + tenant + " " + client, refused,
                   [&](const CancelToken& token) {
                     return is_principal ? of_principal(token) : of_machine(token);
                   },
                   cancel);
}

}  // namespace shardwise
