#include "storage/aws_services.h"

#include <array>

#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/aws_sso_token.h"
#include "storage/environment.h"
#include "storage/fetch_failure.h"
#include "storage/iso_time.h"
#include "storage/json_text.h"
#include "storage/pipe_fetcher.h"
#include "storage/this_machine.h"
#include "storage/token_file.h"
#include "storage/xml_text.h"

namespace shardwise {
namespace {

using ServiceJson = nlohmann::json;

[[noreturn]] void throw_no_keys(const std::string& source, std::string_view why,
                                std::string_view remedy = "check the settings of this source") {
  throw FetchError("cannot get AWS credentials from " + source, why, remedy);
}

/// Extracts the keys from a service's answer. `names` are the JSON members with the key's id, the
/// secret, the session token and the expiry time; services spell them differently.
AwsKeys keys_of(const ServiceJson& json, const std::string& source,
                const std::array<const char*, 4>& names = {"AccessKeyId", "SecretAccessKey",
                                                           "Token", "Expiration"}) {
  const auto text = [&](const char* name) { return json_text(json, name); };
  AwsKeys keys{.access_key_id = text(names[0]),
               .secret_access_key = text(names[1]),
               .session_token = text(names[2]),
               .source = source};
  if (keys.access_key_id.empty() || keys.secret_access_key.empty()) {
    throw_no_keys(source, "the response has no keys");
  }
  if (const auto expires_ms = json_count(json, names[3])) {
    keys.expires = time_after_1970(*expires_ms / 1000);
  } else {
    keys.expires = parse_iso_time(text(names[3]));
  }
  return keys;
}

ServiceJson parse_json(const std::string& text, const std::string& source) {
  ServiceJson json = ServiceJson::parse(text, nullptr, false);
  if (json.is_discarded()) throw_no_keys(source, "the response is not JSON");
  return json;
}

std::string form_text(const std::vector<std::pair<std::string, std::string>>& form) {
  std::string text;
  for (const auto& [name, value] : form) {
    if (value.empty()) continue;
    if (!text.empty()) text += '&';
    text += name + "=" + percent_encoded(value);
  }
  return text;
}

/// Collects a command's output.
class Text : public Fetcher::Sink {
 public:
  void write(std::string_view bytes) override { text += bytes; }
  bool restart() override {
    text.clear();
    return true;
  }
  std::string text;
};

}  // namespace

std::string aws_domain(const std::string& region) {
  return region + ".amazonaws.com" + (region.starts_with("cn-") ? ".cn" : "");
}

AwsServices::AwsServices(const Fetchers::Options& options) : client_(options), machine_(options) {}

std::string AwsServices::ask(HttpClient& client, const HttpTarget& target, const HttpQuery& query,
                             const std::string& remedy, const CancelToken& cancel) {
  auto [result, text] = client.ask_for_text(target, query, {.url = target.url, .cancel = cancel});
  if (result.has_file()) return std::move(text);
  std::string reason = "HTTP status " + std::to_string(result.answer.status);
  if (!result.error_name.empty()) reason += ", " + result.error_name;
  const std::string clocks = clock_remedy(result);
  throw_fetch_error(target.url, reason, clocks.empty() ? remedy : clocks);
}

AwsKeys AwsServices::ask_sts(const std::vector<std::pair<std::string, std::string>>& form,
                             const AwsRole& role, const AwsKeys& by, const CancelToken& cancel) {
  const std::string source = "the role " + in_quotes(role.arn);
  HttpTarget target{
      .url =
          (role.endpoint.empty() ? "https://sts." + aws_domain(role.region) : role.endpoint) + "/",
      .is_aws = true,
      .follows_redirects = false};
  if (by.are_there()) {
    target.user = by.access_key_id;
    target.password = by.secret_access_key;
    target.sigv4 = "aws:amz:" + role.region + ":sts";
    if (!by.session_token.empty()) {
      target.headers.push_back("x-amz-security-token: " + by.session_token);
    }
  }
  if (!by.are_there()) require_keeps_secrets(target.url, "AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL");
  target.headers.emplace_back("Content-Type: application/x-www-form-urlencoded");
  const std::string text = ask(client_, target, {.method = "POST", .body = form_text(form)},
                               "check the role and its trust policy (" + source + ")", cancel);
  AwsKeys keys{.access_key_id = xml_text(text, "AccessKeyId"),
               .secret_access_key = xml_text(text, "SecretAccessKey"),
               .session_token = xml_text(text, "SessionToken"),
               .source = source,
               .expires = parse_iso_time(xml_text(text, "Expiration"))};
  if (!keys.are_there() || keys.secret_access_key.empty()) {
    throw_no_keys(source, "the response has no keys");
  }
  return keys;
}

AwsKeys AwsServices::assume_role(const AwsRole& role, const AwsKeys& by,
                                 const CancelToken& cancel) {
  return ask_sts({{"Action", "AssumeRole"},
                  {"Version", "2011-06-15"},
                  {"RoleArn", role.arn},
                  {"RoleSessionName", role.session_name.empty() ? "shardwise" : role.session_name},
                  {"ExternalId", role.external_id},
                  {"DurationSeconds", role.duration_seconds}},
                 role, by, cancel);
}

AwsKeys AwsServices::assume_role_with_web_identity(const AwsRole& role,
                                                   const std::string& token_file,
                                                   const CancelToken& cancel) {
  return ask_sts({{"Action", "AssumeRoleWithWebIdentity"},
                  {"Version", "2011-06-15"},
                  {"RoleArn", role.arn},
                  {"RoleSessionName", role.session_name.empty() ? "shardwise" : role.session_name},
                  {"WebIdentityToken", read_token(token_file, "web identity token", cancel)},
                  {"DurationSeconds", role.duration_seconds}},
                 role, {}, cancel);
}

AwsKeys AwsServices::sso(const AwsSettings& profile, const CancelToken& cancel) {
  const std::string session = setting(profile, "sso_session");
  const AwsSettings place = session.empty() ? profile : read_sso_session(session);
  const std::string start = setting(place, "sso_start_url"), region = setting(place, "sso_region");
  const std::string account = setting(profile, "sso_account_id"),
                    role = setting(profile, "sso_role_name");
  if (start.empty() || region.empty() || account.empty() || role.empty()) {
    throw InvalidArgument("the SSO profile is incomplete", in_quotes(session),
                          "run `aws configure sso`, which sets sso_start_url, sso_region, "
                          "sso_account_id and sso_role_name");
  }
  const std::string source = "SSO (role " + in_quotes(role) + ")";
  const auto address = [&](const char* service, const std::string& own) {
    const std::string other = aws_endpoint(profile, service);
    return other.empty() ? "https://" + own + aws_domain(region) : other;
  };
  // Only the token of an [sso-session] can be renewed; without a session the address stays empty.
  const std::string oidc = session.empty() ? "" : address("sso_oidc", "oidc.");
  HttpTarget target{
      .url = address("sso", "portal.sso.") + "/federation/credentials?account_id=" +
             percent_encoded(account) + "&role_name=" + percent_encoded(role),
      .headers = {"x-amz-sso_bearer_token: " +
                  find_sso_token(client_, session.empty() ? start : session, oidc, cancel)},
      .is_aws = true,
      .follows_redirects = false};
  require_keeps_secrets(target.url, "AWS_ENDPOINT_URL_SSO, AWS_ENDPOINT_URL");
  const ServiceJson json =
      parse_json(ask(client_, target, {}, "run `aws sso login`", cancel), source);
  if (!json.is_object() || !json.contains("roleCredentials")) {
    throw_no_keys(source, "the response has no roleCredentials",
                  "run `aws sso login`, and check sso_account_id and sso_role_name");
  }
  return keys_of(json["roleCredentials"], source,
                 {"accessKeyId", "secretAccessKey", "sessionToken", "expiration"});
}

bool AwsServices::has_container() {
  return !environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() ||
         !environment("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty();
}

AwsKeys AwsServices::container(const CancelToken& cancel) {
  const std::string relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url = relative.empty() ? environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                                           : "http://169.254.170.2" + relative;
  const Url parsed = parse_url(url);
  const bool is_near = is_this_machine(parsed.host) || parsed.host == "169.254.170.2" ||
                       parsed.host == "169.254.170.23" || parsed.host == "[fd00:ec2::23]";
  if (parsed.scheme != "https" && !is_near) {
    throw InvalidArgument(
        "the service for container credentials is not trusted", in_quotes(redacted_url(url)),
        "set AWS_CONTAINER_CREDENTIALS_FULL_URI to an https URL, or to this machine");
  }
  HttpTarget target{
      .url = url, .is_aws = true, .bypasses_proxy = is_near, .follows_redirects = false};
  const std::string token_file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  std::string token(trimmed(environment("AWS_CONTAINER_AUTHORIZATION_TOKEN")));
  if (!token_file.empty())
    token = read_token(token_file, "container's authorization token", cancel);
  if (!token.empty()) target.headers.push_back("Authorization: " + token);
  const std::string source = "the container's service";
  return keys_of(
      parse_json(ask(client_, target, {}, "check AWS_CONTAINER_CREDENTIALS_*", cancel), source),
      source);
}

AwsKeys AwsServices::instance(const CancelToken& cancel) {
  const std::string source = "the machine's service";
  constexpr const char* kEndpoint = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
  std::string base = environment(kEndpoint);
  std::string promised_by = base.empty() ? "" : kEndpoint;
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/')) base.pop_back();
  HttpTarget target{.url = base + "/latest/api/token",
                    .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
                    .bypasses_proxy = true,
                    .follows_redirects = false};
  const auto text_at = [&](const std::string& path, const HttpQuery& query) -> std::string {
    target.url = base + path;
    return machine_.ask(target, query, promised_by, cancel).value_or("");
  };
  const std::string token(trimmed(text_at("/latest/api/token", {.method = "PUT"})));
  if (token.empty()) return {};
  promised_by = "its earlier response";
  target.headers = {"X-aws-ec2-metadata-token: " + token};
  const std::string path = "/latest/meta-data/iam/security-credentials/";
  const std::string roles = text_at(path, {});
  const std::string role(trimmed(roles.substr(0, roles.find('\n'))));
  if (role.empty()) return {};
  return keys_of(parse_json(text_at(path + percent_encoded(role), {}), source), source);
}

AwsKeys AwsServices::process(const std::string& command, const CancelToken& cancel) {
  Text output;
  make_pipe_fetcher()->fetch({.url = "pipe:" + command, .cancel = cancel}, output);
  const std::string source = "credential_process";
  return keys_of(parse_json(output.text, source), source,
                 {"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"});
}

}  // namespace shardwise
