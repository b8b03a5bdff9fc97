#include "libtorch/listener.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>

#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch::detail {

namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

/// The local end's address, or nothing; `failure` is then the system's error.
std::string try_connect(const addrinfo& target, Clock::time_point deadline, int& failure) {
  const Socket socket(::socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) {
    failure = errno;
    return {};
  }
  if (::connect(socket.fd(), target.ai_addr, target.ai_addrlen) != 0 && errno != EINPROGRESS) {
    failure = errno;
    return {};
  }
  pollfd ready{socket.fd(), POLLOUT, 0};
  int count = 0;
  do {
    count = ::poll(&ready, 1, std::min(milliseconds_until(deadline), 5000));
  } while (count < 0 && errno == EINTR && Clock::now() < deadline);
  socklen_t size = sizeof failure;
  failure = 0;
  if (count <= 0) {
    failure = ETIMEDOUT;
  } else if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0) {
    failure = errno;
  }
  if (failure != 0) return {};
  sockaddr_storage own{};
  socklen_t own_size = sizeof own;
  std::array<char, NI_MAXHOST> name{};
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), own_size, name.data(), name.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    failure = EADDRNOTAVAIL;
    return {};
  }
  return name.data();
}

}  // namespace

std::string wait_for_listener(const std::string& host, std::uint16_t port,
                              Clock::time_point deadline) {
  const std::string place = in_quotes(host) + " port " + std::to_string(port);
  std::string reason = "no address";
  auto pause = std::chrono::milliseconds(5);
  for (;;) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, [](addrinfo* p) {
      if (p != nullptr) ::freeaddrinfo(p);
    });
    if (code != 0) reason = ::gai_strerror(code);
    for (const addrinfo* target = list; target != nullptr; target = target->ai_next) {
      int failure = 0;
      std::string own = try_connect(*target, deadline, failure);
      if (!own.empty()) return own;
      reason = std::generic_category().message(failure);
    }
    if (Clock::now() >= deadline) {
      throw Error(ErrorCode::kDistributed, "cannot reach the ranks' meeting point (" + reason + ")",
                  place, "check that rank 0 runs, and MASTER_ADDR and MASTER_PORT");
    }
    std::this_thread::sleep_for(
        std::min(pause, std::chrono::milliseconds(std::max(1, milliseconds_until(deadline)))));
    pause = std::min(pause * 2, std::chrono::milliseconds(250));
  }
}

bool is_loopback(const std::string& address) {
  return address.compare(0, 4, "127.") == 0 || address == "::1" ||
         address.compare(0, 11, "::ffff:127.") == 0;
}

}  // namespace shardwise::libtorch::detail
