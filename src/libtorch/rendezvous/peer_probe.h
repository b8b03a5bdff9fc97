#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "libtorch/rendezvous/wire.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Finds out which ranks are gone after a call that all ranks make has failed.
///
/// Each rank always has a listening socket, its letter box. It accepts connections only in ask();
/// until then the kernel keeps the letters. When a call fails on a rank, the rank writes to all
/// others that it is alive, and which ranks it found to be gone:
///
/// - A process that ended has no letter box: connections to it are refused at once.
/// - A rank that hangs, or is unreachable, writes no letter when the call has failed elsewhere.
/// - A rank that noticed the failure and has ended since is gone, but has left a letter: it is
///   not the rank that was lost.
///
/// Threads: one. Starts no thread.
class SHARDWISE_EXPORT PeerProbe {
 public:
  struct Address {
    std::string host;  ///< in numbers
    std::uint16_t port = 0;
  };
  struct Options {
    int rank = 0;
    std::string key;                        ///< of this job; other letters are ignored
    std::vector<Address> addresses;         ///< by rank
    std::chrono::milliseconds most{3'000};  ///< how long to wait for letters
  };
  /// The lost ranks, in ascending order.
  struct Lost {
    std::vector<int> ended;
    std::vector<int> silent;
    bool is_own = false;  ///< the other ranks gave up this rank
  };

  /// Listens at a free port. `host` is the address at which other ranks reach this machine.
  /// Errors: kIo.
  explicit PeerProbe(const std::string& host);

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// Informs all other ranks that the call failed here, and finds out which ranks are gone.
  /// Cost: up to `most` and another 0.5 s. Shorter if ended ranks are found, or all ranks have
  /// written.
  [[nodiscard]] Lost ask(const Options& options);

 private:
  struct Talk;

  void take_letters(Talk& talk);

  Socket listener_;
  std::uint16_t port_ = 0;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::PeerProbe;
}  // namespace shardwise
