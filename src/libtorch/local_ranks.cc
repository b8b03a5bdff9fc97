#include "libtorch/local_ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>

#include "base/errno_error.h"
#include "libtorch/rendezvous/wire.h"
#include "libtorch/require_distributed.h"
#include "shardwise/base/error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace shardwise::libtorch::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// While it lives, blocks the launcher's signals in this thread and in threads that this one
/// starts. SIGCHLD has its default action meanwhile, because the kernel discards the exit status of
/// a rank if SIGCHLD is ignored.
class BlockedSignals {
 public:
  BlockedSignals() {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &action, &child_before_);
    sigemptyset(&waited_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
      if (!is_ignored(signal)) sigaddset(&waited_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &waited_, &before_);
  }
  ~BlockedSignals() {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& before() const noexcept { return before_; }

  /// Waits for a blocked signal, and returns it. Returns 0 after `milliseconds`.
  int wait(std::int64_t milliseconds) const noexcept {
    const timespec limit{milliseconds / 1000, static_cast<long>(milliseconds % 1000) * 1'000'000};
    const int signal = sigtimedwait(&waited_, nullptr, &limit);
    return signal > 0 ? signal : 0;
  }

 private:
  /// Returns true if the signal is ignored, as in a background job or under nohup. The ranks
  /// inherit this.
  static bool is_ignored(int signal) noexcept {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    return (signal == SIGINT || signal == SIGHUP) && action.sa_handler == SIG_IGN;
  }

  sigset_t waited_{};
  sigset_t before_{};
  struct sigaction child_before_ {};
};

/// The environment of this process with changes, as "NAME=value" strings.
class EnvironmentBlock {
 public:
  explicit EnvironmentBlock(const std::vector<std::pair<std::string, std::string>>& changes) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::string name = text.substr(0, text.find('='));
      const bool replaced = std::any_of(changes.begin(), changes.end(),
                                        [&](const auto& change) { return change.first == name; });
      if (!replaced) texts_.push_back(text);
    }
    for (const auto& [name, value] : changes) texts_.push_back(name + "=" + value);
    for (std::string& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  char** get() noexcept { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

/// The running ranks. The destructor kills them.
class Children {
 public:
  explicit Children(std::size_t num_ranks) : pids_(num_ranks, -1) {}
  ~Children() {
    signal_all(SIGKILL);
    for (const pid_t pid : pids_) {
      while (pid > 0 && ::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  void start(std::size_t rank, char* const* arguments, char* const* environment,
             const sigset_t& mask) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw_errno(errno, "cannot start a process", arguments[0]);
    if (pid == 0) {
      // Between fork and exec, only async-signal-safe calls are allowed.
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() != parent) ::_exit(127);
      ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
      ::execve(arguments[0], arguments, environment);
      ::_exit(127);
    }
    pids_[rank] = pid;
  }

  void signal_all(int signal) noexcept {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, signal);
    }
  }

  /// Reaps ranks that have ended. Calls `ended(rank, status)` for each.
  template <class Ended>
  void reap(Ended&& ended) {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] <= 0 || ::waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = -1;
      ended(rank, status);
    }
  }

  bool any() const noexcept {
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace

LocalRanksResult run_local_ranks(const LocalRanksOptions& options) {
  constexpr int kMaxRanks = 4096;
  if (options.num_ranks < 1 || options.num_ranks > kMaxRanks) {
    throw InvalidArgument("the number of local ranks is out of range",
                          std::to_string(options.num_ranks), "choose 1 to 4,096");
  }
  if (options.arguments.empty()) {
    throw InvalidArgument("there is no program to run as local ranks", "", "give its path");
  }
  const auto num_ranks = static_cast<std::size_t>(options.num_ranks);
  detail::require_distributed(options.num_ranks);
  const BlockedSignals signals;
  const std::string run = "local-" + shardwise::detail::random_key();

  std::vector<std::string> texts = options.arguments;
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);

  LocalRanksResult result;
  result.ranks.resize(num_ranks);
  Children children(num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    auto changes = options.environment;
    const std::string number = std::to_string(rank);
    const std::string count = std::to_string(num_ranks);
    changes.insert(changes.end(), {{"RANK", number},
                                   {"LOCAL_RANK", number},
                                   {"WORLD_SIZE", count},
                                   {"LOCAL_WORLD_SIZE", count},
                                   {"MASTER_ADDR", "127.0.0.1"},
                                   {"TORCHELASTIC_RUN_ID", run},
                                   {"TORCHELASTIC_RESTART_COUNT", "0"}});
    // This process may itself be a rank of a launcher. Remove that launcher's variables.
    for (const char* name :
         {"MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "GROUP_RANK", "GROUP_WORLD_SIZE"}) {
      changes.emplace_back(name, "");
    }
    EnvironmentBlock environment(changes);
    children.start(rank, arguments.data(), environment.get(), signals.before());
  }

  bool stopping = false;
  bool killed = false;
  std::optional<Clock::time_point> deadline;
  while (children.any()) {
    const int signal = signals.wait(stopping ? 50 : 1000);
    const bool was_stopping = stopping;
    children.reap([&](std::size_t rank, int status) {
      RankExit& end = result.ranks[rank];
      end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      end.stopped_by_us = was_stopping;
      if (end.exit_code != 0 && result.first_failed < 0) {
        result.first_failed = static_cast<int>(rank);
      }
    });
    if (signal != 0 && signal != SIGCHLD) {
      result.forwarded_signal = signal;
      children.signal_all(signal);
      stopping = true;
    } else if (result.first_failed >= 0 && !stopping) {
      children.signal_all(SIGTERM);
      stopping = true;
    }
    // Start the grace period only when a rank has failed: after a signal, all ranks may still be
    // writing a checkpoint. Once a rank has ended, the others need little time.
    if (result.first_failed >= 0 && !deadline) deadline = Clock::now() + options.grace;
    if (deadline && !killed && Clock::now() > *deadline) {
      children.signal_all(SIGKILL);
      killed = true;
    }
  }
  return result;
}

}  // namespace shardwise::libtorch::detail
