#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "shardwise/base/cancel.h"

namespace shardwise::libtorch::detail {

/// When a signal came first, and from whom.
struct FirstPress {
  std::atomic<bool> is_there{false};
  std::atomic<int> sender{0};  // a process; 0: the terminal
  std::atomic<std::int64_t> time_ms{0};
};

/// What a signal handler writes, and all that it touches.
struct SignalNote {
  std::atomic<int> signal{0};  // the first that came
  CancelToken::Flag flag{false};
  // Each is counted by itself: a second one ends the process, whatever came before the first.
  FirstPress interrupt;  // of SIGINT
  FirstPress terminate;  // of SIGTERM
};

/// Handlers that write to a note, while this lives. One in a process.
class SignalHandlers {
 public:
  /// Errors: InvalidArgument, for a signal that cannot be handled, or a second object.
  SignalHandlers(SignalNote& note, const std::vector<int>& signals);
  /// The handlers from before are back.
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
