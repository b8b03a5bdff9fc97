#pragma once

#include "shardwise/storage/fetcher.h"
#include "storage/curl_pool.h"
#include "storage/http_exchange.h"

namespace shardwise {

/// Requests files over http(s): follows redirects, retries, resumes after cuts. Errors: as Fetcher.
/// Threads: internally synchronised.
class HttpClient {
 public:
  explicit HttpClient(const Fetchers::Options& options) : options_(options) {}

  Fetcher::Stat stat(const HttpTarget& target, const Fetcher::Request& request);
  Fetcher::Stat fetch(const HttpTarget& target, const Fetcher::Request& request,
                      Fetcher::Sink& sink);

 private:
  /// One attempt, redirects followed.
  HttpResult ask(HttpTarget target, const HttpQuery& query, const Fetcher::Request& request,
                 HttpBody& body);
  /// Makes attempts until one does not fail for a transient reason.
  HttpResult ask_patiently(const HttpTarget& target, const HttpQuery& query,
                           const Fetcher::Request& request);
  HttpTarget redirected(const HttpTarget& from, const std::string& to,
                        const Fetcher::Request& request) const;

  const Fetchers::Options options_;
  CurlPool pool_;
};

}  // namespace shardwise
