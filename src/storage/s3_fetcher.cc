#include "storage/s3_fetcher.h"

#include <algorithm>
#include <string_view>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/text.h"
#include "base/url.h"
#include "storage/http_client.h"

namespace shardwise {
namespace {

/// The first libcurl that is known to sign all headers, in order. Before 7.86 it signed only two.
constexpr unsigned kFirstSigningCurl = 0x075800;

/// The hash of empty content. S3 requires it, and libcurl before version 8 does not send it.
constexpr std::string_view kContentHash =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; });
}

struct BucketAndKey {
  std::string bucket, key;
};

BucketAndKey split(const std::string& url) {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument("the s3: URL is malformed",
                          in_quotes(redacted_url(url)) + " (" + std::string(why) + ")",
                          "write s3://bucket/key");
  };
  const std::string canonical = canonical_url(url);
  std::string_view rest = canonical;
  if (!rest.starts_with("s3://")) refuse("it has no //");
  rest.remove_prefix(5);
  const std::size_t slash = rest.find('/');
  const std::string_view bucket = rest.substr(0, slash);
  const bool is_bucket = !bucket.empty() && std::ranges::all_of(bucket, [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_';
  });
  if (!is_bucket || bucket == "." || bucket == "..") refuse("the bucket's name is not valid");
  if (slash == std::string_view::npos || slash + 1 == rest.size()) refuse("it names no key");
  return {std::string(bucket), std::string(rest.substr(slash + 1))};
}

/// True if certificates for *.host cover bucket.host.
bool fits_host_name(const std::string& bucket) {
  return std::ranges::all_of(bucket, [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

/// scheme://host[:port] and the path before the bucket, without its last slash.
struct Endpoint {
  std::string scheme, host, path;
};

Endpoint endpoint_of(const S3Access& access) {
  if (access.endpoint.empty()) {
    const bool is_china = access.region.starts_with("cn-");
    return {"https", "s3." + access.region + ".amazonaws.com" + (is_china ? ".cn" : ""), ""};
  }
  const Url url = parse_url(access.endpoint);
  if ((url.scheme != "http" && url.scheme != "https") || url.query || !url.userinfo.empty()) {
    throw InvalidArgument("the S3 endpoint is malformed", in_quotes(redacted_url(access.endpoint)),
                          "write https://host[:port][/path]");
  }
  std::string path = url.path;
  while (path.ends_with('/')) path.pop_back();
  return {url.scheme, url.host + (url.port ? ":" + std::to_string(*url.port) : ""), path};
}

void check_access(const S3Access& access) {
  const bool is_region = std::ranges::all_of(
      access.region, [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
  if (!is_region) {
    throw InvalidArgument("the S3 region is malformed", in_quotes(access.region),
                          "write it as us-east-1");
  }
  if (!is_printable(access.access_key_id) || !is_printable(access.secret_access_key) ||
      !is_printable(access.session_token) || access.access_key_id.find(':') != std::string::npos) {
    throw InvalidArgument("the S3 keys are malformed", access.source,
                          "a key is one word of printable characters");
  }
  const curl_version_info_data& curl = *curl_version_info(CURLVERSION_NOW);
  if (!access.access_key_id.empty() && curl.version_num < kFirstSigningCurl) {
    throw Unsupported("requests to S3 cannot be signed", "libcurl " + std::string(curl.version),
                      "install libcurl 7.88 or newer");
  }
}

/// Errors: Unsupported. libcurl resolves such parts before it signs, and would ask for another key.
void check_signable(const std::string& key, const std::string& url) {
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('/', begin), key.size());
    const std::string part = key.substr(begin, end - begin);
    if (part == "." || part == "..") {
      throw Unsupported("a key with a part '" + part + "' cannot be asked for with a signature",
                        in_quotes(redacted_url(url)),
                        "copy it to another key, or let it be read without keys");
    }
    begin = end + 1;
  }
}

class S3Fetcher : public Fetcher {
 public:
  explicit S3Fetcher(const Fetchers::Options& options) : options_(options.s3), client_(options) {}

  Fetcher::Stat stat(const Fetcher::Request& request) override {
    return client_.stat(s3_target(request.url, options_, resolve_s3_access(options_)), request);
  }
  Fetcher::Stat fetch(const Fetcher::Request& request, Fetcher::Sink& sink) override {
    return client_.fetch(s3_target(request.url, options_, resolve_s3_access(options_)), request,
                         sink);
  }

 private:
  const Fetchers::S3Options options_;
  HttpClient client_;
};

}  // namespace

HttpTarget s3_target(const std::string& url, const Fetchers::S3Options& options,
                     const S3Access& access) {
  check_access(access);
  const auto [bucket, key] = split(url);
  const Endpoint endpoint = endpoint_of(access);
  const bool is_in_path =
      options.path_style.value_or(!access.endpoint.empty() || !fits_host_name(bucket));

  HttpTarget target;
  target.url = endpoint.scheme + "://" + (is_in_path ? "" : bucket + ".") + endpoint.host +
               endpoint.path + (is_in_path ? "/" + bucket : "") + "/" + percent_encoded(key, "/");
  target.follows_redirects = false;  // another host would need another signature
  target.user = access.access_key_id;
  target.password = access.secret_access_key;
  if (!access.access_key_id.empty()) {
    check_signable(key, url);
    target.sigv4 = "aws:amz:" + access.region + ":s3";
    target.headers.emplace_back(kContentHash);
  }
  if (!access.session_token.empty()) {
    target.headers.push_back("x-amz-security-token: " + access.session_token);
  }
  target.login_remedy =
      access.access_key_id.empty()
          ? "no keys were found, so the request was anonymous: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or a profile"
          : "check the keys (from " + access.source + "), the region and the bucket's policy";
  return target;
}

std::unique_ptr<Fetcher> make_s3_fetcher(const Fetchers::Options& options) {
  return std::make_unique<S3Fetcher>(options);
}

}  // namespace shardwise
