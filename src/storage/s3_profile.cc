#include "storage/s3_profile.h"

#include <initializer_list>

#include "storage/aws_profile.h"
#include "storage/environment.h"

namespace shardwise {
namespace {

std::string first_of(std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    if (!value.empty()) return value;
  }
  return {};
}

}  // namespace

S3Access resolve_s3_access(const Fetchers::S3Options& options, const AwsKeys& keys) {
  const bool is_named = !options.profile.empty() || !environment("AWS_PROFILE").empty();
  AwsSettings settings = read_aws_profile(aws_profile_name(options.profile), is_named);
  return {.keys = keys,
          .region = first_of({options.region, environment("AWS_REGION"),
                              environment("AWS_DEFAULT_REGION"), settings["region"], "us-east-1"}),
          .endpoint = first_of({options.endpoint, environment("AWS_ENDPOINT_URL_S3"),
                                environment("AWS_ENDPOINT_URL"), settings["endpoint_url"]})};
}

}  // namespace shardwise
