#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"
#include "storage/curl_pool.h"
#include "storage/http_answer.h"
#include "storage/kept_credentials.h"

namespace shardwise {

struct HttpQuery {
  bool head_only = false;
  std::string method = {};    ///< empty means GET, or HEAD if head_only
  std::string body = {};      ///< body of a POST
  std::string range = {};     ///< "5-9" or "5-"; empty means the whole file
  std::string if_range = {};  ///< a validator, for the If-Range header
  /// A strong ETag; the server answers 412 if the file has another version.
  std::string if_match = {};
};

struct HttpResult;

/// The address of a file, and the credentials for it.
struct HttpTarget {
  std::string url;                        ///< canonical, without userinfo
  std::string user = {}, password = {};   ///< secret
  std::string sigv4 = {};                 ///< value of CURLOPT_AWS_SIGV4, if not empty
  std::string netrc_file = {};            ///< users and passwords by host; optional
  std::vector<std::string> headers = {};  ///< secret
  bool is_aws = false;                    ///< use AWS_CA_BUNDLE
  bool bypasses_proxy = false;            ///< use no proxy; implied for URLs of this machine
  /// Returns secret headers that depend on the query, e.g. a signature. May be null.
  std::function<std::vector<std::string>(const HttpQuery&)> sign = nullptr;
  bool follows_redirects = true;
  std::string login_remedy = {};  ///< remedy if the server refuses access
  std::string credential = {};    ///< secret; identifies the credentials; may be empty
  /// Makes the target for each attempt, with current credentials. Null means the target stays the
  /// same.
  /// @param refused  the `credential` that the server just refused; nullopt if none was refused.
  std::function<HttpTarget(const Refused& refused)> renew = nullptr;
  /// Returns the target for the next attempt, see `renew`.
  HttpTarget renewed(const Refused& refused = {}) const { return renew ? renew(refused) : *this; }
  /// Examines a response that is not a file. Returns true if the response says how to repeat the
  /// request, e.g. in which region. `renew` then returns a target that does so. May be null.
  std::function<bool(const HttpResult&)> learn = nullptr;
  /// Returns the remedy that the store's response suggests. If this is null or returns an empty
  /// text, the general remedy is used.
  std::function<std::string(const HttpResult&)> advise = nullptr;
  /// Version named by a redirect to this address, see HttpAnswer::version.
  std::string version = {};
};

/// Receives the body of a response with status 200 or 206. An exception that a method throws ends
/// the exchange, and is rethrown to the caller.
class HttpBody {
 public:
  virtual ~HttpBody() = default;
  /// Called before the first write. Not called for a response without a body.
  virtual void begin(const HttpAnswer& answer) = 0;
  /// Receives bytes of the body. Returns false when it needs no more bytes.
  virtual bool write(std::string_view bytes) = 0;
};

/// The outcome of one exchange.
struct HttpResult {
  HttpAnswer answer;
  CURLcode code = CURLE_OK;
  std::string origin;        ///< origin of the last target
  std::string reason;        ///< reason of the failure in libcurl's words, without secrets
  std::string redirect_url;  ///< absolute
  std::string error_name;    ///< error code that S3 names
  std::string error_text;    ///< start of an error page; may contain secrets
  std::string advice;        ///< remedy from the last target, see HttpTarget::advise
  bool is_signed = false;    ///< sent with a signature that is valid only for minutes
  std::string login_remedy;  ///< login_remedy of the last target
  std::string credential;    ///< credential of the last target
  bool was_stopped = false;  ///< the body stopped the transfer, because it needs no more bytes
  bool has_excess = false;   ///< more bytes arrived than announced
  /// Time from the request to the first byte of the response, and from there to the last byte.
  std::chrono::microseconds latency{}, body_time{};
  std::uint64_t body_bytes = 0;

  bool has_file() const {
    return (code == CURLE_OK || was_stopped) && (answer.status == 200 || answer.status == 206);
  }
  bool is_redirect() const {
    const int status = answer.status;
    return code == CURLE_OK && !redirect_url.empty() &&
           (status == 301 || status == 302 || status == 303 || status == 307 || status == 308);
  }
};

/// Sends one request and receives one response, without following redirects or retrying.
/// Errors: Cancelled; errors of `body`. Other failures are reported in the result.
HttpResult http_exchange(CurlPool& pool, const Fetchers::Options& options, const HttpTarget& target,
                         const HttpQuery& query, const Fetcher::Request& request, HttpBody& body);

/// Several exchanges at a time, on the calling thread. Over https the exchanges share one HTTP/2
/// connection if the server supports HTTP/2; otherwise each has its own connection. The destructor
/// stops all exchanges.
/// Threads: one.
class HttpExchanges {
 public:
  HttpExchanges(CurlPool& pool, const Fetchers::Options& options);
  ~HttpExchanges();
  HttpExchanges(const HttpExchanges&) = delete;
  HttpExchanges& operator=(const HttpExchanges&) = delete;

  /// Starts an exchange. Returns false if no more exchanges can be started, because a server sent
  /// more bytes than it announced, or libcurl failed.
  /// @param id  identifies the exchange in wait().
  /// REQUIRES: `request` and `body` outlive the exchange.
  bool start(std::size_t id, const HttpTarget& target, const HttpQuery& query,
             const Fetcher::Request& request, HttpBody& body);
  struct Ended {
    std::size_t id = 0;
    HttpResult result;
    std::exception_ptr error;  ///< an error of http_exchange(); `result` is then incomplete
  };
  /// Waits until an exchange ends, at most for `timeout`. Returns nothing after the timeout.
  std::optional<Ended> wait(std::chrono::milliseconds timeout);
  /// Returns the number of exchanges that wait() has not returned yet.
  [[nodiscard]] std::size_t num_running() const noexcept { return running_.size() + ended_.size(); }
  /// True if wait() will return nothing any more.
  [[nodiscard]] bool has_failed() const noexcept { return multi_.has_failed() && ended_.empty(); }

 private:
  class Running;
  Ended end(const CurlMulti::Ended& ended);

  CurlPool& pool_;
  const Fetchers::Options& options_;
  CurlMulti multi_;
  bool may_start_ = true;
  std::vector<std::unique_ptr<Running>> running_;
  std::deque<Ended> ended_;  // not returned yet
};

}  // namespace shardwise
