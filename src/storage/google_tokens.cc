#include "storage/google_tokens.h"

#include <unistd.h>

#include <ctime>

#include "base/error_types.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "storage/environment.h"
#include "storage/iso_time.h"
#include "storage/json_text.h"
#include "storage/signing.h"
#include "storage/this_machine.h"
#include "storage/token_file.h"

namespace shardwise {
namespace {

constexpr char kScope[] = "https://www.googleapis.com/auth/devstorage.read_only";
constexpr char kImpersonationScope[] = "https://www.googleapis.com/auth/cloud-platform";
constexpr char kTokenUrl[] = "https://oauth2.googleapis.com/token";

/// Returns the path of the credentials file; empty if it is missing.
std::string credentials_file() {
  std::string named = environment("GOOGLE_APPLICATION_CREDENTIALS");
  if (!named.empty()) return named;
  std::string folder = environment("CLOUDSDK_CONFIG");
  if (folder.empty()) folder = environment("HOME") + "/.config/gcloud";
  const std::string path = folder + "/application_default_credentials.json";
  return ::access(path.c_str(), R_OK) == 0 ? path : std::string();
}

/// Returns a text member of the credentials file. Errors: InvalidArgument if it is missing.
std::string required(const nlohmann::json& json, const char* name, const std::string& path) {
  std::string text = json_text(json, name);
  if (!text.empty()) return text;
  throw InvalidArgument("the file of Google credentials is malformed",
                        in_quotes(path) + " (the file has no " + name + ")",
                        "run `gcloud auth application-default login`");
}

std::string source_of(const std::string& path) {
  return "the Google credentials in " + in_quotes(path);
}

/// Extracts the subject token from the content of a file or a URL: either plain text or a member of
/// a JSON object.
std::string subject_token_in(const std::string& text, const nlohmann::json& format,
                             const std::string& path) {
  std::string token(trimmed(text));
  if (json_text(format, "type") == "json") {
    const std::string field = required(format, "subject_token_field_name", path);
    token = json_text(nlohmann::json::parse(text, nullptr, false), field.c_str());
  }
  if (!token.empty()) return token;
  throw InvalidArgument("the response of the identity provider has no token", in_quotes(path),
                        "check the credential_source in this file");
}

/// Returns an object inside the credentials file; empty if it is missing.
nlohmann::json part_of(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_object() ? *found : nlohmann::json::object();
}

}  // namespace

std::string signed_jwt(const std::string& json_header, const std::string& json_claims,
                       const std::string& key_pem) {
  const std::string text = base64_url(json_header) + "." + base64_url(json_claims);
  return text + "." + base64_url(rs256(key_pem, text, "key of the Google service account"));
}

GoogleTokens::GoogleTokens(const Fetchers::Options& options)
    : client_(options), machine_(options) {}

AccessToken GoogleTokens::exchanged(const std::string& url, const std::string& form,
                                    const std::string& source, const CancelToken& cancel,
                                    const std::string& authorization) {
  require_keeps_secrets(url, source);
  HttpTarget target{.url = url,
                    .headers = {"Content-Type: application/x-www-form-urlencoded"},
                    .follows_redirects = false,
                    .login_remedy = "check " + source};
  if (!authorization.empty()) target.headers.push_back("Authorization: " + authorization);
  return parse_access_token(
      client_.get_text(target, {.url = url, .cancel = cancel}, {.method = "POST", .body = form}),
      source);
}

AccessToken GoogleTokens::of_file(const std::string& path, const CancelToken& cancel) {
  const std::string text = find_text(path, "the file of Google credentials", cancel).value_or("");
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw InvalidArgument("cannot read the file of Google credentials", in_quotes(path),
                          "check GOOGLE_APPLICATION_CREDENTIALS");
  }
  const std::string type = json_text(json, "type");
  std::string url = json_text(json, "token_uri");
  if (url.empty()) url = kTokenUrl;
  const std::string source = source_of(path);
  if (type == "external_account") return of_external_account(json, path, cancel);
  if (type == "authorized_user") {
    return exchanged(
        url,
        "grant_type=refresh_token&client_id=" + percent_encoded(required(json, "client_id", path)) +
            "&client_secret=" + percent_encoded(required(json, "client_secret", path)) +
            "&refresh_token=" + percent_encoded(required(json, "refresh_token", path)),
        source, cancel);
  }
  if (type != "service_account") {
    throw Unsupported("Google credentials of this type are not supported",
                      in_quotes(path) + " (" + in_quotes(type) + ")",
                      "use credentials of a service account, of a user, or of an external account" +
                          if_there(", or add a fetcher (", "Fetchers::add", ")"));
  }
  const std::time_t now = std::time(nullptr);
  const nlohmann::json header = {
      {"alg", "RS256"}, {"typ", "JWT"}, {"kid", json_text(json, "private_key_id")}};
  const nlohmann::json claims = {{"iss", required(json, "client_email", path)},
                                 {"scope", kScope},
                                 {"aud", url},
                                 {"iat", now},
                                 {"exp", now + 3600}};
  const std::string jwt =
      signed_jwt(header.dump(), claims.dump(), required(json, "private_key", path));
  return exchanged(
      url, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=" + jwt,
      source, cancel);
}

// Specified in https://google.aip.dev/auth/4117.
AccessToken GoogleTokens::of_external_account(const nlohmann::json& json, const std::string& path,
                                              const CancelToken& cancel) {
  const std::string url = required(json, "token_url", path);
  const std::string impersonation = json_text(json, "service_account_impersonation_url");
  require_keeps_secrets(url, in_quotes(path));
  if (!impersonation.empty()) require_keeps_secrets(impersonation, in_quotes(path));
  const std::string client = json_text(json, "client_id");
  const std::string form =
      "grant_type=" + percent_encoded("urn:ietf:params:oauth:grant-type:token-exchange") +
      "&requested_token_type=" + percent_encoded("urn:ietf:params:oauth:token-type:access_token") +
      "&audience=" + percent_encoded(required(json, "audience", path)) +
      "&scope=" + percent_encoded(impersonation.empty() ? kScope : kImpersonationScope) +
      "&subject_token_type=" + percent_encoded(required(json, "subject_token_type", path)) +
      "&subject_token=" + percent_encoded(subject_token(json, path, cancel));
  const AccessToken federated = exchanged(
      url, form, source_of(path), cancel,
      client.empty() ? "" : "Basic " + base64(client + ":" + json_text(json, "client_secret")));
  return impersonation.empty() ? federated : impersonated(json, impersonation, federated, cancel);
}

std::string GoogleTokens::subject_token(const nlohmann::json& json, const std::string& path,
                                        const CancelToken& cancel) {
  const nlohmann::json from = part_of(json, "credential_source");
  const nlohmann::json format = part_of(from, "format");
  const std::string file = json_text(from, "file"), url = json_text(from, "url");
  if (!json_text(from, "environment_id").empty() || (file.empty() && url.empty())) {
    throw Unsupported("an external account of this type is not supported", in_quotes(path),
                      "use a credential_source with a file or a url");
  }
  if (!file.empty()) {
    const auto text = find_text(file, "the token of the identity provider", cancel);
    return subject_token_in(text.value_or(""), format, file);
  }
  HttpTarget target{
      .url = url, .follows_redirects = false, .login_remedy = "check " + source_of(path)};
  const nlohmann::json headers = part_of(from, "headers");
  for (const auto& [name, value] : headers.items()) {
    if (value.is_string()) target.headers.push_back(name + ": " + value.get<std::string>());
  }
  return subject_token_in(client_.get_text(target, {.url = url, .cancel = cancel}), format, path);
}

AccessToken GoogleTokens::impersonated(const nlohmann::json& json, const std::string& url,
                                       const AccessToken& by, const CancelToken& cancel) {
  const nlohmann::json how = part_of(json, "service_account_impersonation");
  const auto lifetime = how.find("token_lifetime_seconds");
  const std::int64_t seconds =
      lifetime != how.end() && lifetime->is_number_integer() ? lifetime->get<std::int64_t>() : 3600;
  const nlohmann::json asked = {{"scope", {kScope}}, {"lifetime", std::to_string(seconds) + "s"}};
  const HttpTarget target{
      .url = url,
      .headers = {"Authorization: Bearer " + by.text, "Content-Type: application/json"},
      .follows_redirects = false,
      .login_remedy = "check the permission to impersonate the service account of " + by.source};
  const nlohmann::json answer =
      nlohmann::json::parse(client_.get_text(target, {.url = url, .cancel = cancel},
                                             {.method = "POST", .body = asked.dump()}),
                            nullptr, false);
  AccessToken token{.text = json_text(answer, "accessToken"),
                    .source = by.source,
                    .expires = parse_iso_time(json_text(answer, "expireTime"))};
  if (token.are_there()) return token;
  throw FetchError("cannot get a token from " + by.source, "the response has no token",
                   "check the settings of this source");
}

AccessToken GoogleTokens::of_machine(const CancelToken& cancel) {
  constexpr const char* kHost = "GCE_METADATA_HOST";
  std::string host = environment(kHost);
  const std::string promised_by = host.empty() ? "" : kHost;
  if (host.empty()) host = "metadata.google.internal";
  const HttpTarget target{
      .url = "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token",
      .headers = {"Metadata-Flavor: Google"},
      .bypasses_proxy = true,
      .follows_redirects = false};
  const auto text = machine_.ask(target, {}, promised_by, cancel);
  return text ? parse_access_token(*text, "the machine's service") : AccessToken{};
}

AccessToken GoogleTokens::find(const Refused& refused, const CancelToken& cancel) {
  const std::string path = credentials_file();
  return kept_.get(
      path, refused,
      [&](const CancelToken& token) {
        if (!path.empty()) return of_file(path, token);
        return environment("NO_GCE_CHECK") == "true" ? AccessToken{} : of_machine(token);
      },
      cancel);
}

}  // namespace shardwise
