#pragma once

#include <curl/curl.h>

#include <functional>
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
  std::string method = {};    ///< GET, or HEAD, by default
  std::string body = {};      ///< of a POST
  std::string range = {};     ///< "5-9" or "5-"; empty means all
  std::string if_range = {};  ///< a validator
  std::string if_match = {};  ///< a strong ETag; another version is answered with 412
};

struct HttpResult;

/// The address of a file, and the credentials for it.
struct HttpTarget {
  std::string url;                        ///< canonical, without userinfo
  std::string user = {}, password = {};   ///< secret
  std::string sigv4 = {};                 ///< value of CURLOPT_AWS_SIGV4, if not empty
  std::string netrc_file = {};            ///< users and passwords by host; optional
  std::vector<std::string> headers = {};  ///< secret
  bool is_aws = false;                    ///< AWS_CA_BUNDLE applies
  bool bypasses_proxy = false;            ///< implied for URLs of this machine
  /// Secret headers that depend on the query, e.g. a signature. May be null.
  std::function<std::vector<std::string>(const HttpQuery&)> sign = nullptr;
  bool follows_redirects = true;
  std::string login_remedy = {};  ///< used if the server refuses access
  std::string credential = {};    ///< secret, identifies the credentials; may be empty
  /// Makes the target anew for each attempt, with current credentials; null means it stays the
  /// same.
  /// @param refused  the `credential` that the server just refused; nullopt if it did not.
  std::function<HttpTarget(const Refused& refused)> renew = nullptr;
  /// Examines an answer that is not a file. Returns true if it says how to repeat the request, e.g.
  /// in which region; `renew` then does so. May be null.
  std::function<bool(const HttpResult&)> learn = nullptr;
  /// Returns the remedy that the store's answer suggests. If null or empty, the general remedy is
  /// used.
  std::function<std::string(const HttpResult&)> advise = nullptr;
  std::string version = {};  ///< named by a redirect to here, see HttpAnswer::version
};

/// Takes the body of a 200 or 206. An exception from it ends the exchange and reaches its caller.
class HttpBody {
 public:
  virtual ~HttpBody() = default;
  /// Called before the first write; not called for an answer without a body.
  virtual void begin(const HttpAnswer& answer) = 0;
  /// Returns false once it needs no more bytes.
  virtual bool write(std::string_view bytes) = 0;
};

/// The outcome of an exchange.
struct HttpResult {
  HttpAnswer answer;
  CURLcode code = CURLE_OK;
  std::string origin;        ///< of the last target
  std::string reason;        ///< of the failure, in libcurl's words, without secrets
  std::string redirect_url;  ///< absolute
  std::string error_name;    ///< S3's name for the error
  std::string error_text;    ///< start of an error page; may hold secrets
  std::string advice;        ///< of the last target, see HttpTarget::advise
  bool is_signed = false;    ///< with a signature that is valid for minutes only
  std::string login_remedy;  ///< of the last target
  std::string credential;    ///< of the last target
  bool was_stopped = false;  ///< by the body, which needs no more
  bool has_excess = false;   ///< more bytes arrived than announced

  bool has_file() const {
    return (code == CURLE_OK || was_stopped) && (answer.status == 200 || answer.status == 206);
  }
};

/// Sends one request and takes one answer: no redirects, no retries.
/// Errors: Cancelled; errors of `body`. Other failures are in the result.
HttpResult http_exchange(CurlPool& pool, const Fetchers::Options& options, const HttpTarget& target,
                         const HttpQuery& query, const Fetcher::Request& request, HttpBody& body);

}  // namespace shardwise
