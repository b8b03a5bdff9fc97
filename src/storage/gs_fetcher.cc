#include "storage/gs_fetcher.h"

#include "base/spelling.h"
#include "base/url.h"
#include "storage/environment.h"
#include "storage/google_tokens.h"
#include "storage/http_fetcher.h"
#include "storage/json_text.h"
#include "storage/listing.h"
#include "storage/object_url.h"
#include "storage/store_fetcher.h"
#include "storage/this_machine.h"

namespace shardwise {
namespace {

constexpr char kGsForm[] = "gs://bucket/object";

/// Returns the address of Google Cloud Storage, or of the emulator that the environment names.
std::string gs_endpoint() {
  std::string endpoint = environment("STORAGE_EMULATOR_HOST");
  if (endpoint.empty()) return "https://storage.googleapis.com";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return is_remote_url(endpoint) ? endpoint : "http://" + endpoint;
}

class GsFetcher : public StoreFetcher {
 public:
  explicit GsFetcher(const Fetchers::Options& options)
      : StoreFetcher(options),
        headers_(headers_of_store(options, "x-goog-")),
        unsent_(unsent_headers(options, "x-goog-")),
        tokens_(options) {}

  std::vector<std::string> list(const Fetcher::Request& request) override {
    const ObjectUrl object = parse_object_url(request.url, kGsForm, true);
    const std::string base =
        gs_endpoint() + "/storage/v1/b/" + percent_encoded(object.bucket) +
        "/o?fields=items(name),nextPageToken&prefix=" + percent_encoded(object.key);
    return list_pages(request, [&](const std::string& page, std::vector<std::string>& urls) {
      const std::string text = client_.get_text(
          target(page.empty() ? base : base + "&pageToken=" + percent_encoded(page), request),
          request);
      const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
      if (!json.is_object()) throw_no_list(request.url);
      for (const nlohmann::json& item : json.value("items", nlohmann::json::array())) {
        const std::string name = json_text(item, "name");
        if (name.empty()) throw_no_list(request.url);
        urls.push_back("gs://" + object.bucket + "/" + name);
      }
      return json_text(json, "nextPageToken");
    });
  }

 private:
  HttpTarget target_of(const Fetcher::Request& request) override {
    const auto [bucket, key] = parse_object_url(request.url, kGsForm);
    return target(gs_endpoint() + "/" + bucket + "/" + percent_encoded(key, "/"), request);
  }

  /// Returns the target for `url`. Each attempt gets a fresh token. REQUIRES: `request` outlives
  /// the target.
  HttpTarget target(const std::string& url, const Fetcher::Request& request) {
    HttpTarget target{.url = url};
    target.renew = [this, url, &request](const Refused& refused) {
      const bool is_safe = keeps_secrets(url);
      const AccessToken token = is_safe ? tokens_.find(refused, request.cancel) : AccessToken{};
      HttpTarget now{
          .url = url, .headers = headers_, .follows_redirects = false, .credential = token.id()};
      if (token.are_there()) now.headers.push_back("Authorization: Bearer " + token.text);
      now.login_remedy =
          !is_safe ? "use https in STORAGE_EMULATOR_HOST; the request was anonymous, because the "
                     "connection is not encrypted"
          : token.are_there()
              ? "check the bucket's policy and " + token.source +
                    "; for requester-pays buckets, add the header 'x-goog-user-project: PROJECT' "
                    "(" +
                    spelled("Fetchers::Options::headers") + ")"
              : "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default "
                "login`; the request was anonymous, because no credentials were found";
      now.login_remedy += unsent_;
      return now;
    };
    return target;
  }

  const std::vector<std::string> headers_;
  const std::string unsent_;
  GoogleTokens tokens_;
};

}  // namespace

std::unique_ptr<Fetcher> make_gs_fetcher(const Fetchers::Options& options) {
  return std::make_unique<GsFetcher>(options);
}

}  // namespace shardwise
