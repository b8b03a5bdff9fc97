#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "shardwise/base/cancel.h"

namespace shardwise::libtorch::detail {

/// Records the first arrival of a signal.
struct FirstPress {
  std::atomic<bool> is_there{false};
  std::atomic<int> sender{0};  // process ID; 0 if no process sent it, e.g. for Ctrl-C
  std::atomic<std::int64_t> time_ms{0};
};

/// All data that a signal handler reads or writes.
struct SignalNote {
  std::atomic<int> signal{0};  // the first signal received
  CancelToken::Flag flag{false};
  // SIGINT and SIGTERM are counted separately: the second signal of a kind ends the process.
  FirstPress interrupt;  // of SIGINT
  FirstPress terminate;  // of SIGTERM
};

/// While it lives, signal handlers write to a note. One object per process.
class SignalHandlers {
 public:
  /// Errors: InvalidArgument if a signal cannot be handled, or if there is such an object already.
  SignalHandlers(SignalNote& note, const std::vector<int>& signals);
  /// Restores the previous handlers.
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  void handle(int signal);
  void ignore_broken_pipes();
  void restore() noexcept;

  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace shardwise::libtorch::detail
