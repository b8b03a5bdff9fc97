#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "shardwise/base/cancel.h"

namespace shardwise::libtorch::detail {

/// The first arrival of a signal.
struct FirstPress {
  std::atomic<bool> is_there{false};
  std::atomic<int> sender{0};  // process ID; 0 means: the terminal
  std::atomic<std::int64_t> time_ms{0};
};

/// All the data that a signal handler reads and writes.
struct SignalNote {
  std::atomic<int> signal{0};  // the first received
  CancelToken::Flag flag{false};
  // SIGINT and SIGTERM are counted separately: the second of the same kind ends the process.
  FirstPress interrupt;  // of SIGINT
  FirstPress terminate;  // of SIGTERM
};

/// Signal handlers that write to a note while this object lives. One object per process.
class SignalHandlers {
 public:
  /// Errors: InvalidArgument for a signal that cannot be handled, or if an object exists already.
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
