#include "storage/host_gate.h"

#include <chrono>

#include "storage/backoff.h"

namespace shardwise {
namespace {

/// How soon a cancelled request is noticed.
constexpr std::chrono::milliseconds kLookAgain{50};

}  // namespace

HostGate::Turn HostGate::enter(const std::string& origin, const Fetcher::Request& request) {
  for (bool is_in = most_ == 0; !is_in;) {
    check_cancelled(request);
    const Lock lock(mutex_);
    is_in = open_.get()[origin] < most_;
    if (is_in) {
      ++open_.get()[origin];
    } else {
      left_.wait_for(mutex_, kLookAgain);
    }
  }
  return {*this, origin};
}

void HostGate::leave(const Turn& turn) noexcept {
  if (most_ == 0 || turn.generation_ != process_generation()) return;
  const Lock lock(mutex_);
  auto& open = open_.get();
  const auto place = open.find(turn.origin_);
  if (place != open.end() && --place->second == 0) open.erase(place);
  left_.notify_all();
}

}  // namespace shardwise
