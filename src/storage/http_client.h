#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/fork.h"
#include "shardwise/storage/fetcher.h"
#include "storage/backoff.h"
#include "storage/curl_pool.h"
#include "storage/host_gate.h"
#include "storage/host_speed.h"
#include "storage/http_download.h"
#include "storage/http_exchange.h"
#include "storage/known_redirects.h"

namespace shardwise {

/// Returns the remedy for a signature that the server refused because its clock differs from this
/// machine's; empty for other failures.
std::string clock_remedy(const HttpResult& result);

/// Fetches files over http(s). Follows redirects, retries, and resumes interrupted transfers.
/// Threads: internally synchronised.
/// Errors: as Fetcher.
class HttpClient {
 public:
  explicit HttpClient(const Fetchers::Options& options) : options_(options) {}

  Fetcher::Stat stat(const HttpTarget& target, const Fetcher::Request& request);
  Fetcher::Stat fetch(const HttpTarget& target, const Fetcher::Request& request,
                      Fetcher::Sink& sink);
  /// Makes the target of a request. The request outlives the target.
  using TargetOf = std::function<HttpTarget(const Fetcher::Request& request)>;
  /// Does what Fetcher::fetch_parts() does.
  void fetch_parts(std::span<Fetcher::Part> parts, const TargetOf& target_of);
  /// Returns what Fetcher::max_gap_bytes() returns.
  std::uint64_t max_gap_bytes() { return speed_.bytes_in_flight(); }

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
  class Parts;

  /// Waits until the HostGate admits the transfer, then sends one request.
  HttpResult exchange(const HttpTarget& target, const HttpQuery& query,
                      const Fetcher::Request& request, HttpBody& body,
                      std::chrono::milliseconds max_pause);
  /// Completes the result of an exchange, and learns from it about the host.
  void note(HttpResult& result, const HttpTarget& target, const std::string& origin,
            const HostGate::Turn& turn);
  /// Makes one attempt, and follows redirects.
  /// @param max_pause  the longest time to wait for a host that refuses requests.
  HttpResult ask(const HttpTarget& target, const HttpQuery& query, const Fetcher::Request& request,
                 HttpBody& body, std::chrono::milliseconds max_pause);
  /// Returns the target to which a former request for a part of the file was redirected; nullopt if
  /// it is unknown, or if the request must not skip the redirect.
  std::optional<HttpTarget> where_known(const HttpTarget& target, const Fetcher::Request& request);
  /// Removes the conditional headers of a query after a redirect that names the file's version,
  /// because the redirect's target host uses other validators.
  static HttpQuery query_for(const HttpTarget& target, HttpQuery query);
  /// Does what ask() does, at the target to which a former request for the same file was
  /// redirected. Returns nothing if the target is unknown or out of date.
  std::optional<HttpResult> ask_where_known(const HttpTarget& target, const HttpQuery& query,
                                            const Fetcher::Request& request, HttpBody& body,
                                            std::chrono::milliseconds max_pause);
  /// Makes attempts until one succeeds or fails permanently.
  HttpResult ask_patiently(const HttpTarget& target, const HttpQuery& query,
                           const Fetcher::Request& request, HttpBody& body);
  /// Pauses before the next attempt. Returns false if the retry budget is spent.
  bool try_again(Backoff& backoff, const HttpResult& result, const Fetcher::Request& request);
  HttpTarget redirected(const HttpTarget& from, const std::string& to,
                        const Fetcher::Request& request) const;
  /// Returns the target that a server redirects to, with the version that it names.
  HttpTarget redirected(const HttpTarget& from, const HttpResult& result,
                        const Fetcher::Request& request) const;

  const Fetchers::Options options_;
  CurlPool pool_;
  SeenVersions versions_;
  KnownRedirects redirects_;
  HostSpeed speed_;

  struct Host {
    bool has_answered = false;
    bool has_redirected = false;
    bool is_said_to_fail = false;  ///< on_retry was called, and the host has not recovered since
  };
  Mutex mutex_;
  std::map<std::string, Host> hosts_ SHARDWISE_GUARDED_BY(mutex_);  // by origin
};

}  // namespace shardwise
