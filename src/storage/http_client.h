#pragma once

#include <map>
#include <string>

#include "base/fork.h"
#include "shardwise/storage/fetcher.h"
#include "storage/backoff.h"
#include "storage/curl_pool.h"
#include "storage/host_gate.h"
#include "storage/http_download.h"
#include "storage/http_exchange.h"

namespace shardwise {

/// Returns the remedy if a server refused a signature because its clock and this machine's differ;
/// may be empty.
std::string clock_remedy(const HttpResult& result);

/// Fetches files over http(s). Follows redirects, retries, and resumes interrupted transfers.
/// Threads: internally synchronised.
/// Errors: as Fetcher.
class HttpClient {
 public:
  explicit HttpClient(const Fetchers::Options& options)
      : options_(options), gate_(options.max_connections_per_host) {}

  Fetcher::Stat stat(const HttpTarget& target, const Fetcher::Request& request);
  Fetcher::Stat fetch(const HttpTarget& target, const Fetcher::Request& request,
                      Fetcher::Sink& sink);

  struct Text {
    HttpResult result;
    std::string text;  ///< body of a response with status 200, up to 16 MiB
  };
  /// Returns the text at an address. Errors: as fetch().
  /// @param next_page  if not null, receives the address of the next page from the Link header.
  std::string get_text(const HttpTarget& target, const Fetcher::Request& request,
                       const HttpQuery& query = {}, std::string* next_page = nullptr);
  /// Sends a request to a service, and returns the response with any status. Errors: as fetch().
  Text ask_for_text(const HttpTarget& target, const HttpQuery& query,
                    const Fetcher::Request& request);

 private:
  /// Waits until the HostGate admits the transfer, then sends one request.
  HttpResult exchange(const HttpTarget& target, const HttpQuery& query,
                      const Fetcher::Request& request, HttpBody& body);
  /// Makes one attempt, and follows redirects.
  HttpResult ask(HttpTarget target, const HttpQuery& query, const Fetcher::Request& request,
                 HttpBody& body);
  /// Makes attempts until one succeeds or fails permanently.
  HttpResult ask_patiently(const HttpTarget& target, const HttpQuery& query,
                           const Fetcher::Request& request, HttpBody& body);
  /// Pauses before the next attempt. Returns false if the retry budget is spent.
  bool try_again(Backoff& backoff, const HttpResult& result, const Fetcher::Request& request);
  HttpTarget redirected(const HttpTarget& from, const std::string& to,
                        const Fetcher::Request& request) const;

  const Fetchers::Options options_;
  CurlPool pool_;
  HostGate gate_;
  SeenVersions versions_;

  struct Host {
    bool has_answered = false;
    bool is_said_to_fail = false;  ///< on_retry was called, and the host has not recovered since
  };
  Mutex mutex_;
  std::map<std::string, Host> hosts_ SHARDWISE_GUARDED_BY(mutex_);  // by origin
};

}  // namespace shardwise
