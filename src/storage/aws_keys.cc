#include "storage/aws_keys.h"

#include <utility>

#include "base/text.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"

namespace shardwise {
namespace {

constexpr int kMaxRoles = 5;  ///< longest chain of assumed roles

/// Returns the pair of keys; nullopt if both are empty. Errors: InvalidArgument if only one is
/// empty.
std::optional<AwsKeys> keys_from(const std::string& id, const std::string& secret,
                                 const std::string& token, const std::string& source) {
  if (id.empty() && secret.empty()) return std::nullopt;
  if (id.empty() || secret.empty()) {
    throw InvalidArgument(
        "one of the two S3 keys is missing", source,
        "set both the access key id and the secret access key, or leave out both");
  }
  return AwsKeys{id, secret, token, source};
}

std::optional<AwsKeys> keys_in_environment() {
  return keys_from(environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
                   environment("AWS_SESSION_TOKEN"), "the environment");
}

std::optional<AwsKeys> keys_in_profile(const std::string& name, const AwsSettings& profile) {
  return keys_from(setting(profile, "aws_access_key_id"), setting(profile, "aws_secret_access_key"),
                   setting(profile, "aws_session_token"), "the profile " + in_quotes(name));
}

}  // namespace

AwsKeyChain::Origin AwsKeyChain::fixed(const AwsKeys& keys) {
  return {"", [keys](const CancelToken&) { return keys; }};
}

AwsKeyChain::Origin AwsKeyChain::container_origin() {
  return {"container", [this](const CancelToken& cancel) { return services_.container(cancel); }};
}

AwsKeyChain::Origin AwsKeyChain::instance_origin() {
  return {"instance", [this](const CancelToken& cancel) { return services_.instance(cancel); }};
}

AwsKeyChain::Origin AwsKeyChain::web_identity_origin(const AwsRole& role,
                                                     const std::string& token_file) {
  return {"web identity " + role.arn + " " + token_file,
          [this, role, token_file](const CancelToken& cancel) {
            return services_.assume_role_with_web_identity(role, token_file, cancel);
          }};
}

/// Returns the source of the keys that may assume the profile's role.
AwsKeyChain::Origin AwsKeyChain::source_of_role(const std::string& name, const AwsSettings& profile,
                                                int depth) {
  const std::string source = setting(profile, "source_profile");
  const std::string from = setting(profile, "credential_source");
  if (source == name) {
    if (const auto keys = keys_in_profile(name, profile)) return fixed(*keys);
  } else if (!source.empty()) {
    if (auto origin = origin_in_profile(source, true, depth + 1)) return *std::move(origin);
  } else if (from == "Environment") {
    return {"", [](const CancelToken&) { return keys_in_environment().value_or(AwsKeys{}); }};
  } else if (from == "EcsContainer" && AwsServices::has_container()) {
    return container_origin();
  } else if (from == "Ec2InstanceMetadata") {
    return instance_origin();
  }
  throw InvalidArgument(
      "no credentials to assume the role of the S3 profile", in_quotes(name),
      "set its source_profile (a profile with keys), credential_source (Environment, EcsContainer "
      "or Ec2InstanceMetadata) or web_identity_token_file");
}

AwsKeyChain::Origin AwsKeyChain::role_in_profile(const std::string& name,
                                                 const AwsSettings& profile, int depth) {
  const AwsRole role{.arn = setting(profile, "role_arn"),
                     .session_name = setting(profile, "role_session_name"),
                     .external_id = setting(profile, "external_id"),
                     .duration_seconds = setting(profile, "duration_seconds"),
                     .region = aws_region(options_.region, profile),
                     .endpoint = aws_endpoint(profile, "sts")};
  if (!setting(profile, "mfa_serial").empty()) {
    throw InvalidArgument(
        "the role of the S3 profile needs a multi-factor code (mfa_serial)", in_quotes(name),
        "assume the role with `aws configure export-credentials`, then set the printed keys");
  }
  const std::string token_file = setting(profile, "web_identity_token_file");
  if (!token_file.empty()) return web_identity_origin(role, token_file);
  Origin source = source_of_role(name, profile, depth);
  return {"role " + role.arn + " of " + name,
          [this, role, name, ask = std::move(source.ask)](const CancelToken& cancel) {
            const AwsKeys by = ask(cancel);
            if (by.are_there()) return services_.assume_role(role, by, cancel);
            throw InvalidArgument("no credentials to assume the role of the S3 profile",
                                  in_quotes(name), "check its credential_source");
          }};
}

std::optional<AwsKeyChain::Origin> AwsKeyChain::origin_in_profile(const std::string& name,
                                                                  bool must_be_there, int depth) {
  if (depth > kMaxRoles) {
    throw InvalidArgument("the source profiles of the S3 profile form a cycle", in_quotes(name),
                          "end the chain of source_profile in a profile with keys");
  }
  const AwsSettings profile = read_aws_profile(name, must_be_there);
  if (!setting(profile, "role_arn").empty()) return role_in_profile(name, profile, depth);
  if (!setting(profile, "sso_session").empty() || !setting(profile, "sso_start_url").empty()) {
    return Origin{"sso " + name, [this, profile](const CancelToken& cancel) {
                    return services_.sso(profile, cancel);
                  }};
  }
  if (const auto keys = keys_in_profile(name, profile)) return fixed(*keys);
  const std::string command = setting(profile, "credential_process");
  if (command.empty()) return std::nullopt;
  return Origin{"process " + command, [this, command](const CancelToken& cancel) {
                  return services_.process(command, cancel);
                }};
}

std::optional<AwsKeyChain::Origin> AwsKeyChain::find_origin() {
  if (const auto keys = keys_from(options_.access_key_id, options_.secret_access_key,
                                  options_.session_token, "Fetchers::S3Options")) {
    return fixed(*keys);
  }
  if (options_.profile.empty()) {
    if (const auto keys = keys_in_environment()) return fixed(*keys);
    const std::string token_file = environment("AWS_WEB_IDENTITY_TOKEN_FILE");
    AwsRole role{.arn = environment("AWS_ROLE_ARN"),
                 .session_name = environment("AWS_ROLE_SESSION_NAME"),
                 .region = {}};
    if (!token_file.empty() && !role.arn.empty()) {
      const AwsSettings profile = read_aws_profile(aws_profile_name(options_.profile), false);
      role.region = aws_region(options_.region, profile);
      role.endpoint = aws_endpoint(profile, "sts");
      return web_identity_origin(role, token_file);
    }
  }
  const bool is_named = !options_.profile.empty() || !environment("AWS_PROFILE").empty();
  if (auto origin = origin_in_profile(aws_profile_name(options_.profile), is_named, 0)) {
    return origin;
  }
  if (AwsServices::has_container()) return container_origin();
  if (environment("AWS_EC2_METADATA_DISABLED") == "true") return std::nullopt;
  return instance_origin();
}

AwsKeys AwsKeyChain::find(const Refused& refused, const CancelToken& cancel) {
  if (options_.anonymous) return {};
  const std::optional<Origin> origin = find_origin();
  if (!origin) return {};
  return origin->name.empty() ? origin->ask(cancel)
                              : kept_.get(origin->name, refused, origin->ask, cancel);
}

}  // namespace shardwise
