#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// The bytes between a rank and the hub. Each side sends its greeting once, then messages. A message
// is its size (four bytes, little-endian), one byte for its kind, and its fields. A number is four
// bytes; a text is a number and that many bytes. A rank sends nothing before the hub's greeting, so
// one that gives up leaves no trace.

/// The greetings differ, so that a socket connected to itself is not taken for a hub.
inline constexpr std::string_view kRankGreeting = "shardwise meeting 1: a rank\n";
inline constexpr std::string_view kHubGreeting = "shardwise meeting 1: the hub\n";

enum class MessageKind : std::uint8_t {
  // Sent by a rank.
  kHello = 1,  ///< job, round, rank, world size, first rank of its machine, ranks there, host,
               ///< address, process, key, record
  kWaits,      ///< no fields: the rank waits for a value of another rank
  kDone,       ///< no fields: connected to all ranks
  kLeave,      ///< text, place and remedy of an error for all others
  // Sent by the hub.
  kWelcome,  ///< no fields
  kRefused,  ///< reason (Refusal), a text
  kWaiting,  ///< all ranks have come (1) or not (0), number of missing ranks, their names
  kRoster,   ///< host, address and process of each rank
  kAllDone,  ///< no fields
  kFailed,   ///< text, place and remedy of an error
  // Sent by both.
  kSet,  ///< key, value: the hub forwards it to all ranks
};

enum class Refusal : std::uint32_t {
  kOtherJob,    ///< ranks of another job meet here
  kOtherRound,  ///< this job, but an earlier or later meeting of it
  kTwice,       ///< this rank is here already
};

/// The location of a rank.
struct RankInfo {
  std::string host;
  std::string address;  ///< numeric; other ranks reach it there
  std::uint32_t process = 0;
};

class SHARDWISE_EXPORT MessageWriter {
 public:
  explicit MessageWriter(MessageKind kind) {
    bytes_.assign(4, '\0');
    bytes_.push_back(static_cast<char>(kind));
  }
  MessageWriter& number(std::uint32_t value);
  MessageWriter& text(std::string_view value);
  MessageWriter& rank(const RankInfo& info) {
    return text(info.host).text(info.address).number(info.process);
  }
  /// Returns the message, with its size in front.
  std::string take();

 private:
  std::string bytes_;
};

/// Reads a message. If a field is missing or malformed, ok() is false from then on.
class SHARDWISE_EXPORT MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : bytes_(bytes) {}

  MessageKind kind();
  std::uint32_t number();
  std::string text();
  RankInfo rank();
  bool ok() const noexcept { return ok_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

/// Splits the bytes of a connection into the greeting and the messages.
class SHARDWISE_EXPORT MessageBuffer {
 public:
  explicit MessageBuffer(std::string_view greeting) : greeting_(greeting) {}

  /// Returns false if the bytes do not follow the protocol.
  bool add(std::string_view bytes);
  /// Returns true if the greeting is complete.
  bool is_greeted() const noexcept { return greeting_.empty(); }
  /// Takes the next complete message, or returns nullopt.
  std::optional<std::string> next();

 private:
  std::string_view greeting_;  // the part that has not come yet
  std::string bytes_;
};

/// Owns a file descriptor; -1 after a move or close().
class SHARDWISE_EXPORT Socket {
 public:
  explicit Socket(int fd = -1) noexcept : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int fd() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }
  void close() noexcept;

 private:
  int fd_;
};

enum class Received : std::uint8_t { kSome, kNothingYet, kEnded };
/// Appends the bytes that are available without waiting to `bytes`.
Received receive_some(const Socket& socket, std::string& bytes);
/// Sends from the front of `bytes` without waiting. Returns false if the other side is gone.
bool send_some(const Socket& socket, std::string& bytes);

/// Returns a random text that identifies this job.
SHARDWISE_EXPORT std::string random_key();

/// True for 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view address);

}  // namespace shardwise::detail
