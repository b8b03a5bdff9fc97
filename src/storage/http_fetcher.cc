#include "storage/http_fetcher.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/lines.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/environment.h"
#include "storage/store_fetcher.h"
#include "storage/this_machine.h"
#include "storage/token_file.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kMaxNetrcBytes = std::uint64_t{16} << 20;

/// Returns the path of the netrc file, which has users and passwords by host; empty if it is
/// missing.
/// Errors: InvalidArgument if a named file cannot be read, or a file is not text. libcurl would
///   silently find no passwords in such a file.
std::string find_netrc(const std::string& named) {
  constexpr std::string_view kWhat = "the netrc file";
  std::string path = named.empty() ? environment("NETRC") : named;
  if (path.empty()) path = environment("HOME") + "/.netrc";
  struct stat status {};
  const bool is_there = ::stat(c_path(path), &status) == 0 && ::access(path.c_str(), R_OK) == 0;
  if (!is_there || S_ISDIR(status.st_mode)) {
    if (named.empty()) return {};
    throw InvalidArgument("cannot read the netrc file", in_quotes(named), "check its path");
  }
  if (S_ISFIFO(status.st_mode)) {
    throw InvalidArgument("the netrc file is a pipe, but must be read for each request",
                          in_quotes(path), "name a regular file");
  }
  if (!S_ISREG(status.st_mode)) return path;  // e.g. /dev/null
  const std::string text = read_text(path, kMaxNetrcBytes, kWhat);
  if (checked_text(text, kWhat, in_quotes(path)).size() == text.size()) return path;
  throw InvalidArgument("the netrc file begins with a byte order mark", in_quotes(path),
                        "save the file as UTF-8 without a byte order mark");
}

bool has_authorization(const std::vector<std::string>& headers) {
  return std::ranges::any_of(headers, [](const std::string& header) {
    return to_lower(header.substr(0, header.find(':'))) == "authorization";
  });
}

/// Adds the credentials that the options specify.
void identify(HttpTarget& target, const Url& url, const Fetchers::Options& options,
              const CancelToken& cancel) {
  target.headers = options.headers;
  if (!url.userinfo.empty() || has_authorization(options.headers)) return;
  if (options.bearer_token_file.empty()) {
    target.netrc_file = find_netrc(options.netrc_file);
    return;
  }
  const bool is_near = is_this_machine(url.host);
  if (url.scheme != "https" && !(is_near && options.bearer_token_loopback)) {
    throw InvalidArgument("the bearer token is not sent without encryption",
                          in_quotes(redacted_url(target.url)),
                          is_near ? "use https URLs, or, if you trust the server on this machine, "
                                    "allow the token without encryption (" +
                                        spelled("Fetchers::Options::bearer_token_loopback") + ")"
                                  : "use https URLs");
  }
  target.headers.push_back("Authorization: Bearer " +
                           read_token(options.bearer_token_file, "bearer token", cancel));
  target.login_remedy = "check the token in " + in_quotes(options.bearer_token_file);
}

/// Returns the target for `url`. The URL's userinfo becomes user and password.
HttpTarget make_target(const std::string& url, const Fetchers::Options& options,
                       const CancelToken& cancel) {
  const Url parsed = parse_url(url);
  const std::string& userinfo = parsed.userinfo;
  HttpTarget target{.url = canonical_url(url)};
  const bool says_who_asks =
      !userinfo.empty() || unsigned_url(url) != url || !options.headers.empty();
  target.login_remedy =
      says_who_asks ? "check the user and the password, or whether a signed URL has expired"
                    : "the URL has no password or signature; add credentials (" +
                          spelled("Fetchers::Options: moved, resolve, headers, netrc_file") +
                          "), or use s3:// URLs with keys";
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
  identify(target, parsed, options, cancel);
  if (!options.bearer_token_file.empty()) {  // the token may be replaced during a transfer
    target.renew = [url, &options, cancel](const Refused&) {
      return make_target(url, options, cancel);
    };
  }
  return target;
}

class HttpFetcher : public StoreFetcher {
 public:
  explicit HttpFetcher(const Fetchers::Options& options)
      : StoreFetcher(options), options_(options) {}

 private:
  HttpTarget target_of(const Fetcher::Request& request) override {
    return make_target(request.url, options_, request.cancel);
  }

  const Fetchers::Options options_;
};

}  // namespace

std::vector<std::string> headers_of_store(const Fetchers::Options& options,
                                          std::string_view beginning) {
  std::vector<std::string> own;
  for (const std::string& header : options.headers) {
    if (!beginning.empty() && to_lower(header).starts_with(beginning)) own.push_back(header);
  }
  return own;
}

std::string unsent_headers(const Fetchers::Options& options, std::string_view beginning) {
  const bool has_others = headers_of_store(options, beginning).size() != options.headers.size() ||
                          !options.bearer_token_file.empty() || !options.netrc_file.empty();
  return has_others ? " (headers, the bearer token and netrc were not sent, because they are for "
                      "http and https)"
                    : "";
}

std::unique_ptr<Fetcher> make_http_fetcher(const Fetchers::Options& options) {
  return std::make_unique<HttpFetcher>(options);
}

}  // namespace shardwise
