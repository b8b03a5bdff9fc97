#include "libtorch/rendezvous/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>

#include "base/bytes.h"

namespace shardwise::detail {
namespace {

/// Limit for a message. Runs with thousands of ranks stay below it.
constexpr std::uint32_t kMaxBytes = 16u << 20;

}  // namespace

MessageWriter& MessageWriter::number(std::uint32_t value) {
  std::array<char, 4> bytes{};
  store_le32(bytes.data(), value);
  bytes_.append(bytes.data(), bytes.size());
  return *this;
}

MessageWriter& MessageWriter::text(std::string_view value) {
  number(static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

std::string MessageWriter::take() {
  store_le32(bytes_.data(), static_cast<std::uint32_t>(bytes_.size() - 4));
  return std::move(bytes_);
}

MessageKind MessageReader::kind() {
  if (bytes_.empty()) {
    ok_ = false;
    return {};
  }
  const auto kind = static_cast<MessageKind>(bytes_.front());
  bytes_.remove_prefix(1);
  return kind;
}

std::uint32_t MessageReader::number() {
  if (bytes_.size() < 4) {
    ok_ = false;
    bytes_ = {};
    return 0;
  }
  const std::uint32_t value = load_le32(bytes_.data());
  bytes_.remove_prefix(4);
  return value;
}

std::string MessageReader::text() {
  const std::uint32_t size = number();
  if (!ok_ || size > bytes_.size()) {
    ok_ = false;
    return {};
  }
  std::string value(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
  return value;
}

RankInfo MessageReader::rank() {
  RankInfo info;
  info.host = text();
  info.address = text();
  info.process = number();
  return info;
}

bool MessageBuffer::add(std::string_view bytes) {
  const std::size_t known = std::min(bytes.size(), greeting_.size());
  if (bytes.substr(0, known) != greeting_.substr(0, known)) return false;
  greeting_.remove_prefix(known);
  bytes_ += bytes.substr(known);
  return bytes_.size() < 4 || load_le32(bytes_.data()) <= kMaxBytes;
}

std::optional<std::string> MessageBuffer::next() {
  if (bytes_.size() < 4) return std::nullopt;
  const std::uint32_t size = load_le32(bytes_.data());
  if (bytes_.size() - 4 < size) return std::nullopt;
  std::string message = bytes_.substr(4, size);
  bytes_.erase(0, 4 + std::size_t{size});
  return message;
}

void Socket::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Received receive_some(const Socket& socket, std::string& bytes) {
  std::array<char, 1 << 16> buffer{};
  for (;;) {
    const ssize_t size = ::recv(socket.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size > 0) {
      bytes.append(buffer.data(), static_cast<std::size_t>(size));
      return Received::kSome;
    }
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::kNothingYet;
    return Received::kEnded;
  }
}

bool send_some(const Socket& socket, std::string& bytes) {
  while (!bytes.empty()) {
    const ssize_t size =
        ::send(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size > 0) {
      bytes.erase(0, static_cast<std::size_t>(size));
      continue;
    }
    if (size < 0 && errno == EINTR) continue;
    return size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  return true;
}

std::string random_key() {
  std::random_device random;
  return std::to_string(random()) + "-" + std::to_string(random());
}

bool is_loopback(std::string_view address) {
  return address.substr(0, 4) == "127." || address == "::1" ||
         address.substr(0, 11) == "::ffff:127.";
}

}  // namespace shardwise::detail
