#include "shardwise/libtorch/stop_guard.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <exception>
#include <optional>
#include <utility>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "base/rank_environment.h"
#include "libtorch/group_access.h"
#include "libtorch/stop_state.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch {
namespace {

using shardwise::libtorch::detail::FirstPress;
using shardwise::libtorch::detail::SignalNote;

/// Where handlers write: that of the guard of this process.
std::atomic<SignalNote*> current_note{nullptr};
static_assert(std::atomic<SignalNote*>::is_always_lock_free);

std::int64_t now_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// A press of Ctrl-C reaches a rank from the terminal and again from its launcher: this is one. The
/// next one comes from the same sender, or later; what launchers pass on may take any time.
/// `timeout` signals its child, and then the child's group: this is one, too.
bool is_second(FirstPress& press, int sender) noexcept {
  constexpr std::int64_t kOnePress = 1000;  // ms
  if (!press.is_there.exchange(true)) {
    press.sender = sender;
    press.time_ms = now_ms();
    return false;
  }
  const int first = press.sender.load();
  if (sender == first) return now_ms() - press.time_ms.load() > kOnePress;
  const int launcher = ::getppid();
  return sender != launcher && first != launcher && now_ms() - press.time_ms.load() > kOnePress;
}

bool is_second(SignalNote& note, int signal, int sender) noexcept {
  if (signal == SIGINT) return is_second(note.interrupt, sender);
  return signal == SIGTERM && is_second(note.terminate, sender);
}

/// Calls only what is safe in a handler.
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

/// Handlers for some signals while it lives.
class Handlers {
 public:
  explicit Handlers(const std::vector<int>& signals) {
    for (const int signal : signals) {
      struct sigaction action {};
      action.sa_sigaction = shardwise_note_signal;
      action.sa_flags = SA_SIGINFO | SA_RESTART;
      sigfillset(&action.sa_mask);
      struct sigaction before {};
      if (::sigaction(signal, &action, &before) != 0) {
        restore();
        throw InvalidArgument("a signal cannot be handled", std::to_string(signal),
                              "give such as SIGINT, SIGTERM, SIGUSR1 and SIGUSR2");
      }
      before_.emplace_back(signal, before);
      // A job in the background, or under nohup, is not to hear of its terminal.
      const bool is_of_terminal = signal == SIGINT || signal == SIGHUP;
      if (is_of_terminal && before.sa_handler == SIG_IGN) ::sigaction(signal, &before, nullptr);
    }
    ignore_broken_pipes();
  }
  ~Handlers() { restore(); }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

 private:
  /// A rank that hung and was given up writes to closed connections when it wakes: that is to be
  /// an error with a text, not a silent end.
  void ignore_broken_pipes() {
    struct sigaction before {};
    ::sigaction(SIGPIPE, nullptr, &before);
    if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return;
    struct sigaction action {};
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
    before_.emplace_back(SIGPIPE, before);
  }

  void restore() noexcept {
    for (auto it = before_.rbegin(); it != before_.rend(); ++it) {
      ::sigaction(it->first, &it->second, nullptr);
    }
  }

  std::vector<std::pair<int, struct sigaction>> before_;
};

/// The note of the one guard.
class CurrentNote {
 public:
  explicit CurrentNote(SignalNote& note) {
    SignalNote* none = nullptr;
    if (current_note.compare_exchange_strong(none, &note)) return;
    throw InvalidArgument("there is a StopGuard already", "this process", "make one of them");
  }
  ~CurrentNote() { current_note = nullptr; }
  CurrentNote(const CurrentNote&) = delete;
  CurrentNote& operator=(const CurrentNote&) = delete;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "something that is no std::exception was thrown";
  }
}

bool is_cancelled(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Cancelled&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

struct StopGuard::Impl {
  explicit Impl(const Options& options)
      : state(std::make_shared<StopState>(options.max_time, options.save_every)),
        note(state->note()),
        handlers(options.signals) {}

  /// What became of run(), once all ranks know it.
  struct Outcome {
    std::exception_ptr error;  // of this rank's own
  };

  /// Runs `work`, and agrees with the other ranks on how it ended.
  Outcome finish(const std::function<void()>& work) {
    try {
      work();
      if (is_alone()) {
        state->agree(state->own());
      } else {
        GroupAccess::end_run(group);
      }
      return {};
    } catch (...) {
      return give_up(std::current_exception());
    }
  }

  /// Tells the other ranks, unless it heard it from them.
  Outcome give_up(const std::exception_ptr& error) {
    GroupAccess::end_queued(group);  // buckets on their way, if a backward pass threw
    if (state->is_closed()) return {};
    if (!GroupAccess::is_usable(group)) std::rethrow_exception(error);
    const bool is_stop = is_cancelled(error) && (state->own() || state->agreed());
    if (!is_stop) state->fail(text_of(error));
    try {
      if (is_alone()) {
        state->agree(state->own());
        state->close(!state->updates());
      } else {
        GroupAccess::give_up(group);
      }
    } catch (...) {
      if (is_stop) throw;
      std::rethrow_exception(error);  // it says more than that the others are gone, too
    }
    return {is_stop ? nullptr : error};
  }

  bool is_alone() const noexcept { return group.world_size() == 1; }

  const std::shared_ptr<StopState> state;
  const CurrentNote note;
  const Handlers handlers;
  ProcessGroup group;  // this process alone, until init_process_group()
  bool has_group = false;
};

StopGuard::StopGuard() : StopGuard(Options{}) {}
StopGuard::StopGuard(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
StopGuard::~StopGuard() = default;

void StopGuard::request(const std::string& reason) { impl_->state->ask(reason); }

bool StopGuard::should_stop() {
  StopState& state = *impl_->state;
  state.end_update();
  if (impl_->is_alone()) state.agree(state.own());
  return bool{state.agreed()};
}

bool StopGuard::should_save() {
  StopState& state = *impl_->state;
  if (impl_->is_alone() && state.is_save_due()) state.agree_on_save();
  return state.take_save();
}

void StopGuard::run(const std::function<void()>& work, const std::function<void()>& save) {
  StopState& state = *impl_->state;
  const Impl::Outcome outcome = impl_->finish(work);
  const StopWord agreed = state.agreed();
  if (!agreed) return;
  state.reopen();
  std::exception_ptr not_saved;
  if (save && state.can_save()) {
    try {
      save();
    } catch (...) {
      not_saved = std::current_exception();
    }
  }
  if (outcome.error) std::rethrow_exception(outcome.error);
  if (agreed.level == StopLevel::kFailed) {
    throw Error(ErrorCode::kDistributed, "a rank failed", agreed.reason,
                not_saved          ? "no checkpoint was written: " + text_of(not_saved)
                : state.can_save() ? "mend that, and start all ranks again"
                                   : "no checkpoint was written, since rank 0 may have changed "
                                     "a part of the parameters only; start all ranks again");
  }
  if (not_saved) std::rethrow_exception(not_saved);
}

std::string StopGuard::reason() const { return impl_->state->agreed().reason; }

int StopGuard::exit_code() const {
  const StopWord& agreed = impl_->state->agreed();
  return agreed ? agreed.exit_code : impl_->state->own().exit_code;
}

CancelToken StopGuard::token() const noexcept {
  return {std::shared_ptr<const CancelToken::Flag>(impl_->state, &impl_->state->flag())};
}

ProcessGroup GroupAccess::join(
    StopGuard& guard,
    const std::function<ProcessGroup(const std::shared_ptr<StopState>& state)>& make) {
  StopGuard::Impl& impl = *guard.impl_;
  if (impl.has_group) {
    throw InvalidArgument("the StopGuard has a group already",
                          "rank " + std::to_string(impl.group.rank()) + " of " +
                              std::to_string(impl.group.world_size()),
                          "give it to the group of all ranks only");
  }
  impl.group = make(impl.state);
  impl.has_group = true;
  return impl.group;
}

ProcessGroup init_process_group(const ProcessGroup::Options& options) {
  const RankEnvironment ranks = rank_environment();
  if (options.guard == nullptr) return ProcessGroup::connect(ranks, options, nullptr);
  return GroupAccess::join(*options.guard, [&](const std::shared_ptr<StopState>& state) {
    const shardwise::detail::CancelScope scope(state->flag());
    ProcessGroup::Options joined = options;
    joined.cancel = shardwise::detail::CancelScope::joined(options.cancel);
    return ProcessGroup::connect(ranks, joined, state);
  });
}

}  // namespace shardwise::libtorch
