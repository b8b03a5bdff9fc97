#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <thread>

namespace shardwise::test {

/// A server that refuses connections until open() is called. Afterwards it answers each request
/// with "here".
class LateServer {
 public:
  LateServer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_, any, size), 0);
    EXPECT_EQ(::getsockname(socket_, any, &size), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~LateServer() {
    ::shutdown(socket_, SHUT_RDWR);
    if (answering_.joinable()) answering_.join();
    ::close(socket_);
  }
  std::string url(std::string_view path) const { return url_ + std::string(path); }
  void open() {
    ::listen(socket_, 8);
    answering_ = std::thread([this] {
      for (int asked = 0; (asked = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(asked)) {
        char request[4096];
        constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere";
        if (::read(asked, request, sizeof request) > 0) {
          EXPECT_EQ(::write(asked, kAnswer.data(), kAnswer.size()), std::ssize(kAnswer));
        }
      }
    });
  }

 private:
  const int socket_;
  std::string url_;
  std::thread answering_;
};

}  // namespace shardwise::test
