#include "storage/test_http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>

namespace shardwise::test {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return text;
}

LoggedRequest parse_request(const std::string& text) {
  LoggedRequest request;
  std::size_t line = text.find("\r\n");
  const std::string first = text.substr(0, line);
  const std::size_t space = first.find(' '), second = first.rfind(' ');
  request.method = first.substr(0, space);
  request.target = first.substr(space + 1, second - space - 1);
  while (line + 2 < text.size()) {
    const std::size_t end = text.find("\r\n", line + 2);
    const std::string header = text.substr(line + 2, end - line - 2);
    if (header.empty()) break;
    const std::size_t colon = header.find(':');
    request.headers.emplace_back(lower(header.substr(0, colon)),
                                 header.substr(std::min(colon + 2, header.size())));
    line = end;
  }
  return request;
}

std::string path_of(const std::string& target) { return target.substr(0, target.find('?')); }

/// Returns the half-open range that `bytes=5-9` requests of a file of `size` bytes; nullopt if no
/// byte is in the file.
std::optional<std::pair<std::size_t, std::size_t>> parse_range(std::string_view text,
                                                               std::size_t size) {
  text.remove_prefix(std::string_view("bytes=").size());
  const std::size_t dash = text.find('-');
  std::size_t begin = 0, last = size - 1;
  std::from_chars(text.data(), text.data() + dash, begin);
  if (dash + 1 < text.size()) {
    std::from_chars(text.data() + dash + 1, text.data() + text.size(), last);
  }
  if (begin >= size || last < begin) return std::nullopt;
  return std::pair(begin, std::min(last + 1, size));
}

}  // namespace

std::string LoggedRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

struct TestHttpServer::Impl {
  void accept_all();
  void talk(int fd);
  /// Returns false if the connection must be closed.
  bool answer(int fd, const LoggedRequest& request);
  bool send_file(int fd, const LoggedRequest& request, ServedFile& file, int cut, int stall);
  bool send_all(int fd, std::string_view bytes) const;
  void sleep(std::chrono::milliseconds time) const;

  struct Entry {
    ServedFile file;
    std::size_t num_answers = 0;
    int cuts = 0, stalls = 0;
  };
  struct Talk {
    int fd;
    std::atomic<bool> is_over{false};
    std::thread thread;
  };

  int listener = -1;
  int port = 0;
  std::atomic<bool> stops{false};
  std::atomic<int> num_connections{0};
  mutable std::mutex mutex;
  std::map<std::string, Entry> files;
  Gate gate;
  std::vector<LoggedRequest> log;
  std::list<Talk> talks;  // used by the accepting thread, and by the destructor
  std::thread acceptor;
};

void TestHttpServer::Impl::accept_all() {
  while (!stops) {
    pollfd waiting{listener, POLLIN, 0};
    if (::poll(&waiting, 1, 20) <= 0) continue;
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++num_connections;
    talks.remove_if([](Talk& talk) {
      if (!talk.is_over) return false;
      talk.thread.join();
      ::close(talk.fd);
      return true;
    });
    Talk& talk = talks.emplace_back();
    talk.fd = fd;
    talk.thread = std::thread([this, &talk] {
      this->talk(talk.fd);
      ::shutdown(talk.fd, SHUT_RDWR);
      talk.is_over = true;
    });
  }
}

void TestHttpServer::Impl::sleep(std::chrono::milliseconds time) const {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!stops && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(5)));
  }
}

bool TestHttpServer::Impl::send_all(int fd, std::string_view bytes) const {
  while (!bytes.empty() && !stops) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return bytes.empty();
}

void TestHttpServer::Impl::talk(int fd) {
  std::string input;
  char buffer[8192];
  for (;;) {
    std::size_t end = 0;
    while ((end = input.find("\r\n\r\n")) == std::string::npos) {
      const ssize_t size = ::recv(fd, buffer, sizeof buffer, 0);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return;
      input.append(buffer, static_cast<std::size_t>(size));
    }
    LoggedRequest request = parse_request(input.substr(0, end + 4));
    input.erase(0, end + 4);
    std::size_t length = 0;
    const std::string given = request.header("content-length");
    std::from_chars(given.data(), given.data() + given.size(), length);
    while (input.size() < length) {
      const ssize_t size = ::recv(fd, buffer, sizeof buffer, 0);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return;
      input.append(buffer, static_cast<std::size_t>(size));
    }
    request.body = input.substr(0, length);
    input.erase(0, length);
    if (!answer(fd, request)) return;
  }
}

bool TestHttpServer::Impl::answer(int fd, const LoggedRequest& request) {
  const auto send_status = [&](int status, const std::string& headers, const std::string& text) {
    return send_all(fd, "HTTP/1.1 " + std::to_string(status) +
                            " Status\r\nContent-Length: " + std::to_string(text.size()) + "\r\n" +
                            headers + "\r\n" + (request.method == "HEAD" ? "" : text));
  };
  ServedFile file;
  int cut = 0, stall = 0;
  {
    std::unique_lock lock(mutex);
    log.push_back(request);
    if (gate) {
      const auto refused = gate(request);
      if (refused) {
        lock.unlock();
        return send_status(refused->first, "", refused->second);
      }
    }
    const auto found = files.find(path_of(request.target));
    if (found == files.end()) {
      lock.unlock();
      return send_status(404, "", "nothing here");
    }
    Entry& entry = found->second;
    const std::size_t number = entry.num_answers++;
    if (number < entry.file.statuses.size()) {
      const int status = entry.file.statuses[number];
      const std::string headers = entry.file.extra_headers;
      lock.unlock();
      if (status == 0) {
        send_all(fd, "HTTP/1.1 206 Partial Content\r\nServer: x\r\n");
        return false;
      }
      return send_status(status, headers, "an error's page");
    }
    if (request.method == "GET") {
      if (entry.file.before_get) entry.file.before_get(entry.file);
      cut = ++entry.cuts;
      stall = ++entry.stalls;
    }
    file = entry.file;
    if (file.has_many_nodes) file.etag = "\"node-" + std::to_string(entry.num_answers) + "\"";
  }
  if (file.delay.count() > 0) sleep(file.delay);
  while (request.method == "GET" && file.hangs && *file.hangs && !stops) {
    sleep(std::chrono::milliseconds(1));
  }
  if (!file.redirect_to.empty()) {
    return send_status(302, "Location: " + file.redirect_to + "\r\n" + file.extra_headers, "there");
  }
  if (request.method == "HEAD" && !file.has_head) return send_status(405, "", "");
  const std::string if_match = request.header("if-match");
  const bool is_weak = file.etag.starts_with("W/");  // a weak ETag never matches
  if (file.has_if_match && !if_match.empty() && (is_weak || if_match != file.etag)) {
    return send_status(412, "", "another");
  }
  return send_file(fd, request, file, cut, stall);
}

bool TestHttpServer::Impl::send_file(int fd, const LoggedRequest& request, ServedFile& file,
                                     int cut, int stall) {
  std::size_t begin = 0, end = file.body.view().size();
  std::string head = "HTTP/1.1 200 OK\r\n";
  const std::string if_range = request.header("if-range");
  const bool is_same = if_range.empty() || if_range == file.etag || if_range == file.last_modified;
  if (!request.header("range").empty() && file.has_ranges && is_same) {
    const auto range = parse_range(request.header("range"), end);
    if (!range) {
      return send_all(fd, "HTTP/1.1 416 Status\r\nContent-Length: 0\r\nContent-Range: bytes */" +
                              std::to_string(end) + "\r\n\r\n");
    }
    head = "HTTP/1.1 206 Partial Content\r\nContent-Range: ";
    head += file.content_range.empty()
                ? "bytes " + std::to_string(range->first) + "-" +
                      std::to_string(range->second - 1) + "/" + std::to_string(end)
                : file.content_range;
    head += "\r\n";
    std::tie(begin, end) = *range;
  }
  const std::string_view body = file.body.view().substr(begin, end - begin);
  if (file.is_chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (file.has_length) {
    const std::int64_t length = static_cast<std::int64_t>(body.size()) + file.length_error;
    head += "Content-Length: " + std::to_string(length) + "\r\n";
  }
  if (file.has_ranges) head += "Accept-Ranges: bytes\r\n";
  if (!file.etag.empty()) head += "ETag: " + file.etag + "\r\n";
  if (!file.last_modified.empty()) head += "Last-Modified: " + file.last_modified + "\r\n";
  head += file.extra_headers + "\r\n";
  if (request.method == "HEAD") return send_all(fd, head);
  if (!send_all(fd, head)) return false;

  const std::size_t cut_after =
      file.cut_after && cut <= file.num_cuts ? *file.cut_after : std::string::npos;
  const std::size_t stall_after =
      file.stall_after && stall <= file.num_stalls ? *file.stall_after : std::string::npos;
  const std::size_t whole = file.drip_bytes > 0 ? file.drip_bytes : std::size_t{64} * 1024;
  for (std::size_t sent = 0;;) {
    if (sent >= cut_after) return false;
    if (sent >= stall_after) {
      sleep(std::chrono::hours(1));
      return false;
    }
    if (sent >= body.size()) break;
    const std::size_t pause = std::max(file.pause_at, begin) - begin;
    while (sent >= pause && file.pauses && *file.pauses && !stops) {
      sleep(std::chrono::milliseconds(1));
    }
    const std::size_t until_pause = sent < pause ? pause : std::string::npos;
    const std::size_t limit = std::min({body.size(), cut_after, stall_after, until_pause});
    const std::string_view piece = body.substr(sent, std::min(whole, limit - sent));
    if (file.drip_bytes > 0) sleep(file.drip_wait);
    if (file.is_chunked) {
      char size[32];
      std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
      if (!send_all(fd, size + std::string(piece) + "\r\n")) return false;
    } else if (!send_all(fd, sent + piece.size() == body.size() ? std::string(piece) + file.excess
                                                                : std::string(piece))) {
      return false;
    }
    sent += piece.size();
  }
  if (file.is_chunked && !send_all(fd, "0\r\n\r\n")) return false;
  // If the body is longer or shorter than announced, the connection cannot be reused.
  return (file.is_chunked || file.has_length) && file.length_error == 0 && file.excess.empty();
}

TestHttpServer::TestHttpServer() : impl_(std::make_unique<Impl>()) {
  impl_->listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (impl_->listener < 0 || ::bind(impl_->listener, any, size) != 0 ||
      ::listen(impl_->listener, 128) != 0 || ::getsockname(impl_->listener, any, &size) != 0) {
    throw std::runtime_error("no port to listen on");
  }
  impl_->port = ntohs(address.sin_port);
  impl_->acceptor = std::thread([this] { impl_->accept_all(); });
}

TestHttpServer::~TestHttpServer() {
  impl_->stops = true;
  impl_->acceptor.join();
  for (Impl::Talk& talk : impl_->talks) ::shutdown(talk.fd, SHUT_RDWR);
  for (Impl::Talk& talk : impl_->talks) {
    talk.thread.join();
    ::close(talk.fd);
  }
  ::close(impl_->listener);
}

int TestHttpServer::port() const { return impl_->port; }

std::string TestHttpServer::url(std::string_view path) const {
  return "http://127.0.0.1:" + std::to_string(impl_->port) + std::string(path);
}

void TestHttpServer::serve(const std::string& path, ServedFile file) {
  const std::lock_guard lock(impl_->mutex);
  impl_->files[path] = {.file = std::move(file)};
}

void TestHttpServer::remove(const std::string& path) {
  const std::lock_guard lock(impl_->mutex);
  impl_->files.erase(path);
}

void TestHttpServer::set_gate(Gate gate) {
  const std::lock_guard lock(impl_->mutex);
  impl_->gate = std::move(gate);
}

int TestHttpServer::count(std::string_view method, std::string_view path) const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int>(std::ranges::count_if(impl_->log, [&](const LoggedRequest& request) {
    return request.method == method && path_of(request.target) == path;
  }));
}

std::vector<LoggedRequest> TestHttpServer::requests() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->log;
}

int TestHttpServer::num_connections() const { return impl_->num_connections; }

}  // namespace shardwise::test
