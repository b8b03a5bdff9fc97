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
  const std::string style = settings["s3.addressing_style"];
  const bool is_style = style == "path" || style == "virtual";
  return {.keys = keys,
          .region = first_of({options.region, environment("AWS_REGION"),
                              environment("AWS_DEFAULT_REGION"), settings["region"], "us-east-1"}),
          .endpoint = first_of({options.endpoint, aws_endpoint(settings, "s3")}),
          .path_style = options.path_style || !is_style ? options.path_style
                                                        : std::optional(style == "path")};
}

}  // namespace shardwise
