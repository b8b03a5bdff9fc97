// How a dataset learns which shards it will need, and posts them to other users of its cache.
#include "data/dataset_access.h"
#include "data/dataset_impl.h"

namespace shardwise {

std::shared_ptr<const detail::ShardFuture> Dataset::Impl::current_future() const {
  const Lock lock(mutex);
  return future;
}

NextUseOf Dataset::Impl::next_use_of(std::uint64_t number) {
  if (const auto known = current_future()) {
    return [known, number](const std::string& name) { return known->next_use_for(number, name); };
  }
  if (cache->is_read_only()) return nullptr;
  // This dataset's future uses are unknown, so only the uses that other users have posted count.
  return
      [user = require_unknown_user()](const std::string& name) { return user->joint({}, name, 0); };
}

std::uint64_t Dataset::Impl::num_cache_users(const detail::ShardFuture* known) {
  return (known ? known->user().num_others() : require_unknown_user()->num_others()) + 1;
}

std::shared_ptr<detail::CacheUser> Dataset::Impl::require_unknown_user() {
  // In a forked child, `unknown_user` may be the parent's, and its file belongs to the parent.
  // Destroy it after the mutex is released.
  std::shared_ptr<detail::CacheUser> before;
  {
    const Lock lock(mutex);
    if (unknown_user && unknown_process == process_generation()) return unknown_user;
  }
  auto user = std::make_shared<detail::CacheUser>(
      cache->options().directory, std::vector<detail::PostedUse>(),
      detail::UserPace{.began_ns = detail::monotonic_ns()});
  const Lock lock(mutex);
  before = std::exchange(unknown_user, user);
  unknown_process = process_generation();
  return user;
}

void detail::DatasetAccess::follow(const Dataset& data, std::shared_ptr<const ShardFuture> future) {
  // Destroy this user after the mutex is released, because its destructor removes a file.
  std::shared_ptr<CacheUser> unknown;
  const Lock lock(data.impl_->mutex);
  unknown = std::move(data.impl_->unknown_user);
  data.impl_->future = std::move(future);
}

void detail::DatasetAccess::unfollow(const Dataset& data, const ShardFuture* future) {
  // Destroy this future after the mutex is released, because its destructor removes a file.
  std::shared_ptr<const ShardFuture> gone;
  const Lock lock(data.impl_->mutex);
  if (data.impl_->future.get() == future) gone = std::move(data.impl_->future);
}

}  // namespace shardwise
