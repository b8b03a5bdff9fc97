#include "libtorch/rendezvous/own_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

namespace shardwise::detail {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

socklen_t size_of(const sockaddr& address) {
  return address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string numbers_of(const sockaddr& address) {
  std::array<char, NI_MAXHOST> name{};
  if (::getnameinfo(&address, size_of(address), name.data(), name.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return {};
  }
  // Prefix of an IPv4 peer's address on a socket for IPv4 and IPv6.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view text = name.data();
  return std::string(text.starts_with(kMapped) ? text.substr(kMapped.size()) : text);
}

/// Returns true if `is_it(address)` is true for an address of `host`.
template <class IsIt>
bool any_address(const std::string& host, IsIt&& is_it) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &list) != 0) return false;
  bool found = false;
  for (const addrinfo* each = list; each != nullptr && !found; each = each->ai_next) {
    found = is_it(*each);
  }
  ::freeaddrinfo(list);
  return found;
}

/// Returns the addresses of the interface `name`, or of all interfaces that are up if `name` is
/// empty. IPv4 addresses come first; link-local ones (fe80::) are omitted.
std::vector<std::string> addresses_of(const std::string& name) {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      if ((each->ifa_flags & IFF_UP) == 0 || (!name.empty() && name != each->ifa_name)) continue;
      std::string address = numbers_of(*each->ifa_addr);
      if (!address.empty() && address.find('%') == std::string::npos) {
        addresses.push_back(std::move(address));
      }
    }
  }
  ::freeifaddrs(list);
  return addresses;
}

/// Returns the local address that the route to `host` uses. Sends no packet.
std::string end_of_way_to(const std::string& host) {
  std::string address;
  any_address(host, [&](const addrinfo& target) {
    const Socket socket(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return false;
    if (::connect(socket.fd(), target.ai_addr, target.ai_addrlen) != 0) return false;
    address = address_of(socket);
    return !address.empty();
  });
  return address;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string own_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string own_address() {
  const auto is_far = [](const std::string& address) {
    return !address.empty() && !is_loopback(address);
  };
  if (const std::string name = variable("GLOO_SOCKET_IFNAME"); !name.empty()) {
    if (const auto addresses = addresses_of(name); !addresses.empty()) return addresses.front();
  }
  for (const std::string& far : {variable("MASTER_ADDR"), own_host_name()}) {
    if (far.empty()) continue;
    if (std::string address = end_of_way_to(far); is_far(address)) return address;
  }
  const auto addresses = addresses_of("");
  const auto first = std::find_if(addresses.begin(), addresses.end(), is_far);
  return first != addresses.end() ? *first : kLoopback;
}

bool is_own_address(const std::string& host) {
  return any_address(host, [](const addrinfo& target) {
    sockaddr_storage address{};
    std::memcpy(&address, target.ai_addr, target.ai_addrlen);
    reinterpret_cast<sockaddr_in&>(address).sin_port = 0;  // sin6_port has the same offset
    const Socket socket(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return socket.is_open() &&
           ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), target.ai_addrlen) == 0;
  });
}

std::string address_of(const Socket& socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return {};
  return numbers_of(reinterpret_cast<const sockaddr&>(own));
}

std::string own_network() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::array<char, 128> network{};
  if (!std::getline(file, boot) ||
      ::readlink("/proc/self/ns/net", network.data(), network.size() - 1) <= 0) {
    return {};
  }
  return boot + " " + network.data();
}

}  // namespace shardwise::detail
