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

/// What to do where an answer refused a signature, and the clocks of this machine and the server
/// differ; empty where they do not.
std::string clock_remedy(const HttpResult& result);

/// Requests files over http(s): follows redirects, retries, resumes after cuts. Errors: as Fetcher.
/// Threads: internally synchronised.
class HttpClient {
 public:
  explicit HttpClient(const Fetchers::Options& options)
      : options_(options), gate_(options.max_connections_per_host) {}

  Fetcher::Stat stat(const HttpTarget& target, const Fetcher::Request& request);
  Fetcher::Stat fetch(const HttpTarget& target, const Fetcher::Request& request,
                      Fetcher::Sink& sink);

  struct Text {
    HttpResult result;
    std::string text;  ///< of a 200, 16 MiB at most
  };
  /// Asks a service, whose answer is a text.
  /// The text at an address. Errors: as fetch().
  /// @param next_page  if not null: takes where its Link says that the next page.
  std::string get_text(const HttpTarget& target, const Fetcher::Request& request,
                       const HttpQuery& query = {}, std::string* next_page = nullptr);
  Text ask_for_text(const HttpTarget& target, const HttpQuery& query,
                    const Fetcher::Request& request);

 private:
  /// One request, once its host may be asked.
  HttpResult exchange(const HttpTarget& target, const HttpQuery& query,
                      const Fetcher::Request& request, HttpBody& body);
  /// One attempt, redirects followed.
  HttpResult ask(HttpTarget target, const HttpQuery& query, const Fetcher::Request& request,
                 HttpBody& body);
  /// Makes attempts until one does not fail for a transient reason.
  HttpResult ask_patiently(const HttpTarget& target, const HttpQuery& query,
                           const Fetcher::Request& request, HttpBody& body);
  /// Waits for the time of the next attempt after this one. False: there are to be no more.
  bool try_again(Backoff& backoff, const HttpResult& result, const Fetcher::Request& request);
  HttpTarget redirected(const HttpTarget& from, const std::string& to,
                        const Fetcher::Request& request) const;

  const Fetchers::Options options_;
  CurlPool pool_;
  HostGate gate_;
  SeenVersions versions_;

  struct Host {
    bool has_answered = false;
    bool is_said_to_fail = false;  ///< on_retry was called, and it does not work again yet
  };
  Mutex mutex_;
  std::map<std::string, Host> hosts_ SHARDWISE_GUARDED_BY(mutex_);  // by origin
};

}  // namespace shardwise
