#pragma once

#include <map>
#include <string>

namespace shardwise {

/// Settings by name, in lower case, as "role_arn". What stands below a setting has its name before
/// its own, as "s3.addressing_style". Those of the `services` that a profile names begin so, as
/// "services.s3.endpoint_url".
using AwsSettings = std::map<std::string, std::string>;

/// The settings of a profile in ~/.aws/credentials and ~/.aws/config, or in the files that the
/// environment names; where both have one, that of the first.
/// Errors: InvalidArgument, if it must be there and is in neither file, or names services that are
///   not there, or a line in it sets nothing.
AwsSettings read_aws_profile(const std::string& name, bool must_be_there);

/// The address of a service, say "s3" or "sso_oidc", without slashes at its end. The first of these
/// that is set counts: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's services, the profile.
/// Empty means AWS's own. AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true makes it so.
std::string aws_endpoint(const AwsSettings& profile, const std::string& service);

/// The settings of [sso-session NAME] in ~/.aws/config. Errors: InvalidArgument, if it has none.
AwsSettings read_sso_session(const std::string& name);

/// The profile to take: `named`, or AWS_PROFILE, or "default".
std::string aws_profile_name(const std::string& named);

}  // namespace shardwise
