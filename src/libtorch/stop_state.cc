#include "libtorch/stop_state.h"

#include <array>
#include <csignal>
#include <utility>

#include "base/text.h"

namespace shardwise::libtorch::detail {
namespace {

std::string name_of_signal(int signal) {
  constexpr std::array<std::pair<int, const char*>, 5> kNames = {{{SIGINT, "SIGINT"},
                                                                  {SIGTERM, "SIGTERM"},
                                                                  {SIGHUP, "SIGHUP"},
                                                                  {SIGUSR1, "SIGUSR1"},
                                                                  {SIGUSR2, "SIGUSR2"}}};
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return "signal " + std::to_string(signal);
}

std::atomic<bool> steps_are_counted{false};  // whether this process counts steps

std::string time_text(std::chrono::milliseconds time) {
  constexpr std::int64_t kMinute = 60'000;
  if (time.count() % kMinute == 0) return std::to_string(time.count() / kMinute) + " min";
  return std::to_string(time.count()) + " ms";
}

}  // namespace

StopState::StopState(std::chrono::milliseconds max_time, std::chrono::milliseconds save_every)
    : max_time_(max_time),
      deadline_(max_time.count() > 0 ? std::optional(Clock::now() + max_time) : std::nullopt),
      save_every_(save_every),
      last_save_(Clock::now()) {}

void StopState::ask(const std::string& reason) {
  const Lock lock(mutex_);
  if (asked_.load() != StopLevel::kGoOn) return;
  reason_ = escaped(reason);
  asked_ = StopLevel::kAsked;
}

void StopState::fail(const std::string& reason) {
  const Lock lock(mutex_);
  reason_ = escaped(reason);
  asked_ = StopLevel::kFailed;
}

StopWord StopState::own() const {
  {
    const Lock lock(mutex_);
    if (asked_.load() == StopLevel::kFailed) return {StopLevel::kFailed, 1, reason_};
  }
  if (const int signal = note_.signal.load(); signal != 0) {
    return {StopLevel::kSignal, static_cast<std::uint8_t>(128 + signal), name_of_signal(signal)};
  }
  {
    const Lock lock(mutex_);
    if (asked_.load() == StopLevel::kAsked) return {StopLevel::kAsked, 0, reason_};
  }
  if (is_late())
    return {StopLevel::kAsked, 0, "the time limit of " + time_text(max_time_) + " has passed"};
  return {};
}

bool StopState::wants_to_stop_at_once() const noexcept {
  return note_.signal.load(std::memory_order_relaxed) != 0 || asked_.load() >= StopLevel::kSignal;
}

bool StopState::is_save_due() const noexcept {
  return save_every_.count() > 0 && Clock::now() - last_save_ >= save_every_;
}

bool StopState::take_save() noexcept {
  if (!saves_) return false;
  saves_ = false;
  last_save_ = Clock::now();
  return true;
}

void StopState::count_steps() noexcept { steps_are_counted = true; }
bool StopState::counts_steps() noexcept { return steps_are_counted; }

void StopState::agree(const StopWord& word) {
  if (word.level > agreed_.level) agreed_ = word;
}

void StopState::happen(StopEvent event) noexcept {
  using P = StopPhase;
  constexpr std::size_t kEvents = 5;
  constexpr std::array<std::array<P, kEvents>, 6> kNext = {{
      // kAveraged, kWentOn, kGaveUp, kTore, kLeft
      {P::kUpdating, P::kComputing, P::kGivenUp, P::kTorn, P::kComputing},   // kComputing
      {P::kUpdating, P::kComputing, P::kGivenUp, P::kTorn, P::kUpdating},    // kUpdating
      {P::kGivenUp, P::kGivenUp, P::kGivenUp, P::kTorn, P::kTakenBack},      // kGivenUp
      {P::kTorn, P::kTorn, P::kTorn, P::kTorn, P::kSpoiled},                 // kTorn
      {P::kTakenBack, P::kTakenBack, P::kGivenUp, P::kTorn, P::kTakenBack},  // kTakenBack
      {P::kSpoiled, P::kSpoiled, P::kTorn, P::kTorn, P::kSpoiled},           // kSpoiled
  }};
  phase_ = kNext[static_cast<std::size_t>(phase_)][static_cast<std::size_t>(event)];
  if (event == StopEvent::kAveraged) ++num_whole_steps_;
}

}  // namespace shardwise::libtorch::detail
