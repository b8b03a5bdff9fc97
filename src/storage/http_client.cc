#include "storage/http_client.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/authorities.h"
#include "storage/backoff.h"
#include "storage/fetch_failure.h"
#include "storage/iso_time.h"
#include "storage/xml_text.h"

namespace shardwise {
namespace {

/// True if the failure is temporary, so the same request may succeed later.
bool is_passing(const HttpResult& result) {
  switch (result.code) {
    case CURLE_OK: {
      const int status = result.answer.status;
      // The server does not support the request.
      const bool is_for_good = status == 501 || status == 505;
      return status == 408 || status == 429 || (status / 100 == 5 && !is_for_good);
    }
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
      return true;
    default:
      return false;
  }
}

/// True if the host refuses the request because it gets too many.
bool is_throttled(const HttpResult& result) {
  if (result.code != CURLE_OK) return false;
  return result.answer.status == 429 ||
         (result.answer.status == 503 &&
          (result.answer.retry_after || result.error_name == "SlowDown"));
}

/// True if the server was not reached. Includes timeouts, because some networks drop packets
/// silently.
bool is_not_reached(const HttpResult& result) {
  return !result.was_stopped &&
         (result.code == CURLE_COULDNT_RESOLVE_HOST || result.code == CURLE_COULDNT_CONNECT ||
          result.code == CURLE_OPERATION_TIMEDOUT);
}

/// True if this failure suggests a wrong URL, given that the host has never answered.
bool may_be_misspelt(const HttpResult& result) {
  return result.code == CURLE_COULDNT_RESOLVE_HOST || result.code == CURLE_COULDNT_RESOLVE_PROXY ||
         result.code == CURLE_SSL_CONNECT_ERROR;
}

std::string try_later() {
  return "try again later, or for longer (" + spelled("Fetchers::Options::retry_for") + ")";
}

/// Returns the remedy if a server's certificate, or the file of authorities, is not accepted.
std::string trust_remedy(CURLcode code, const Authorities& authorities) {
  const std::string& path = authorities.file.empty() ? authorities.folder : authorities.file;
  if (!authorities.setting.empty() && code == CURLE_SSL_CACERT_BADFILE) {
    return "check " + authorities.setting + ", which is " + in_quotes(path);
  }
  if (!authorities.setting.empty()) {
    return "if your own authority signed the certificate, add the authority to " + in_quotes(path) +
           " (" + authorities.setting + ")";
  }
  if (authorities.are_none() || code == CURLE_SSL_CACERT_BADFILE) {
    return "install the package ca-certificates, or name a file of authorities (SSL_CERT_FILE, " +
           spelled("Fetchers::Options::ca_file") + ")";
  }
  return "if your own authority signed the certificate, name the authority (SSL_CERT_FILE, " +
         spelled("Fetchers::Options::ca_file") + ")";
}

/// Returns the remedy for a URL without a file. A name without an extension, e.g.
/// s3://bucket/train, may be meant as a folder.
std::string missing_remedy(const std::string& url) {
  const std::string shown = redacted_url(url);
  const std::size_t name = shown.rfind('/') + 1;
  if (!is_object_url(url) || shown.find('.', name) != std::string::npos) return "check the URL";
  return "to name all shards of a folder, end the URL with a slash, " + in_quotes(shown + "/") +
         ", or with a pattern, " + in_quotes(shown + "/*.tar");
}

std::string remedy_for(const HttpResult& result, const HttpTarget& target, const std::string& url,
                       const Fetchers::Options& options) {
  switch (result.code) {
    case CURLE_OK:
      break;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return "check the host's name, its port and the network";
    case CURLE_COULDNT_RESOLVE_PROXY:
      return "check the proxy in the environment (http_proxy, https_proxy, no_proxy)";
    case CURLE_OPERATION_TIMEDOUT:
      return try_later() + if_there("; or wait longer (", "Fetchers::Options::connect_timeout") +
             if_there(", ", "Fetchers::Options::low_speed_time", ")");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return trust_remedy(result.code, find_authorities(options.ca_file, target.is_aws));
    default:
      return is_passing(result) ? try_later() : "check that a web server has this address";
  }
  const int status = result.answer.status;
  if (std::string clocks = clock_remedy(result); !clocks.empty()) return clocks;
  if (!result.advice.empty()) return result.advice;
  if (status == 401 || status == 403) return result.login_remedy;
  if (status == 404 || status == 410) return missing_remedy(url);
  if (status == 416) return "index the file again, because the file is now shorter";
  if (is_passing(result)) return try_later();
  return "check the URL and the server";
}

std::string reason_of(const HttpResult& result) {
  if (result.code != CURLE_OK) {
    return result.was_stopped ? "the file keeps changing" : result.reason;
  }
  if (result.has_file()) return "the response differs from its headers";
  std::string reason = "HTTP status " + std::to_string(result.answer.status);
  if (!result.error_name.empty()) reason += ", " + result.error_name;
  return reason;
}

[[noreturn]] void throw_failure(const HttpResult& result, const HttpTarget& target,
                                const Fetcher::Request& request, const Fetchers::Options& options,
                                int attempts) {
  std::string reason = reason_of(result);
  reason += ", after " + std::to_string(attempts) + (attempts == 1 ? " attempt" : " attempts");
  const std::string remedy = remedy_for(result, target, request.url, options);
  if (result.answer.status == 404 || result.answer.status == 410) {
    throw_fetch_error<NotFound>(request.url, reason, remedy);
  }
  if (is_not_reached(result)) throw_fetch_error<NotReached>(request.url, reason, remedy);
  throw_fetch_error(request.url, reason, remedy);
}

/// Ignores the body.
class NoBody : public HttpBody {
 public:
  void begin(const HttpAnswer&) override {}
  bool write(std::string_view) override { return false; }
};

/// Retry budget if the host has never answered and the URL may be misspelt.
constexpr std::chrono::milliseconds kFirstContact{30'000};

constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;

/// Collects the body as text.
class TextBody : public HttpBody {
 public:
  void begin(const HttpAnswer&) override { text_.clear(); }
  bool write(std::string_view bytes) override {
    text_ += bytes;
    return !is_too_long();
  }
  bool is_too_long() const { return text_.size() > kMaxTextBytes; }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

/// True if the server rejects the credentials and the target can renew them.
bool is_refused(const HttpResult& result, const HttpTarget& target) {
  if (!target.renew || result.code != CURLE_OK) return false;
  const int status = result.answer.status;
  const std::string& name = result.error_name;
  const bool is_expired = name.starts_with("Expired") || name == "InvalidToken" ||
                          name == "TokenRefreshRequired" || name == "InvalidAccessKeyId";
  return status == 401 || ((status == 400 || status == 403) && is_expired);
}

/// Decides whether to repeat a request immediately in another way: with other credentials, or as
/// the response indicates. Each way is tried once.
class OtherWay {
 public:
  explicit OtherWay(const HttpTarget& target) : target_(target) {}

  /// Returns the target for the next attempt.
  HttpTarget next() { return target_.renewed(std::exchange(refused_, {})); }
  bool is_found(const HttpResult& result) {
    if (is_refused(result, target_) && !std::exchange(has_renewed_, true)) {
      refused_ = result.credential;
      return true;
    }
    return target_.learn && result.code == CURLE_OK && !result.has_file() && !has_learned_ &&
           (has_learned_ = target_.learn(result));
  }
  /// Allows one more renewal after bytes have arrived, because credentials may expire again.
  void bytes_came() { has_renewed_ = false; }

 private:
  const HttpTarget& target_;
  bool has_renewed_ = false, has_learned_ = false;
  Refused refused_;  // credentials refused in the last attempt
};

/// Time limit of a response without a length, which may be endless. If retry_for is longer, it
/// replaces this limit.
constexpr std::chrono::milliseconds kMaxWithoutLength = std::chrono::hours(1);

}  // namespace

std::string clock_remedy(const HttpResult& result) {
  const int status = result.answer.status;
  if (result.code != CURLE_OK || (status != 400 && status != 401 && status != 403)) return {};
  std::optional<std::int64_t> theirs;
  if (const auto told = parse_iso_time(xml_text(result.error_text, "ServerTime"))) {
    theirs = std::chrono::system_clock::to_time_t(*told);
  } else if (result.answer.date) {
    theirs = *result.answer.date;
  }
  // In seconds. Some servers reject larger clock differences.
  constexpr std::int64_t kNoticeable = std::int64_t{5} * 60;
  const std::int64_t ours = std::time(nullptr);
  const bool is_said = result.error_name == "RequestTimeTooSkewed";
  const bool may_be = result.is_signed && theirs && std::abs(*theirs - ours) >= kNoticeable;
  if (!is_said && !may_be) return {};
  return "set this machine's clock, which is at " + utc_text(ours) + "; the server's is at " +
         (theirs ? utc_text(*theirs) : "another time");
}

HttpTarget HttpClient::redirected(const HttpTarget& from, const std::string& to,
                                  const Fetcher::Request& request) const {
  const auto refuse = [&](std::string_view why) {
    throw_fetch_error(request.url,
                      "redirected to " + in_quotes(redacted_url(to)) + ", " + std::string(why),
                      "if you trust that URL, use it instead of the redirecting URL");
  };
  const std::string scheme = scheme_of(to);
  if (scheme != "http" && scheme != "https") refuse("which is neither http nor https");
  const Url old = parse_url(from.url);
  if (old.scheme == "https" && scheme != "https") refuse("which is not encrypted");
  Url url{.scheme = {}, .host = {}};
  try {
    url = parse_url(to);
  } catch (const InvalidArgument&) {
    refuse("which is malformed");
  }
  HttpTarget target{
      .url = canonical_url(to), .netrc_file = from.netrc_file, .login_remedy = from.login_remedy};
  if (url.origin() == old.origin()) {
    target.user = from.user;
    target.password = from.password;
    target.headers = from.headers;
  }
  return target;
}

HttpTarget HttpClient::redirected(const HttpTarget& from, const HttpResult& result,
                                  const Fetcher::Request& request) const {
  std::string version = from.version.empty() ? result.answer.linked_etag : from.version;
  HttpTarget target = redirected(from, result.redirect_url, request);
  target.version = std::move(version);
  return target;
}

HttpResult HttpClient::exchange(const HttpTarget& target, const HttpQuery& query,
                                const Fetcher::Request& request, HttpBody& body,
                                std::chrono::milliseconds max_pause) {
  const std::string origin = parse_url(target.url).origin();
  const auto turn =
      HostGate::of_process().enter(origin, options_.max_connections_per_host, request, max_pause);
  HttpResult result = http_exchange(pool_, options_, target, query, request, body);
  note(result, target, origin, *turn);
  return result;
}

void HttpClient::note(HttpResult& result, const HttpTarget& target, const std::string& origin,
                      const HostGate::Turn& turn) {
  result.origin = origin;
  if (result.code == CURLE_OK || result.was_stopped) {
    const Lock lock(mutex_);
    Host& host = hosts_[origin];
    host.has_answered = true;
    if (result.is_redirect()) host.has_redirected = true;
    if (!is_passing(result)) host.is_said_to_fail = false;
  }
  if (is_throttled(result)) {
    turn.refused(result.answer.retry_after.value_or(std::chrono::seconds(0)),
                 options_.retry_base_delay, options_.retry_max_delay);
  } else if (result.code == CURLE_OK && !is_passing(result)) {
    turn.accepted();
    if (result.has_file()) speed_.add(result);
  }
  result.login_remedy = target.login_remedy;
  result.credential = target.credential;
  result.is_signed = !target.sigv4.empty() || target.sign != nullptr;
  if (target.advise && result.code == CURLE_OK) result.advice = target.advise(result);
}

std::optional<HttpTarget> HttpClient::where_known(const HttpTarget& target,
                                                  const Fetcher::Request& request) {
  // Skip the redirect only if the version is known, so that a replaced file is detected. A request
  // for a whole file follows the redirect again, to find the file's present address.
  const bool may_skip = request.range.end && !request.validator.empty();
  if (!target.follows_redirects || !may_skip) return std::nullopt;
  const auto known = redirects_.find(target.url);
  if (!known) return std::nullopt;
  HttpTarget there = redirected(target, known->to, request);
  there.version = known->version;
  return there;
}

HttpQuery HttpClient::query_for(const HttpTarget& target, HttpQuery query) {
  if (target.version.empty()) return query;
  query.if_match.clear();
  query.if_range.clear();
  return query;
}

std::optional<HttpResult> HttpClient::ask_where_known(const HttpTarget& target,
                                                      const HttpQuery& query,
                                                      const Fetcher::Request& request,
                                                      HttpBody& body,
                                                      std::chrono::milliseconds max_pause) {
  const auto there = where_known(target, request);
  if (!there) return std::nullopt;
  try {
    HttpResult result = exchange(*there, query_for(*there, query), request, body, max_pause);
    if (result.has_file() || is_throttled(result)) return result;
    redirects_.drop(target.url);
    // A broken transfer continues with the next attempt.
    if (result.code != CURLE_OK) return result;
  } catch (const StaleIndex&) {  // the file may be elsewhere now
    redirects_.drop(target.url);
  }
  return std::nullopt;
}

HttpResult HttpClient::ask(const HttpTarget& asked, const HttpQuery& query,
                           const Fetcher::Request& request, HttpBody& body,
                           std::chrono::milliseconds max_pause) {
  if (auto result = ask_where_known(asked, query, request, body, max_pause)) {
    return *std::move(result);
  }
  HttpTarget target = asked;
  for (int followed = 0;; ++followed) {
    HttpResult result = exchange(target, query_for(target, query), request, body, max_pause);
    if (!target.follows_redirects || !result.is_redirect()) {
      if (followed > 0 && result.has_file()) {
        redirects_.keep(asked.url, {.to = target.url, .version = target.version});
      }
      return result;
    }
    if (followed == options_.max_redirects) {
      throw_fetch_error(request.url,
                        "more than " + std::to_string(options_.max_redirects) + " redirects",
                        "use the final URL of the file; the server may redirect in a cycle");
    }
    target = redirected(target, result, request);
  }
}

bool HttpClient::try_again(Backoff& backoff, const HttpResult& result,
                           const Fetcher::Request& request) {
  std::chrono::milliseconds timeout = options_.retry_for;
  if (may_be_misspelt(result)) {
    const Lock lock(mutex_);
    if (!hosts_[result.origin].has_answered) timeout = std::min(timeout, kFirstContact);
  }
  return backoff.wait_for_next({.retry_after = result.answer.retry_after,
                                .timeout = timeout,
                                .tell = [&](std::chrono::milliseconds left) {
                                  if (!options_.on_retry) return;
                                  {
                                    const Lock lock(mutex_);
                                    if (std::exchange(hosts_[result.origin].is_said_to_fail, true))
                                      return;
                                  }
                                  options_.on_retry(redacted_url(request.url), reason_of(result),
                                                    left);
                                }});
}

HttpResult HttpClient::ask_patiently(const HttpTarget& target, const HttpQuery& query,
                                     const Fetcher::Request& request, HttpBody& body) {
  Backoff backoff(options_, request);
  OtherWay other_way(target);
  for (;;) {
    backoff.begin_attempt();
    HttpResult result = ask(other_way.next(), query, request, body, backoff.time_left());
    if (other_way.is_found(result)) continue;
    if (result.was_stopped || !is_passing(result)) {
      if (result.code == CURLE_OK || result.was_stopped) return result;
      throw_failure(result, target, request, options_, backoff.attempts());
    }
    if (!try_again(backoff, result, request)) {
      throw_failure(result, target, request, options_, backoff.attempts());
    }
  }
}

HttpClient::Text HttpClient::ask_for_text(const HttpTarget& target, const HttpQuery& query,
                                          const Fetcher::Request& request) {
  TextBody body;
  HttpResult result = ask_patiently(target, query, request, body);
  if (body.is_too_long()) {
    throw_fetch_error(request.url, "the response is longer than " + human_bytes(kMaxTextBytes),
                      "check the URL of the service");
  }
  return {std::move(result), std::move(body).text()};
}

std::string HttpClient::get_text(const HttpTarget& target, const Fetcher::Request& request,
                                 const HttpQuery& query, std::string* next_page) {
  Text answer = ask_for_text(target, query, request);
  if (!answer.result.has_file()) throw_failure(answer.result, target, request, options_, 1);
  if (next_page != nullptr) *next_page = answer.result.answer.next_page;
  return std::move(answer.text);
}

Fetcher::Stat HttpClient::stat(const HttpTarget& target, const Fetcher::Request& request) {
  NoBody body;
  HttpResult result = ask_patiently(target, {.head_only = true}, request, body);
  const int status = result.answer.status;
  // Repeat with GET: a URL may be signed for GET only, and some servers do not support HEAD.
  if (status == 400 || status == 403 || status == 405 || status == 501) {
    result = ask_patiently(target, {.range = "0-0"}, request, body);
  }
  Fetcher::Stat file;
  if (result.has_file()) {
    file = result.answer.file();
  } else if (result.answer.status == 416 && result.answer.range &&
             result.answer.range->total == 0) {
    file = {.size_bytes = 0, .validator = result.answer.validator(), .has_ranges = true};
  } else {
    throw_failure(result, target, request, options_, 1);
  }
  versions_.take(request, file, result.answer);
  return file;
}

Fetcher::Stat HttpClient::fetch(const HttpTarget& target, const Fetcher::Request& request,
                                Fetcher::Sink& sink) {
  const Fetcher::Range& range = request.range;
  if (range.end && *range.end < range.begin) {
    throw InvalidArgument("the range ends before it begins", in_quotes(redacted_url(request.url)),
                          "give begin <= end");
  }
  if (range.end && *range.end == range.begin) return stat(target, request);

  Backoff backoff(options_, request);
  HttpDownload download(request, sink, versions_, std::max(kMaxWithoutLength, options_.retry_for));
  OtherWay other_way(target);
  for (;;) {
    backoff.begin_attempt();
    HttpResult result;
    try {
      result = ask(other_way.next(), download.next_query(), request, download, backoff.time_left());
      if (download.finish(result)) return download.file();
    } catch (const FetchError& wrong) {  // the body is not the file, e.g. it is a proxy's page
      if (download.is_endless() || !download.start_over() ||
          !backoff.wait_after_wrong(wrong.what())) {
        throw;
      }
      continue;
    }
    if (other_way.is_found(result)) continue;
    const HttpAnswer& answer = result.answer;
    if (result.code == CURLE_OK && answer.status == 416 && !range.end && range.begin > 0 &&
        download.position() == range.begin && answer.range && answer.range->total == range.begin) {
      // The file ends where the range begins, so there is nothing to fetch.
      return stat(target, request);
    }
    if (result.code == CURLE_OK && answer.status == 412 && download.stop_matching()) {
      stat(target, request);  // throws StaleIndex if the file has another version
      continue;               // the version is right, so the server misinterprets If-Match
    }
    if (!is_passing(result) && !result.has_file()) {
      throw_failure(result, target, request, options_, backoff.attempts());
    }
    if (download.has_progress()) {
      backoff.reached(download.position() - range.begin);
      other_way.bytes_came();
    }
    if (!try_again(backoff, result, request)) {
      throw_failure(result, target, request, options_, backoff.attempts());
    }
  }
}

}  // namespace shardwise
