#include "storage/s3_fetcher.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/fork.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "storage/aws_keys.h"
#include "storage/http_fetcher.h"
#include "storage/listing.h"
#include "storage/object_url.h"
#include "storage/store_fetcher.h"
#include "storage/xml_text.h"

namespace shardwise {
namespace {

/// The first libcurl version known to sign all headers in the required order. Versions before 7.86
/// signed only two headers.
constexpr unsigned kFirstSigningCurl = 0x075800;

/// The hash of an empty body. S3 requires this header, and libcurl before version 8 does not send
/// it.
constexpr std::string_view kContentHash =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; });
}

constexpr char kS3Form[] = "s3://bucket/key";

/// True if a certificate for *.host is valid for bucket.host.
bool fits_host_name(const std::string& bucket) {
  return std::ranges::all_of(bucket, [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

/// The parts of an endpoint: scheme, host[:port], and the path before the bucket without its last
/// slash.
struct Endpoint {
  std::string scheme, host, path;
};

Endpoint endpoint_of(const S3Access& access) {
  if (access.endpoint.empty()) return {"https", "s3." + aws_domain(access.region), ""};
  const Url url = parse_url(access.endpoint);
  if ((url.scheme != "http" && url.scheme != "https") || url.query || !url.userinfo.empty()) {
    throw InvalidArgument("the S3 endpoint is malformed", in_quotes(redacted_url(access.endpoint)),
                          "write https://host[:port][/path]");
  }
  std::string path = url.path;
  while (path.ends_with('/')) path.pop_back();
  return {url.scheme, url.host + (url.port ? ":" + std::to_string(*url.port) : ""), path};
}

/// True for the name of a region. At Amazon the region is part of a host name. Other servers accept
/// any name in a signature, e.g. OpenStack's RegionOne.
bool is_region(std::string_view text, bool is_amazon) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    const bool is_common = is_lower(c) || is_digit(c) || c == '-';
    return is_common || (!is_amazon && (is_letter(c) || c == '_' || c == '.'));
  });
}

void check_access(const S3Access& access) {
  if (!is_region(access.region, access.endpoint.empty())) {
    throw InvalidArgument("the S3 region is malformed", in_quotes(access.region),
                          access.endpoint.empty() ? "write a region like us-east-1"
                                                  : "use only letters, digits, '-', '_' and '.'");
  }
  const AwsKeys& keys = access.keys;
  if (!is_printable(keys.access_key_id) || !is_printable(keys.secret_access_key) ||
      !is_printable(keys.session_token) || keys.access_key_id.find(':') != std::string::npos) {
    throw InvalidArgument("the S3 keys are malformed", keys.source,
                          "set keys of printable characters, without spaces");
  }
  const curl_version_info_data& curl = *curl_version_info(CURLVERSION_NOW);
  if (keys.are_there() && curl.version_num < kFirstSigningCurl) {
    throw Unsupported("requests to S3 cannot be signed", "libcurl " + std::string(curl.version),
                      "install libcurl 7.88 or newer");
  }
}

/// Rejects keys with segments such as "..": libcurl would resolve them before signing, and so
/// request another key. Errors: Unsupported.
void check_signable(const std::string& key, const std::string& url) {
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('/', begin), key.size());
    const std::string part = key.substr(begin, end - begin);
    if (part == "." || part == "..") {
      throw Unsupported(
          "a signed request cannot use a key with the part '" + part + "'",
          in_quotes(redacted_url(url)),
          "copy the object to another key, or make it public and read it without credentials");
    }
    begin = end + 1;
  }
}

/// Returns the bucket's region that the response names in its header or text; may be empty.
std::string named_region(const HttpResult& result) {
  const int status = result.answer.status;
  if (status / 100 != 3 && status != 400 && status != 403) return {};
  std::string region = result.answer.bucket_region;
  if (region.empty()) region = xml_text(result.error_text, "Region");
  return is_region(region, false) ? region : std::string();
}

/// Returns the remedy that S3's response suggests; may be empty.
std::string advice_of(const HttpResult& result) {
  const int status = result.answer.status;
  const std::string region = named_region(result);
  if (!region.empty() && status != 403) {
    return "set the region " + in_quotes(region) + ", which is the bucket's, in AWS_REGION" +
           if_there(" or in ", "Fetchers::S3Options::region");
  }
  const std::string endpoint = xml_text(result.error_text, "Endpoint");
  if (status / 100 == 3 && !endpoint.empty()) {
    return "set the region or the endpoint of the bucket, which is at " + in_quotes(endpoint) +
           " (AWS_REGION, AWS_ENDPOINT_URL_S3)";
  }
  if (result.error_name == "NoSuchBucket") {
    return "check the bucket's name, and the service (AWS_ENDPOINT_URL_S3)";
  }
  return {};
}

class S3Fetcher : public StoreFetcher {
 public:
  explicit S3Fetcher(const Fetchers::Options& options)
      : StoreFetcher(options),
        options_(options.s3),
        headers_(headers_of_store(options, "x-amz-")),
        unsent_(unsent_headers(options, "x-amz-")),
        keys_(options) {}

  std::vector<std::string> list(const Fetcher::Request& request) override {
    const std::string bucket = "s3://" + parse_object_url(request.url, kS3Form, true).bucket + "/";
    return list_pages(request, [&](const std::string& page, std::vector<std::string>& urls) {
      const std::string text = list_page(request, page);
      // Some servers do not encode keys.
      const bool is_encoded = xml_text(text, "EncodingType") == "url";
      for (const std::string_view entry : xml_elements(text, "Contents")) {
        std::string key = xml_text(entry, "Key");
        if (!is_encoded) {
          urls.push_back(bucket + key);
          continue;
        }
        std::ranges::replace(key, '+', ' ');  // a space is encoded as +, and a plus sign as %2B
        const auto bytes = percent_decoded(key);
        if (!bytes) throw_no_list(request.url);
        urls.push_back(bucket + *bytes);
      }
      if (text.find("<ListBucketResult") == std::string::npos) throw_no_list(request.url);
      return xml_text(text, "IsTruncated") == "true" ? xml_text(text, "NextContinuationToken") : "";
    });
  }

 private:
  std::string list_page(const Fetcher::Request& request, const std::string& page) {
    return client_.get_text(signed_target(request,
                                          [&](const S3Access& access) {
                                            return s3_list_target(request.url, page, access);
                                          }),
                            request);
  }

  HttpTarget target_of(const Fetcher::Request& request) override {
    return signed_target(
        request, [&request](const S3Access& access) { return s3_target(request.url, access); });
  }

  /// Returns the target that `make` creates. Each attempt uses current keys, and the bucket's
  /// region if a server has named it.
  /// REQUIRES: `request` outlives the target.
  HttpTarget signed_target(const Fetcher::Request& request,
                           std::function<HttpTarget(const S3Access&)> make) {
    const std::string bucket = parse_object_url(request.url, kS3Form, true).bucket;
    const auto asked = std::make_shared<std::string>();  // region used in the last attempt
    HttpTarget target{.url = request.url, .is_aws = true};
    target.renew = [=, this, &request, make = std::move(make)](const Refused& refused) {
      S3Access access = resolve_s3_access(options_, keys_.find(refused, request.cancel));
      {
        const Lock lock(mutex_);
        const auto known = regions_.find(bucket);
        if (known != regions_.end()) access.region = known->second;
      }
      *asked = access.region;
      HttpTarget now = make(access);
      now.headers.insert(now.headers.end(), headers_.begin(), headers_.end());
      now.login_remedy += unsent_;
      return now;
    };
    target.learn = [=, this](const HttpResult& result) {
      std::string region = named_region(result);
      if (region.empty() || region == *asked) return false;
      const Lock lock(mutex_);
      regions_[bucket] = std::move(region);
      return true;
    };
    return target;
  }

  const Fetchers::S3Options options_;
  const std::vector<std::string> headers_;
  const std::string unsent_;
  AwsKeyChain keys_;
  Mutex mutex_;
  /// Regions that servers named, by bucket, if they differ from the configured region.
  std::map<std::string, std::string> regions_ SHARDWISE_GUARDED_BY(mutex_);
};

/// Returns the target for an address within a bucket.
/// @param rest  encoded path and query.
HttpTarget in_bucket(const std::string& bucket, const std::string& rest, const S3Access& access) {
  check_access(access);
  const Endpoint endpoint = endpoint_of(access);
  const bool is_in_path =
      access.path_style.value_or(!access.endpoint.empty() || !fits_host_name(bucket));

  HttpTarget target;
  target.url = endpoint.scheme + "://" + (is_in_path ? "" : bucket + ".") + endpoint.host +
               endpoint.path + (is_in_path ? "/" + bucket : "") + "/" + rest;
  target.is_aws = true;
  target.follows_redirects = false;  // a redirect to another host would need another signature
  target.advise = advice_of;
  target.credential = access.keys.id();
  target.user = access.keys.access_key_id;
  target.password = access.keys.secret_access_key;
  if (access.keys.are_there()) {
    target.sigv4 = "aws:amz:" + access.region + ":s3";
    target.headers.emplace_back(kContentHash);
  }
  if (!access.keys.session_token.empty()) {
    target.headers.push_back("x-amz-security-token: " + access.keys.session_token);
  }
  target.login_remedy = !access.keys.are_there()
                            ? "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile; the "
                              "request was anonymous, because no keys were found"
                            : "check the keys (from " + access.keys.source +
                                  "), the region and the bucket's policy; for requester-pays "
                                  "buckets, add the header 'x-amz-request-payer: requester' (" +
                                  spelled("Fetchers::Options::headers") + ")";
  return target;
}

}  // namespace

HttpTarget s3_target(const std::string& url, const S3Access& access) {
  const auto [bucket, key] = parse_object_url(url, kS3Form);
  HttpTarget target = in_bucket(bucket, percent_encoded(key, "/"), access);
  if (access.keys.are_there()) check_signable(key, url);
  return target;
}

HttpTarget s3_list_target(const std::string& url, const std::string& page, const S3Access& access) {
  const auto [bucket, prefix] = parse_object_url(url, kS3Form, true);
  std::string query = "?";  // parameters are sorted by name, as signing requires
  if (!page.empty()) query += "continuation-token=" + percent_encoded(page) + "&";
  query += "encoding-type=url&list-type=2";
  if (!prefix.empty()) query += "&prefix=" + percent_encoded(prefix);
  return in_bucket(bucket, query, access);
}

std::unique_ptr<Fetcher> make_s3_fetcher(const Fetchers::Options& options) {
  return std::make_unique<S3Fetcher>(options);
}

}  // namespace shardwise
