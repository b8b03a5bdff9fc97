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

/// The bytes of a served file. Copies share them, so that an answer costs no copy of a whole shard.
class ServedBytes {
 public:
  ServedBytes() = default;
  ServedBytes(std::string bytes) : bytes_(std::make_shared<std::string>(std::move(bytes))) {}
  ServedBytes(const char* bytes) : ServedBytes(std::string(bytes)) {}

  std::string_view view() const { return *bytes_; }
  /// Returns the bytes for a change. Other copies keep what they have.
  std::string& own() {
    if (bytes_.use_count() > 1) bytes_ = std::make_shared<std::string>(*bytes_);
    return *bytes_;
  }

 private:
  std::shared_ptr<std::string> bytes_ = std::make_shared<std::string>();
};

/// A file that a TestHttpServer serves, and the faults of the server. By default the server works
/// correctly and supports keep-alive, HEAD, ranges, If-Range and If-Match.
struct ServedFile {
  ServedBytes body = {};
  std::string etag = "\"v1\"";  ///< with quotes; empty means no ETag
  std::string last_modified = {};
  bool has_ranges = true;    ///< if false, Range is ignored
  bool has_head = true;      ///< if false, HEAD is answered with 405
  bool has_if_match = true;  ///< if false, If-Match is ignored
  /// Statuses of the first answers. 0 means that the connection is closed within the header.
  std::vector<int> statuses = {};
  std::string extra_headers = {};  ///< complete lines, each with "\r\n"; part of every answer
  std::string redirect_to = {};    ///< if not empty, the answer is a 302 to this address
  bool has_many_nodes = false;     ///< each answer has another ETag: "node-1", "node-2", ...

  /// The connection is closed after this many bytes of the body, in the first `num_cuts` answers.
  std::optional<std::size_t> cut_after = {};
  int num_cuts = 1 << 20;
  /// No more bytes are sent after this many bytes of the body, in the first `num_stalls` answers.
  std::optional<std::size_t> stall_after = {};
  int num_stalls = 1 << 20;
  /// While true, answers to GET do not begin.
  std::shared_ptr<const std::atomic<bool>> hangs = {};
  /// While `pauses` is true, no bytes of the file are sent from this position on.
  std::size_t pause_at = 0;
  std::shared_ptr<const std::atomic<bool>> pauses = {};
  /// Delay before each answer, including answers to HEAD.
  std::chrono::milliseconds delay{0};
  /// The body is sent in pieces of this many bytes, with a pause before each.
  std::size_t drip_bytes = 0;
  std::chrono::milliseconds drip_wait{0};

  std::int64_t length_error = 0;  ///< number that is added to Content-Length
  std::string excess = {};        ///< bytes sent after the body
  bool is_chunked = false;
  bool has_length = true;          ///< if false, the body ends when the connection is closed
  std::string content_range = {};  ///< value that a 206 has instead of the correct one
  /// Called before each answer to a GET. May change the file, e.g. to another version.
  std::function<void(ServedFile&)> before_get = {};
};

struct LoggedRequest {
  std::string method;
  std::string target;                                        ///< path and query as sent
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
  std::string body = {};                                     ///< body of a POST

  std::string header(std::string_view name) const;  ///< returns "" if the header is missing
};

/// An HTTP/1.1 server with configurable faults, on a free port of 127.0.0.1, with one thread per
/// connection. The destructor stops it and closes all connections. Threads: safe concurrently.
class TestHttpServer {
 public:
  TestHttpServer();
  ~TestHttpServer();
  TestHttpServer(const TestHttpServer&) = delete;
  TestHttpServer& operator=(const TestHttpServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:<port><path>"
  std::string url(std::string_view path) const;

  /// From now on, serves `file` as `path`, which begins with a slash and has no query.
  void serve(const std::string& path, ServedFile file);
  void remove(const std::string& path);
  /// Called for every request before it is answered. Returns nullopt to let the request pass, or
  /// the status and text of the answer.
  using Gate = std::function<std::optional<std::pair<int, std::string>>(const LoggedRequest&)>;
  void set_gate(Gate gate);

  /// Returns the number of requests so far with this method and path, with any query.
  int count(std::string_view method, std::string_view path) const;
  int gets(std::string_view path) const { return count("GET", path); }
  std::vector<LoggedRequest> requests() const;
  int num_connections() const;  ///< number of connections so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::test
