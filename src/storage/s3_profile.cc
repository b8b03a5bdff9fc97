#include "storage/s3_profile.h"

#include "storage/aws_profile.h"
#include "storage/environment.h"

namespace shardwise {

S3Access resolve_s3_access(const Fetchers::S3Options& options, const AwsKeys& keys) {
  const bool is_named = !options.profile.empty() || !environment("AWS_PROFILE").empty();
  const AwsSettings settings = read_aws_profile(aws_profile_name(options.profile), is_named);
  const std::string style = setting(settings, "s3.addressing_style");
  const bool is_style = style == "path" || style == "virtual";
  return {.keys = keys,
          .region = aws_region(options.region, settings),
          .endpoint = options.endpoint.empty() ? aws_endpoint(settings, "s3") : options.endpoint,
          .path_style = options.path_style || !is_style ? options.path_style
                                                        : std::optional(style == "path")};
}

}  // namespace shardwise
