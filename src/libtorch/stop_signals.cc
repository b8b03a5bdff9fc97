#include "libtorch/stop_signals.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>

#include "base/error_types.h"

namespace shardwise::libtorch::detail {
namespace {

/// The note for the signal handlers.
std::atomic<SignalNote*> current_note{nullptr};
static_assert(std::atomic<SignalNote*>::is_always_lock_free);

std::int64_t now_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// Returns true if this is a second Ctrl-C, or a second SIGTERM. A single Ctrl-C may arrive twice:
/// from the terminal, and at any later time from the launcher. `timeout` sends a signal to its
/// child and then to the child's group. A signal therefore counts as a second one only if it
/// arrives more than 1 s after the first. In addition, both must have the same sender, or both must
/// be from processes other than the launcher.
bool is_second(FirstPress& press, int sender) noexcept {
  constexpr std::int64_t kOnePress = 1000;  // ms
  if (!press.is_there.exchange(true)) {
    press.sender = sender;
    press.time_ms = now_ms();
    return false;
  }
  const int first = press.sender.load();
  const bool is_late = now_ms() - press.time_ms.load() > kOnePress;
  const int launcher = ::getppid();
  return is_late && (sender == first || (sender != launcher && first != launcher));
}

bool is_second(SignalNote& note, int signal, int sender) noexcept {
  if (signal == SIGINT) return is_second(note.interrupt, sender);
  return signal == SIGTERM && is_second(note.terminate, sender);
}

/// A signal handler: makes only async-signal-safe calls.
extern "C" void shardwise_note_signal(int signal, siginfo_t* info, void*) {
  SignalNote* const note = current_note.load();
  if (note == nullptr) return;
  const int saved = errno;
  const int sender = info->si_code == SI_USER || info->si_code == SI_TKILL ? info->si_pid : 0;
  int none = 0;
  if (note->signal.compare_exchange_strong(none, signal)) note->flag = true;
  if (is_second(*note, signal, sender)) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  errno = saved;
}

}  // namespace

SignalHandlers::SignalHandlers(SignalNote& note, const std::vector<int>& signals) {
  SignalNote* none = nullptr;
  if (!current_note.compare_exchange_strong(none, &note)) {
    throw InvalidArgument("the process already has a StopGuard", "this process",
                          "use one StopGuard per process");
  }
  try {
    for (const int signal : signals) handle(signal);
  } catch (...) {
    restore();
    throw;
  }
  ignore_broken_pipes();
}

SignalHandlers::~SignalHandlers() { restore(); }

void SignalHandlers::handle(int signal) {
  struct sigaction action {};
  action.sa_sigaction = shardwise_note_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  struct sigaction before {};
  if (::sigaction(signal, &action, &before) != 0) {
    throw InvalidArgument("a signal cannot be handled", std::to_string(signal),
                          "choose signals such as SIGINT, SIGTERM, SIGUSR1 and SIGUSR2");
  }
  before_.emplace_back(signal, before);
  // If a terminal's signal is ignored (background job, nohup), it stays ignored.
  const bool is_of_terminal = signal == SIGINT || signal == SIGHUP;
  if (is_of_terminal && before.sa_handler == SIG_IGN) ::sigaction(signal, &before, nullptr);
}

/// Makes writes to a closed connection fail with an error instead of SIGPIPE. A hung rank that the
/// others gave up makes such a write when it resumes, and SIGPIPE would kill it silently.
void SignalHandlers::ignore_broken_pipes() {
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
  before_.emplace_back(SIGPIPE, before);
}

void SignalHandlers::restore() noexcept {
  for (auto it = before_.rbegin(); it != before_.rend(); ++it) {
    ::sigaction(it->first, &it->second, nullptr);
  }
  current_note = nullptr;
}

}  // namespace shardwise::libtorch::detail
