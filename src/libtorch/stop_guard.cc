#include "shardwise/libtorch/stop_guard.h"

#include <exception>
#include <utility>

#include "base/error_types.h"
#include "libtorch/group_access.h"
#include "libtorch/stop_state.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return detail::text_of(e);
  } catch (...) {
    return "an exception other than std::exception was thrown";
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
        handlers(state->note(), options.signals),
        group(GroupAccess::alone(state)) {}

  /// Runs `work`, and agrees with the other ranks on the result.
  /// @return  this rank's own error, or null.
  std::exception_ptr finish(const std::function<void()>& work) {
    try {
      work();
      calls().end_run();
      return nullptr;
    } catch (...) {
      return give_up(std::current_exception());
    }
  }

  /// Informs the other ranks, except if this error came from them.
  std::exception_ptr give_up(const std::exception_ptr& error) {
    calls().queue().drain();  // gradient buckets are pending if a backward pass threw
    if (state->is_closed()) return nullptr;
    if (!calls().is_usable()) std::rethrow_exception(error);
    const bool is_stop = is_cancelled(error) && (state->own() || state->agreed());
    if (!is_stop) state->fail(text_of(error));
    try {
      calls().give_up();
    } catch (...) {
      if (is_stop) throw;
      std::rethrow_exception(error);  // this error says more than "the other ranks are lost"
    }
    return is_stop ? nullptr : error;
  }

  /// If this process is alone, adopts its own word. Several ranks exchange words in their calls.
  void hear() {
    state->happen(StopEvent::kWentOn);
    if (!calls().is_alone()) return;
    state->agree(state->own());
    if (state->is_save_due()) state->agree_on_save();
  }

  detail::AgreedCalls& calls() const { return GroupAccess::calls(group); }

  const std::shared_ptr<StopState> state;
  const detail::SignalHandlers handlers;
  ProcessGroup group;  // of this process alone until init_process_group()
  bool has_group = false;
};

StopGuard::StopGuard() : StopGuard(Options{}) {}
StopGuard::StopGuard(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
StopGuard::~StopGuard() = default;

void StopGuard::request(const std::string& reason) { impl_->state->ask(reason); }

bool StopGuard::should_stop() {
  impl_->hear();
  return bool{impl_->state->agreed()};
}

bool StopGuard::should_save() {
  impl_->hear();
  return impl_->state->take_save();
}

void StopGuard::run(const std::function<void()>& work, const std::function<void()>& save) {
  StopState& state = *impl_->state;
  const std::exception_ptr error = impl_->finish(work);
  const StopWord agreed = state.agreed();
  if (!agreed) return;
  state.happen(StopEvent::kLeft);
  std::exception_ptr not_saved;
  if (save && state.can_save()) {
    try {
      save();
    } catch (...) {
      not_saved = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  if (agreed.level == StopLevel::kFailed) {
    throw Error(ErrorCode::kDistributed, "a rank failed", agreed.reason,
                not_saved          ? "no checkpoint was written: " + text_of(not_saved)
                : state.can_save() ? "fix the cause, then start all ranks again"
                                   : "start all ranks again; no checkpoint was written, because "
                                     "rank 0 may have updated only some parameters");
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
    StopGuard* guard,
    const std::function<std::shared_ptr<detail::AgreedCalls>(std::shared_ptr<StopState>)>& make) {
  if (guard == nullptr) return ProcessGroup(make(nullptr));
  StopGuard::Impl& impl = *guard->impl_;
  if (impl.has_group) {
    throw InvalidArgument("the StopGuard already has a group",
                          "rank " + std::to_string(impl.group.rank()) + " of " +
                              std::to_string(impl.group.world_size()),
                          "give the StopGuard only to the group of all ranks");
  }
  impl.group = ProcessGroup(make(impl.state));
  impl.has_group = true;
  return impl.group;
}

}  // namespace shardwise::libtorch
