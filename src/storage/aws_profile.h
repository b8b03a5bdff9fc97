#pragma once

#include <map>
#include <string>

namespace shardwise {

/// Settings by lower-case name, e.g. "role_arn". A nested setting has its parent's name before it:
/// "s3.addressing_style". Settings of the `services` section that a profile names have that prefix:
/// "services.s3.endpoint_url".
using AwsSettings = std::map<std::string, std::string>;

/// Reads a profile from ~/.aws/credentials and ~/.aws/config, or from the files that the
/// environment names. The credentials file takes precedence.
/// Errors: InvalidArgument if a required profile or a named services section is missing, or a line
///   in it sets nothing.
AwsSettings read_aws_profile(const std::string& name, bool must_be_there);

/// Returns the address of a service ("s3", "sso_oidc") without trailing slashes. The first one set
/// is used: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's services, the profile. Empty means
/// AWS's own; AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true forces that.
std::string aws_endpoint(const AwsSettings& profile, const std::string& service);

/// The settings of [sso-session NAME] in ~/.aws/config. Errors: InvalidArgument if it is missing.
AwsSettings read_sso_session(const std::string& name);

/// The name of the profile: `named`, else AWS_PROFILE, else "default".
std::string aws_profile_name(const std::string& named);

}  // namespace shardwise
