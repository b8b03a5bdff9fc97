#include "storage/host_gate.h"

#include <algorithm>
#include <random>

#include "storage/backoff.h"
#include "storage/curl_pool.h"

namespace shardwise {
namespace {

using std::chrono::milliseconds;

/// A refusal this long after the end of the last pause is unrelated to earlier refusals.
constexpr std::chrono::minutes kForgotten{1};
constexpr std::chrono::hours kMaxPause{24 * 30};

}  // namespace

HostGate& HostGate::of_process() {
  // Never destroyed, because threads may fetch while the process ends.
  static auto* const gate = new HostGate;
  return *gate;
}

std::unique_ptr<HostGate::Turn> HostGate::admit(const std::string& origin, Host& host) {
  std::unique_ptr<Turn> turn(new Turn(*this, origin));
  ++host.num_open;
  return turn;
}

std::unique_ptr<HostGate::Turn> HostGate::try_enter(const std::string& origin, int max) {
  const Lock lock(mutex_);
  Host& host = hosts_.get()[origin];
  if (max > 0 && host.num_open >= max) return nullptr;
  if (host.num_refusals > 0) {
    const auto now = Clock::now();
    if (host.num_open == 0 && now > host.until + kForgotten) host.num_refusals = 0;
    const bool is_slow = host.num_refusals > 0;
    if (is_slow && (now < host.until || host.num_open >= host.max_open)) return nullptr;
  }
  return admit(origin, host);
}

std::unique_ptr<HostGate::Turn> HostGate::enter(const std::string& origin, int max,
                                                const Fetcher::Request& request,
                                                milliseconds max_pause) {
  const auto deadline = Clock::now() + max_pause;
  for (;;) {
    check_cancelled(request);
    if (auto turn = try_enter(origin, max)) return turn;
    const Lock lock(mutex_);
    Host& host = hosts_.get()[origin];
    const bool is_full = max > 0 && host.num_open >= max;
    if (!is_full && (host.num_refusals == 0 || Clock::now() >= deadline)) {
      return admit(origin, host);
    }
    left_.wait_for(mutex_, kCancelInterval);
  }
}

void HostGate::leave(const Turn& turn) noexcept {
  if (turn.generation_ != process_generation()) return;
  const Lock lock(mutex_);
  auto& hosts = hosts_.get();
  const auto place = hosts.find(turn.origin_);
  if (place == hosts.end()) return;
  if (--place->second.num_open == 0 && place->second.num_refusals == 0) hosts.erase(place);
  left_.notify_all();
}

void HostGate::Turn::refused(std::chrono::seconds pause, milliseconds base,
                             milliseconds max) const {
  const auto now = Clock::now();
  const Lock lock(gate_.mutex_);
  Host& host = gate_.hosts_.get()[origin_];
  // A request that was sent before the last refusal says nothing new.
  if (host.num_refusals == 0 || begin_ > host.since) {
    milliseconds ceiling = std::min(base, max);
    for (int i = 0; i < host.num_refusals && ceiling < max; ++i)
      ceiling = std::min(ceiling * 2, max);
    std::random_device random;
    const milliseconds chosen(std::uniform_int_distribution<milliseconds::rep>(
        ceiling.count() / 2, ceiling.count())(random));
    host.until = std::max(host.until, now + chosen);
    host.since = now;
    host.max_open = 1;
    ++host.num_refusals;
  }
  host.until = std::max<Clock::time_point>(host.until,
                                           now + std::min<std::chrono::seconds>(pause, kMaxPause));
}

void HostGate::Turn::accepted() const {
  const Lock lock(gate_.mutex_);
  Host& host = gate_.hosts_.get()[origin_];
  if (host.num_refusals == 0 || begin_ < host.since) return;
  host.num_refusals = 1;
  host.until = std::min(host.until, Clock::now());
  if (++host.max_open >= kMaxTransfersPerHost) host.num_refusals = 0;  // at full speed again
  gate_.left_.notify_all();
}

}  // namespace shardwise
