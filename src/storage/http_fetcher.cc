#include "storage/http_fetcher.h"

#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/http_client.h"

namespace shardwise {
namespace {

/// Where `url` points; its userinfo becomes user and password.
HttpTarget target_of(const std::string& url) {
  const std::string userinfo = parse_url(url).userinfo;
  HttpTarget target{.url = canonical_url(url)};
  target.login_remedy = "check user and password, or whether a signed URL has expired";
  const std::size_t colon = std::min(userinfo.find(':'), userinfo.size());
  const auto user = percent_decoded(std::string_view(userinfo).substr(0, colon));
  const auto password =
      percent_decoded(std::string_view(userinfo).substr(std::min(colon + 1, userinfo.size())));
  if (!user || !password || user->find('\0') != std::string::npos ||
      password->find('\0') != std::string::npos) {
    throw InvalidArgument("the user or password in the URL is malformed",
                          in_quotes(redacted_url(url)), "write %25 for %");
  }
  target.user = *user;
  target.password = *password;
  return target;
}

class HttpFetcher : public Fetcher {
 public:
  explicit HttpFetcher(const Fetchers::Options& options) : client_(options) {}

  Fetcher::Stat stat(const Fetcher::Request& request) override {
    return client_.stat(target_of(request.url), request);
  }
  Fetcher::Stat fetch(const Fetcher::Request& request, Fetcher::Sink& sink) override {
    return client_.fetch(target_of(request.url), request, sink);
  }

 private:
  HttpClient client_;
};

}  // namespace

std::unique_ptr<Fetcher> make_http_fetcher(const Fetchers::Options& options) {
  return std::make_unique<HttpFetcher>(options);
}

}  // namespace shardwise
