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
  std::string method = {};    ///< empty: GET, or HEAD
  std::string body = {};      ///< of a POST
  std::string range = {};     ///< "5-9" or "5-"; empty: all
  std::string if_range = {};  ///< a validator
  std::string if_match = {};  ///< a strong ETag; the answer for another file is 412
};

struct HttpResult;

/// The address of a file, and the credentials for it.
struct HttpTarget {
  std::string url;                        ///< canonical, without userinfo
  std::string user = {}, password = {};   ///< secret
  std::string sigv4 = {};                 ///< if not empty, what CURLOPT_AWS_SIGV4 takes
  std::string netrc_file = {};            ///< users and passwords by host; empty: none
  std::vector<std::string> headers = {};  ///< secret
  bool is_aws = false;                    ///< AWS_CA_BUNDLE is for it
  bool bypasses_proxy = false;            ///< as URLs of this machine do anyway
  /// Headers, secret too, that depend on the query, as a signature over it does. Null: none.
  std::function<std::vector<std::string>(const HttpQuery&)> sign = nullptr;
  bool follows_redirects = true;
  std::string login_remedy = {};  ///< what to do if the server refuses access
  std::string credential = {};    ///< secret, tells the credentials from others; empty: none
  /// Makes it anew for each attempt, with credentials of that time; `refused`: the `credential`
  /// that the server just refused, nothing if it did not. Null: it stays.
  std::function<HttpTarget(const Refused& refused)> renew = nullptr;
  /// Looks at an answer that is no file. Returns true if it says how to ask instead, say in which
  /// region: `renew` then does so. Null means that no answer does.
  std::function<bool(const HttpResult&)> learn = nullptr;
  /// Returns the remedy that the store's own words suggest for an answer that is no file. Empty, or
  /// null, means the remedy of any other server.
  std::function<std::string(const HttpResult&)> advise = nullptr;
  std::string version = {};  ///< that the redirects to here named, see HttpAnswer::version
};

/// Takes the body of a 200 or 206. An exception from it ends the exchange and reaches its caller.
class HttpBody {
 public:
  virtual ~HttpBody() = default;
  /// Before the first write; not called for an answer without a body.
  virtual void begin(const HttpAnswer& answer) = 0;
  /// Returns false once it has all that it wants.
  virtual bool write(std::string_view bytes) = 0;
};

/// How an exchange ended.
struct HttpResult {
  HttpAnswer answer;
  CURLcode code = CURLE_OK;
  std::string origin;        ///< of the target that was asked last
  std::string reason;        ///< why it failed, in libcurl's words, without secrets
  std::string redirect_url;  ///< absolute
  std::string error_name;    ///< S3's word for what is wrong
  std::string error_text;    ///< the beginning of an error's page; may hold secrets
  std::string advice;        ///< of the target that was asked, see HttpTarget::advise
  bool is_signed = false;    ///< the request had a signature that holds for some minutes only
  std::string login_remedy;  ///< of the target that was asked
  std::string credential;    ///< of the target that was asked
  bool was_stopped = false;  ///< by the body, which has all
  bool has_excess = false;   ///< more bytes arrived than were announced

  bool has_file() const {
    return (code == CURLE_OK || was_stopped) && (answer.status == 200 || answer.status == 206);
  }
};

/// Sends one request and takes one answer: no redirects, no retries.
/// Errors: Cancelled; what `body` throws. All else is in the result.
HttpResult http_exchange(CurlPool& pool, const Fetchers::Options& options, const HttpTarget& target,
                         const HttpQuery& query, const Fetcher::Request& request, HttpBody& body);

}  // namespace shardwise
