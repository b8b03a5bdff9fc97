#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/base/export.h"

namespace shardwise::detail {

// The protocol between a rank and the hub. Each side sends its greeting once, then messages. A
// message is its size (four bytes, little-endian), its kind (one byte), and its fields. A number
// has four bytes. A text is a number, its size, and that many bytes. A rank sends nothing before
// the hub's greeting, so a rank that gives up earlier leaves no trace.

/// The two greetings differ, so that a rank detects a connection to itself.
inline constexpr std::string_view kRankGreeting = "shardwise meeting 1: a rank\n";
inline constexpr std::string_view kHubGreeting = "shardwise meeting 1: the hub\n";

enum class MessageKind : std::uint8_t {
  // Sent by a rank.
  kHello = 1,  ///< job, round, rank, world size, first rank of its machine, ranks there, host,
               ///< address, process, key, record
  kWaits,      ///< no fields: the rank waits for a value that another rank sets
  kDone,       ///< no fields: the rank is connected to all others
  kLeave,      ///< text, place and remedy of the error for all other ranks
  // Sent by the hub.
  kWelcome,  ///< no fields
  kRefused,  ///< reason (Refusal), a text
  kWaiting,  ///< all ranks have come (1) or not (0), number of missing ranks, their names
  kRoster,   ///< host, address and process of each rank
  kAllDone,  ///< no fields
  kFailed,   ///< text, place and remedy of an error
  // Sent by both.
  kSet,  ///< key, value; the hub forwards it to all ranks
};

enum class Refusal : std::uint32_t {
  kOtherJob,    ///< the rendezvous belongs to another job
  kOtherRound,  ///< an earlier or later rendezvous of this job
  kTwice,       ///< this rank has already joined
};

/// The location of a rank.
struct RankInfo {
  std::string host;
  std::string address;  ///< numeric address at which other ranks reach it
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
  /// Returns the whole message, which begins with its size.
  std::string take();

 private:
  std::string bytes_;
};

/// Reads the fields of a message. After a missing or malformed field, ok() is false.
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

/// Splits received bytes into the greeting and the messages.
class SHARDWISE_EXPORT MessageBuffer {
 public:
  explicit MessageBuffer(std::string_view greeting) : greeting_(greeting) {}

  /// Returns false if the bytes violate the protocol.
  bool add(std::string_view bytes);
  /// Returns true if the greeting is complete.
  bool is_greeted() const noexcept { return greeting_.empty(); }
  /// Removes and returns the next complete message. Returns nullopt if it is incomplete.
  std::optional<std::string> next();

 private:
  std::string_view greeting_;  // the part not yet received
  std::string bytes_;
};

/// Owns a file descriptor, which is -1 after a move or close().
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
/// Appends to `bytes` what can be received without waiting.
Received receive_some(const Socket& socket, std::string& bytes);
/// Sends from the front of `bytes`, without waiting. Returns false if the connection is lost.
bool send_some(const Socket& socket, std::string& bytes);

/// Returns a random text that identifies this job.
SHARDWISE_EXPORT std::string random_key();

/// True for 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view address);

}  // namespace shardwise::detail
