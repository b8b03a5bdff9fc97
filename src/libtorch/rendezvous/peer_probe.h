#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "libtorch/rendezvous/wire.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// How ranks find out which of them is gone, once a call that all of them make has failed.
///
/// Each rank has a socket that listens, all the time, and accepts nothing: its letter box. What
/// another rank writes waits there, in the kernel. When a call fails on a rank, it writes to all
/// others that it is alive, and whom it found to be gone:
///
///   - A process that ended has no letter box any more: connections to it are refused, at once.
///   - One that hangs, or is out of reach, writes no letter when its call is over for all others.
///   - A rank that noticed the failure first and has ended since is gone, too, but has left a
///     letter: it is not the one that was lost.
///
/// One thread. No thread of its own.
class SHARDWISE_EXPORT PeerProbe {
 public:
  struct Address {
    std::string host;  ///< in numbers
    std::uint16_t port = 0;
  };
  struct Options {
    int rank = 0;
    std::string key;                        ///< of this job: letters of others are thrown away
    std::vector<Address> addresses;         ///< by rank
    std::chrono::milliseconds most{3'000};  ///< how long letters are waited for
  };
  /// Ranks, in order.
  struct Lost {
    std::vector<int> ended;
    std::vector<int> silent;
    bool is_own = false;  ///< the others gave this rank up
  };

  /// Listens at a free port, for those who reach this machine at `host`.
  /// Errors: kIo.
  explicit PeerProbe(const std::string& host);

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// Tells all other ranks that the call failed here, and finds out who is gone. Takes as long as
  /// connections to those take that ended, and else `most`, or until all others have written.
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
