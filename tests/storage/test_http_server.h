#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwise::test {

/// A file that a TestHttpServer serves, and what is wrong with it. By default it is served as it
/// should be: keep-alive, HEAD, ranges, If-Range, If-Match.
struct ServedFile {
  std::string body = {};
  std::string etag = "\"v1\"";  ///< with its quotes; empty: none
  std::string last_modified = {};
  bool has_ranges = true;          ///< else Range is ignored
  bool has_head = true;            ///< else HEAD is answered with 405
  bool has_if_match = true;        ///< else If-Match is ignored
  std::vector<int> statuses = {};  ///< the first answers have these instead
  std::string extra_headers = {};  ///< whole lines, each with its "\r\n"; of every answer
  std::string redirect_to = {};    ///< if not empty: 302
  bool has_many_nodes = false;     ///< each answer has an ETag of its own: "node-1", "node-2", ...

  /// After so many body bytes of an answer the connection is closed, for the first `num_cuts`.
  std::optional<std::size_t> cut_after = {};
  int num_cuts = 1 << 20;
  /// After so many body bytes of an answer nothing comes any more, for the first `num_stalls`.
  std::optional<std::size_t> stall_after = {};
  int num_stalls = 1 << 20;
  /// While it is true, answers to GET do not begin.
  std::shared_ptr<const std::atomic<bool>> hangs = {};
  /// While `pauses` is true, no byte of the file from this one on is sent.
  std::size_t pause_at = 0;
  std::shared_ptr<const std::atomic<bool>> pauses = {};
  /// Before each answer, to HEAD too, so much time goes by.
  std::chrono::milliseconds delay{0};
  /// The body comes in pieces of so many bytes with a wait before each.
  std::size_t drip_bytes = 0;
  std::chrono::milliseconds drip_wait{0};

  std::int64_t length_error = 0;  ///< added to Content-Length
  std::string excess = {};        ///< sent after the body
  bool is_chunked = false;
  bool has_length = true;          ///< else the connection's end is the body's
  std::string content_range = {};  ///< what a 206 says instead of the truth
  /// Called before each answer to a GET; may change the file, say into another version.
  std::function<void(ServedFile&)> before_get = {};
};

struct LoggedRequest {
  std::string method;
  std::string target;                                        ///< path and query as sent
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
  std::string body = {};                                     ///< of a POST

  std::string header(std::string_view name) const;  ///< "" if there is none
};

/// A server for HTTP/1.1 on a free port of 127.0.0.1, one thread a connection, that misbehaves as
/// told. All calls are safe concurrently. Stops, and closes what is open, when it is destroyed.
class TestHttpServer {
 public:
  TestHttpServer();
  ~TestHttpServer();
  TestHttpServer(const TestHttpServer&) = delete;
  TestHttpServer& operator=(const TestHttpServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:<port><path>"
  std::string url(std::string_view path) const;

  /// Serves `file` under `path` (with its slash, without a query) from now on.
  void serve(const std::string& path, ServedFile file);
  void remove(const std::string& path);
  /// Decides on every request before it is answered: nothing lets it pass, else a status and text.
  using Gate = std::function<std::optional<std::pair<int, std::string>>(const LoggedRequest&)>;
  void set_gate(Gate gate);

  /// Requests so far with this method for this path, whatever their query.
  int count(std::string_view method, std::string_view path) const;
  int gets(std::string_view path) const { return count("GET", path); }
  std::vector<LoggedRequest> requests() const;
  int num_connections() const;  ///< so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::test
