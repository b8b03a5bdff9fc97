#include "data/shard_future.h"
#include "storage/cache_request.h"

namespace shardwise::detail {

void ShardFuture::reach(std::uint64_t slot, bool tells) noexcept {
  std::uint64_t before = now_.load(std::memory_order_relaxed);
  do {
    if (slot <= before) return;
  } while (!now_.compare_exchange_weak(before, slot, std::memory_order_relaxed));
  if (tells) user_->reach(slot);
}

NextUse ShardFuture::next_use(const std::string& name, std::uint64_t slot) const {
  return user_->joint(own_next_use(name, slot), name, slot);
}

NextUse ShardFuture::own_next_use(const std::string& name, std::uint64_t slot) const {
  const auto found = names_->find(name);
  if (found == names_->end()) return {};
  if (uses_.in_use_until(found->second, slot)) return {.kind = NextUse::Kind::kInUse};
  const std::uint64_t reached = now();
  const auto soonest = uses_.next(found->second, reached);
  const bool may_go_now = !soonest || *soonest >= slot;
  const auto next = uses_.next(found->second, slot);
  return {.kind = next ? NextUse::Kind::kAt : NextUse::Kind::kNever,
          .position = next.value_or(0),
          .shard = found->second,
          .may_go_now = may_go_now};
}

NextUse ShardFuture::next_use_for(std::uint64_t shard, const std::string& name) const {
  const std::uint64_t reached = now();
  return next_use(name, uses_.next(shard, reached).value_or(reached));
}

}  // namespace shardwise::detail
