#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "libtorch/rendezvous/wire.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Finds out which ranks have ended, or do not answer, after a collective call has failed.
///
/// Each rank has a listening socket, its letter box, and accepts connections only in ask(). Until
/// then the kernel stores the letters. When a call fails on a rank, the rank sends a letter to all
/// other ranks. It states that the rank is alive, and which ranks it found to be gone:
///
/// - A process that ended has no letter box. Connections to it are refused at once.
/// - A rank that hangs or is unreachable writes no letter although the call failed elsewhere.
/// - A rank may notice the failure, send its letter, and then end. It is gone, but not lost: it did
/// not cause the failure.
///
/// Threads: one. Starts no thread.
class SHARDWISE_EXPORT PeerProbe {
 public:
  struct Address {
    std::string host;  ///< a numeric address
    std::uint16_t port = 0;
  };
  struct Options {
    int rank = 0;
    std::string key;                 ///< key of this job; letters with another key are ignored
    std::vector<Address> addresses;  ///< one per rank
    std::chrono::milliseconds most{3'000};  ///< how long to wait for letters
  };
  /// The lost ranks, in ascending order.
  struct Lost {
    std::vector<int> ended;
    std::vector<int> silent;
    bool is_own = false;  ///< the other ranks gave up this rank
  };

  /// Listens at a free port.
  /// @param host  the address at which other ranks reach this machine.
  /// Errors: kIo.
  explicit PeerProbe(const std::string& host);

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// Informs all other ranks that the call failed here, and finds out which ranks are gone.
  /// Cost: takes `most` + 0.5 s at most; less if it finds ended ranks, or if all ranks have
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
