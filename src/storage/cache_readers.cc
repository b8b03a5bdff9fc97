#include "storage/cache_readers.h"

#include <algorithm>

namespace shardwise::detail {

std::unique_ptr<LiveCount::Slot> LiveCount::add_up_to(std::uint64_t max) {
  const Lock lock(mutex_);
  if (number_.get() >= max) return nullptr;
  auto slot = std::make_unique<Slot>(*this);
  ++number_.get();
  return slot;
}

bool LiveCount::is_zero() const {
  const Lock lock(mutex_);
  return number_.get() == 0;
}

void CacheReaders::add_releaser(std::weak_ptr<void> owner, CacheAccess::Releaser releaser) {
  const Lock lock(mutex_);
  releasers_.push_back({std::move(owner), std::move(releaser)});
}

std::vector<std::pair<std::shared_ptr<void>, CacheAccess::Releaser>> CacheReaders::living() {
  std::vector<std::pair<std::shared_ptr<void>, CacheAccess::Releaser>> all;
  const Lock lock(mutex_);
  std::erase_if(releasers_, [](const Owned& r) { return r.owner.expired(); });
  for (const Owned& r : releasers_) {
    if (auto owner = r.owner.lock()) all.emplace_back(std::move(owner), r.ask);
  }
  return all;
}

bool CacheReaders::ask_to_release(const std::string& name) {
  bool released = false;
  for (const auto& [owner, ask] : living()) released |= ask.release(name);
  return released;
}

bool CacheReaders::is_in_use(const std::string& name) {
  const auto all = living();
  return std::any_of(all.begin(), all.end(), [&](const auto& reader) {
    return reader.second.is_in_use && reader.second.is_in_use(name);
  });
}

std::shared_ptr<ComingShard> CacheReaders::begin_coming(const std::string& name) {
  auto shard = std::make_shared<ComingShard>();
  const Lock lock(mutex_);
  auto& all = coming_.get();
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  all[name] = shard;
  return shard;
}

std::shared_ptr<ComingShard> CacheReaders::find_coming(const std::string& name) const {
  const Lock lock(mutex_);
  const auto& all = coming_.get();
  const auto found = all.find(name);
  auto shard = found == all.end() ? nullptr : found->second.lock();
  return shard && !shard->is_over() ? shard : nullptr;
}

}  // namespace shardwise::detail
