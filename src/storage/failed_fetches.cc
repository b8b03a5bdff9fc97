#include "storage/failed_fetches.h"

namespace shardwise::detail {

void FailedFetches::add(const std::string& name) {
  const Failure now{Clock::now(), std::current_exception()};
  // Destroy old errors without holding the mutex, because their destructors may be code of a user.
  std::map<std::string, Failure> old;
  const Lock lock(mutex_);
  for (auto at = by_name_.begin(); at != by_name_.end();) {
    const auto next = std::next(at);
    const bool is_old = at->first == name || now.when - at->second.when > retry_for_;
    if (is_old) old.insert(by_name_.extract(at));
    at = next;
  }
  by_name_[name] = now;
}

void FailedFetches::forget(const std::string& name) {
  std::map<std::string, Failure>::node_type old;  // destroyed after the mutex is released
  const Lock lock(mutex_);
  old = by_name_.extract(name);
}

std::optional<std::chrono::milliseconds> FailedFetches::retry_budget(
    const std::string& name) const {
  const Lock lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - found->second.when);
}

std::exception_ptr FailedFetches::since(Clock::time_point when, const std::string& name) const {
  const Lock lock(mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() || found->second.when < when ? nullptr : found->second.error;
}

}  // namespace shardwise::detail
