#pragma once

#include <map>
#include <string>

namespace shardwise {

/// Settings by lower-case name, e.g. "role_arn". The name of a nested setting begins with its
/// parent's name: "s3.addressing_style". If the profile names a `services` section, the names of
/// that section's settings begin with "services.": "services.s3.endpoint_url".
using AwsSettings = std::map<std::string, std::string>;

/// Reads a profile from ~/.aws/credentials and ~/.aws/config, or from the files that the
/// environment names. Settings of the credentials file take precedence.
/// @param must_be_there  throw if the profile is missing.
/// Errors: InvalidArgument if a required profile or a named services section is missing, or if a
///   line in them is not "name = value".
AwsSettings read_aws_profile(const std::string& name, bool must_be_there);

/// Returns the setting `name`; empty if it is not set.
std::string setting(const AwsSettings& settings, const std::string& name);

/// Returns the region, the first that is set: `named`, AWS_REGION, AWS_DEFAULT_REGION, the
/// profile's region, "us-east-1".
std::string aws_region(const std::string& named, const AwsSettings& profile);

/// Returns the address of a service ("s3", "sso_oidc") without trailing slashes; empty means AWS's
/// own address. The first of these settings is used: AWS_ENDPOINT_URL_S3 (for "s3"),
/// AWS_ENDPOINT_URL, the profile's services section, the profile.
/// AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true disables all of them.
std::string aws_endpoint(const AwsSettings& profile, const std::string& service);

/// Returns the settings of [sso-session NAME] in ~/.aws/config. Errors: InvalidArgument if it is
/// missing.
AwsSettings read_sso_session(const std::string& name);

/// Returns the profile's name: `named` if it is not empty, else AWS_PROFILE, else "default".
std::string aws_profile_name(const std::string& named);

}  // namespace shardwise
