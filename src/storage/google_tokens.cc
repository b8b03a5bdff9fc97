#include "storage/google_tokens.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>

#include "base/error_types.h"
#include "base/text.h"
#include "base/url.h"
#include "storage/environment.h"
#include "storage/json_text.h"
#include "storage/signing.h"

namespace shardwise {
namespace {

constexpr char kScope[] = "https://www.googleapis.com/auth/devstorage.read_only";
constexpr char kTokenUrl[] = "https://oauth2.googleapis.com/token";

/// The file of credentials; empty if there is none.
std::string credentials_file() {
  std::string named = environment("GOOGLE_APPLICATION_CREDENTIALS");
  if (!named.empty()) return named;
  std::string folder = environment("CLOUDSDK_CONFIG");
  if (folder.empty()) folder = environment("HOME") + "/.config/gcloud";
  const std::string path = folder + "/application_default_credentials.json";
  return ::access(path.c_str(), R_OK) == 0 ? path : std::string();
}

/// A text in the file of credentials. Errors: InvalidArgument, if it is not there.
std::string required(const nlohmann::json& json, const char* name, const std::string& path) {
  std::string text = json_text(json, name);
  if (!text.empty()) return text;
  throw InvalidArgument("the file of Google credentials is malformed",
                        in_quotes(path) + " (it has no " + name + ")",
                        "make it again: gcloud auth application-default login");
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
                                    const std::string& source, const CancelToken& cancel) {
  const HttpTarget target{.url = url,
                          .headers = {"Content-Type: application/x-www-form-urlencoded"},
                          .follows_redirects = false,
                          .login_remedy = "check " + source};
  return parse_access_token(
      client_.get_text(target, {.url = url, .cancel = cancel}, {.method = "POST", .body = form}),
      source);
}

AccessToken GoogleTokens::of_file(const std::string& path, const CancelToken& cancel) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw InvalidArgument("cannot read the file of Google credentials", in_quotes(path),
                          "check GOOGLE_APPLICATION_CREDENTIALS");
  }
  const std::string type = json_text(json, "type");
  std::string url = json_text(json, "token_uri");
  if (url.empty()) url = kTokenUrl;
  const std::string source = "the Google credentials in " + in_quotes(path);
  if (type == "authorized_user") {
    return exchanged(
        url,
        "grant_type=refresh_token&client_id=" + percent_encoded(required(json, "client_id", path)) +
            "&client_secret=" + percent_encoded(required(json, "client_secret", path)) +
            "&refresh_token=" + percent_encoded(required(json, "refresh_token", path)),
        source, cancel);
  }
  if (type != "service_account") {
    throw Unsupported("Google credentials of this kind are not read",
                      in_quotes(path) + " (" + in_quotes(type) + ")",
                      "give those of a service account or of a user, or add a fetcher "
                      "(Fetchers::add)");
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
