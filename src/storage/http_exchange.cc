#include "storage/http_exchange.h"

#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/ascii.h"
#include "base/text.h"
#include "base/url.h"
#include "storage/authorities.h"
#include "storage/backoff.h"
#include "storage/host_gate.h"
#include "storage/this_machine.h"
#include "storage/xml_text.h"

namespace shardwise {
namespace {

/// An error page is read up to this length.
constexpr std::size_t kMaxErrorText = std::size_t{16} * 1024;

/// Returns the word in <Code>...</Code>.
std::string error_name(std::string_view page) {
  std::string word = xml_text(page, "Code");
  const bool is_word =
      word.size() < 64 && std::ranges::all_of(word, [](char c) { return is_letter(c); });
  return is_word ? word : std::string();
}

/// Finishes a transfer after all information about it has been read, because finishing discards the
/// information. A handle that is not finished would lose its connection.
class Finish {
 public:
  explicit Finish(CurlHandle& handle) noexcept : handle_(handle) {}
  ~Finish() {
    const SigpipeGuard guard;
    handle_.finish();
  }
  Finish(const Finish&) = delete;
  Finish& operator=(const Finish&) = delete;

 private:
  CurlHandle& handle_;
};

/// The connections of an exchange.
enum class Sharing : std::uint8_t {
  kAlone,     // the exchange does not share its connection
  kTogether,  // concurrent exchanges share an HTTP/2 connection
};

}  // namespace

/// One exchange: the options and the callbacks of its libcurl handle. Exceptions never propagate
/// through libcurl.
class Exchange {
 public:
  /// REQUIRES: `handle` outlives this object.
  Exchange(CURL* handle, const Fetcher::Request& request, HttpBody& body)
      : request_(request), body_(body), handle_(handle) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Returns an error of libcurl, or CURLE_OK.
  CURLcode prepare(const Fetchers::Options& options, const HttpTarget& target,
                   const HttpQuery& query, Sharing sharing);
  /// Returns the result of a transfer that ended with `code`. Errors: as http_exchange().
  /// @param is_idle  no other transfer uses the connection yet.
  HttpResult end(CURLcode code, bool is_idle);
  /// True if the connection has unread bytes, which would be taken for the next response.
  bool has_excess() const noexcept { return result_.has_excess; }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(handle_, option, value);
    if (code != CURLE_OK) setting_failed_ = code;
  }

  void trust(const Authorities& authorities);

  static std::size_t on_header(char* bytes, std::size_t one, std::size_t size, void* self);
  static std::size_t on_body(char* bytes, std::size_t one, std::size_t size, void* self);
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t);
  static int on_debug(CURL*, curl_infotype type, char* bytes, std::size_t size, void* self);

  bool take_body(std::string_view bytes);
  bool has_unread_bytes() const;
  std::string reason(CURLcode code) const;
  void take_times();

  const Fetcher::Request& request_;
  HttpBody& body_;
  CURL* const handle_;
  CurlHeaders headers_;
  CURLcode setting_failed_ = CURLE_OK;
  HttpResult result_;
  bool body_began_ = false;
  bool is_plain_ = false;
  std::exception_ptr thrown_;
  char message_[CURL_ERROR_SIZE] = {};
};

CURLcode Exchange::prepare(const Fetchers::Options& options, const HttpTarget& target,
                           const HttpQuery& query, Sharing sharing) {
  is_plain_ = target.url.starts_with("http://");
  result_.answer.version = target.version;
  set(CURLOPT_URL, target.url.c_str());
  // Leave the path unchanged. Since 8.12, libcurl refuses this option for signed requests;
  // s3_target() accepts only paths that libcurl does not change.
  if (target.sigv4.empty()) set(CURLOPT_PATH_AS_IS, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
  set(CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  set(CURLOPT_FOLLOWLOCATION, 0L);  // HttpClient follows redirects by its own rules
  const bool is_shared = sharing == Sharing::kTogether && !is_plain_;
  // Without HTTP/2, a connection has one transfer at a time.
  set(CURLOPT_HTTP_VERSION,
      static_cast<long>(is_shared ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
  // Wait until the first connection shows whether the server supports HTTP/2.
  if (is_shared) set(CURLOPT_PIPEWAIT, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_BUFFERSIZE, 512L * 1024);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  const std::string agent =
      options.user_agent.empty() ? "shardwise/" SHARDWISE_VERSION : options.user_agent;
  set(CURLOPT_USERAGENT, agent.c_str());
  if (!is_plain_) trust(find_authorities(options.ca_file, target.is_aws));

  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(options.low_speed_bytes_per_second));
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.low_speed_time.count()));

  if (!target.user.empty()) {
    set(CURLOPT_USERNAME, target.user.c_str());
    set(CURLOPT_PASSWORD, target.password.c_str());
    if (!target.sigv4.empty()) set(CURLOPT_AWS_SIGV4, target.sigv4.c_str());
  } else if (!target.netrc_file.empty()) {
    set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
    set(CURLOPT_NETRC_FILE, target.netrc_file.c_str());
  }
  if (target.bypasses_proxy || is_this_machine(parse_url(target.url).host))
    set(CURLOPT_NOPROXY, "*");
  if (query.head_only) set(CURLOPT_NOBODY, 1L);
  if (query.method == "POST") {
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(query.body.size()));
    set(CURLOPT_COPYPOSTFIELDS, query.body.c_str());
  } else if (!query.method.empty()) {
    set(CURLOPT_CUSTOMREQUEST, query.method.c_str());
  }
  if (!query.range.empty()) set(CURLOPT_RANGE, query.range.c_str());
  if (!query.if_range.empty()) headers_.add("If-Range: " + query.if_range);
  if (!query.if_match.empty()) headers_.add("If-Match: " + query.if_match);
  // Omit this header in signed requests, because some proxies rewrite it.
  if (target.sigv4.empty()) headers_.add("Accept-Encoding: identity");
  for (const std::string& header : target.headers) headers_.add(header);
  if (target.sign) {
    for (const std::string& header : target.sign(query)) headers_.add(header);
  }
  set(CURLOPT_HTTPHEADER, headers_.get());

  set(CURLOPT_ERRORBUFFER, message_);
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, this);
  // Only the debug callback reports bytes beyond Content-Length that arrived together with the last
  // ones.
  set(CURLOPT_VERBOSE, 1L);
  set(CURLOPT_DEBUGFUNCTION, &on_debug);
  set(CURLOPT_DEBUGDATA, this);
  return setting_failed_;
}

/// Trusts only these authorities; libcurl may have been built with a default folder, which is
/// disabled.
void Exchange::trust(const Authorities& authorities) {
  if (authorities.are_built_in || authorities.are_none()) return;
  set(CURLOPT_CAINFO, authorities.file.empty() ? nullptr : authorities.file.c_str());
  if (!authorities.folder.empty()) {
    set(CURLOPT_CAPATH, authorities.folder.c_str());
  } else {
    // Some TLS libraries do not support this option.
    curl_easy_setopt(handle_, CURLOPT_CAPATH, nullptr);
  }
}

std::size_t Exchange::on_header(char* bytes, std::size_t, std::size_t size, void* self) {
  auto& exchange = *static_cast<Exchange*>(self);
  try {
    exchange.result_.answer.take_line({bytes, size});
    return size;
  } catch (...) {
    exchange.thrown_ = std::current_exception();
    return 0;
  }
}

std::size_t Exchange::on_body(char* bytes, std::size_t, std::size_t size, void* self) {
  auto& exchange = *static_cast<Exchange*>(self);
  try {
    return exchange.take_body({bytes, size}) ? size : 0;
  } catch (...) {
    exchange.thrown_ = std::current_exception();
    return 0;
  }
}

int Exchange::on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return is_cancelled(static_cast<Exchange*>(self)->request_) ? 1 : 0;
}

int Exchange::on_debug(CURL*, curl_infotype type, char* bytes, std::size_t size, void* self) {
  if (type == CURLINFO_TEXT &&
      std::string_view(bytes, size).find("xcess found") != std::string_view::npos) {
    static_cast<Exchange*>(self)->result_.has_excess = true;
  }
  return 0;
}

bool Exchange::take_body(std::string_view bytes) {
  const int status = result_.answer.status;
  if (status != 200 && status != 206) {
    const std::size_t room = kMaxErrorText - result_.error_text.size();
    result_.error_text += bytes.substr(0, room);
    // If the page is longer, it is truncated and the connection closed.
    return bytes.size() <= room;
  }
  if (!body_began_) body_.begin(result_.answer);
  body_began_ = true;
  result_.was_stopped = !body_.write(bytes);
  return !result_.was_stopped;
}

/// True if unread bytes remain where the next response should begin. Over TLS this cannot be
/// detected.
bool Exchange::has_unread_bytes() const {
  curl_socket_t socket = CURL_SOCKET_BAD;
  if (!is_plain_ || curl_easy_getinfo(handle_, CURLINFO_ACTIVESOCKET, &socket) != CURLE_OK ||
      socket == CURL_SOCKET_BAD) {
    return false;
  }
  char byte = 0;
  return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

std::string Exchange::reason(CURLcode code) const {
  const std::string_view message(message_);
  // libcurl's detailed messages name hosts and ports. A message that might quote a URL is replaced.
  const bool is_safe = !message.empty() && message.find("://") == std::string_view::npos &&
                       message.find('@') == std::string_view::npos;
  return escaped(is_safe ? message : std::string_view(curl_easy_strerror(code)));
}

void Exchange::take_times() {
  curl_off_t sent = 0, first = 0, last = 0, bytes = 0;
  curl_easy_getinfo(handle_, CURLINFO_PRETRANSFER_TIME_T, &sent);
  curl_easy_getinfo(handle_, CURLINFO_STARTTRANSFER_TIME_T, &first);
  curl_easy_getinfo(handle_, CURLINFO_TOTAL_TIME_T, &last);
  curl_easy_getinfo(handle_, CURLINFO_SIZE_DOWNLOAD_T, &bytes);
  result_.latency = std::chrono::microseconds(std::max<curl_off_t>(first - sent, 0));
  result_.body_time = std::chrono::microseconds(std::max<curl_off_t>(last - first, 0));
  result_.body_bytes = static_cast<std::uint64_t>(bytes);
}

HttpResult Exchange::end(CURLcode code, bool is_idle) {
  if (thrown_) std::rethrow_exception(thrown_);
  if (code == CURLE_ABORTED_BY_CALLBACK) check_cancelled(request_);
  // Stopping early is a success for an error page, because only its start is needed.
  if (code == CURLE_WRITE_ERROR && result_.error_text.size() == kMaxErrorText) code = CURLE_OK;
  // libcurl accepts a response that ends within the header.
  if (code == CURLE_OK && !result_.answer.is_complete) code = CURLE_RECV_ERROR;
  result_.code = code;
  if (code == CURLE_OK) {
    if (is_idle && has_unread_bytes()) result_.has_excess = true;
    const char* url = nullptr;
    curl_easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &url);
    if (url != nullptr) result_.redirect_url = url;
    result_.error_name = error_name(result_.error_text);
    take_times();
  } else if (!result_.was_stopped) {
    result_.reason = reason(code);
  }
  return result_;
}

HttpResult http_exchange(CurlPool& pool, const Fetchers::Options& options, const HttpTarget& target,
                         const HttpQuery& query, const Fetcher::Request& request, HttpBody& body) {
  check_cancelled(request);
  CurlHandle handle = pool.take();
  CURLcode code = CURLE_OK;
  HttpResult result;
  {
    Exchange exchange(handle.get(), request, body);
    code = exchange.prepare(options, target, query, Sharing::kAlone);
    if (code == CURLE_OK) {
      const SigpipeGuard guard;
      code = handle.perform(request.cancel);
    }
    const Finish finish(handle);
    result = exchange.end(code, true);
  }
  // Discard a handle that failed: libcurl 7.88 cannot resolve any host after one unknown host.
  // Discard a connection with unread bytes, because they would be taken for the next response.
  if (code == CURLE_OK && !result.has_excess) pool.give_back(std::move(handle));
  return result;
}

class HttpExchanges::Running {
 public:
  Running(std::size_t which, const Fetcher::Request& request, HttpBody& body)
      : id(which), easy(curl_easy_init()), exchange(easy.get(), request, body) {
    if (!easy) throw std::bad_alloc();
  }

  const std::size_t id;
  const CurlEasy easy;
  Exchange exchange;
};

HttpExchanges::HttpExchanges(CurlPool& pool, const Fetchers::Options& options)
    : pool_(pool), options_(options), multi_(pool.take_multi()) {
  multi_.keep_connections(kMaxTransfersPerHost);
}

HttpExchanges::~HttpExchanges() {
  const SigpipeGuard guard;
  const bool is_reusable = may_start_ && running_.empty();
  for (const auto& running : running_) multi_.remove(running->easy.get());
  running_.clear();
  if (is_reusable) pool_.give_back(std::move(multi_));
}

bool HttpExchanges::start(std::size_t id, const HttpTarget& target, const HttpQuery& query,
                          const Fetcher::Request& request, HttpBody& body) {
  if (!may_start_) return false;
  auto running = std::make_unique<Running>(id, request, body);
  CURL* const easy = running->easy.get();
  if (running->exchange.prepare(options_, target, query, Sharing::kTogether) != CURLE_OK ||
      !multi_.add(easy)) {
    return may_start_ = false;
  }
  running_.push_back(std::move(running));
  return true;
}

std::optional<HttpExchanges::Ended> HttpExchanges::wait(std::chrono::milliseconds timeout) {
  const SigpipeGuard guard;
  if (ended_.empty()) {
    auto ended = multi_.wait(timeout);
    if (multi_.has_failed()) may_start_ = false;
    // End all of these transfers now, because exchanges that start later reuse their connections.
    for (; ended; ended = multi_.next_ended()) ended_.push_back(end(*ended));
  }
  if (ended_.empty()) return std::nullopt;
  Ended first = std::move(ended_.front());
  ended_.pop_front();
  return first;
}

HttpExchanges::Ended HttpExchanges::end(const CurlMulti::Ended& ended) {
  const auto found = std::ranges::find_if(
      running_, [&](const auto& running) { return running->easy.get() == ended.easy; });
  const std::unique_ptr<Running> running = std::move(*found);
  running_.erase(found);
  Ended outcome{.id = running->id, .result = {}, .error = nullptr};
  try {
    outcome.result = running->exchange.end(ended.code, ended.has_idle_connection);
  } catch (...) {
    outcome.error = std::current_exception();
  }
  // See http_exchange().
  if (running->exchange.has_excess() || ended.code == CURLE_COULDNT_RESOLVE_HOST) {
    may_start_ = false;
  }
  multi_.remove(ended.easy);
  return outcome;
}

}  // namespace shardwise
