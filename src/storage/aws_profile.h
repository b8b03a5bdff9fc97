#pragma once

#include <map>
#include <string>

namespace shardwise {

/// Settings by name, as "role_arn".
using AwsSettings = std::map<std::string, std::string>;

/// The settings of a profile in ~/.aws/credentials and ~/.aws/config, or in the files that the
/// environment names; where both have one, that of the first.
/// Errors: InvalidArgument, if it must be there and is in neither file.
AwsSettings read_aws_profile(const std::string& name, bool must_be_there);

/// The settings of [sso-session NAME] in ~/.aws/config. Errors: InvalidArgument, if it has none.
AwsSettings read_sso_session(const std::string& name);

/// The profile to take: `named`, or AWS_PROFILE, or "default".
std::string aws_profile_name(const std::string& named);

}  // namespace shardwise
