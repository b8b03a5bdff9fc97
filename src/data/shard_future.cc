#include "data/shard_future.h"
#include "storage/cache_request.h"

namespace shardwise::detail {

NextUse ShardFuture::next_use(const std::string& name, std::uint64_t slot) const {
  const NextUse mine = own_next_use(name, slot);
  return user_ ? user_->joint(mine, name, slot) : mine;
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
