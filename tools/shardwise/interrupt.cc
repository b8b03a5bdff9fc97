#include "interrupt.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "shardwise/base/error.h"

namespace shardwise::tools {
namespace {

CancelToken::Flag interrupted{false};
/// The first signal; 0 if there was none.
std::atomic<int> first_signal{0};

/// Time when each signal first arrived, in ms of the monotonic clock; 0 if it has not.
std::array<std::atomic<std::int64_t>, NSIG> first_ms{};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// `timeout` signals its child, and then the child's group. Repeated signals within this time
/// therefore count as one.
constexpr std::int64_t kOneSignalMs = 1000;

/// The signal handler: calls only async-signal-safe functions.
void on_signal(int signal) {
  const int saved = errno;
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  interrupted.store(true);
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
  std::int64_t first = 0;
  if (!first_ms[static_cast<std::size_t>(signal)].compare_exchange_strong(first, now_ms) &&
      now_ms - first > kOneSignalMs) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // the signal is delivered when this handler returns
  }
  errno = saved;
}

}  // namespace

void install_signal_handlers() {
  // Signals with which terminals, schedulers and CPU limits end a program.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    struct sigaction old {};
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler =
        on_signal;  // without SA_RESTART, so that a signal interrupts a write to a slow reader
    ::sigaction(signal, &action, nullptr);
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

const CancelToken& interrupt_token() {
  static const CancelToken token(&interrupted);
  return token;
}

const CancelToken::Flag& interrupt_flag() { return interrupted; }

int interrupt_exit_code() noexcept {
  const int signal = first_signal.load();
  return 128 + (signal == 0 ? SIGINT : signal);
}

void throw_if_interrupted() {
  if (interrupted.load()) throw Cancelled("interrupted");
}

}  // namespace shardwise::tools
