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

/// Other greetings for the two sides: a socket that got connected to itself hears no hub.
inline constexpr std::string_view kRankGreeting = "shardwise meeting 1: a rank\n";
inline constexpr std::string_view kHubGreeting = "shardwise meeting 1: the hub\n";

enum class MessageKind : std::uint8_t {
  // Of a rank.
  kHello = 1,  ///< job, round, rank, world size, first rank of its machine, number there, host,
               ///< address, process, key, record
  kWaits,      ///< nothing: it has to wait for what another rank sets
  kDone,       ///< nothing: connected to all
  kLeave,      ///< what, where, remedy: an error for all others
  // Of the hub.
  kWelcome,  ///< nothing
  kRefused,  ///< why (Refusal), a text
  kWaiting,  ///< all have come (1) or not (0), how many are waited for, who
  kRoster,   ///< of each rank its host, address, process
  kAllDone,  ///< nothing
  kFailed,   ///< what, where, remedy
  // Of both.
  kSet,  ///< key, value: the hub passes it on to all ranks
};

enum class Refusal : std::uint32_t {
  kOtherJob,    ///< ranks of another job meet here
  kOtherRound,  ///< this job, but an earlier or later meeting of it
  kTwice,       ///< this rank is here already
};

/// Where a rank is.
struct RankInfo {
  std::string host;
  std::string address;  ///< in numbers; other ranks reach it there
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
  /// The message, with its size in front.
  std::string take();

 private:
  std::string bytes_;
};

/// Reads a message. What does not hold what is asked for is not ok() any more.
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

/// Bytes of a connection, put together to a greeting and messages.
class SHARDWISE_EXPORT MessageBuffer {
 public:
  explicit MessageBuffer(std::string_view greeting) : greeting_(greeting) {}

  /// False if this is not the other side of a meeting.
  bool add(std::string_view bytes);
  /// The greeting has come.
  bool is_greeted() const noexcept { return greeting_.empty(); }
  /// The next whole message.
  std::optional<std::string> next();

 private:
  std::string_view greeting_;  // what is still to come of it
  std::string bytes_;
};

/// A file descriptor. Moved from, or closed, it is -1.
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
/// What has come, without waiting, at the end of `bytes`.
Received receive_some(const Socket& socket, std::string& bytes);
/// Sends what goes without waiting, from the front of `bytes`. False if the other side is gone.
bool send_some(const Socket& socket, std::string& bytes);

/// A text that no other job has.
SHARDWISE_EXPORT std::string random_key();

/// True for 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view address);

}  // namespace shardwise::detail
