#include "storage/host_gate.h"

#include "storage/backoff.h"

namespace shardwise {

HostGate::Turn HostGate::enter(const std::string& origin, const Fetcher::Request& request) {
  for (bool is_in = max_ == 0; !is_in;) {
    check_cancelled(request);
    const Lock lock(mutex_);
    is_in = open_.get()[origin] < max_;
    if (is_in) {
      ++open_.get()[origin];
    } else {
      left_.wait(mutex_, request.cancel);
    }
  }
  return {*this, origin};
}

void HostGate::leave(const Turn& turn) noexcept {
  if (max_ == 0 || turn.generation_ != process_generation()) return;
  const Lock lock(mutex_);
  auto& open = open_.get();
  const auto place = open.find(turn.origin_);
  if (place != open.end() && --place->second == 0) open.erase(place);
  left_.notify_all();
}

}  // namespace shardwise
