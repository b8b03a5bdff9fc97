// Adopts c10d groups that the program has made.
#include "shardwise/libtorch/adopt.h"

#include <utility>

#include "base/error_types.h"
#include "libtorch/c10d_collectives.h"
#include "libtorch/group_access.h"
#include "shardwise/base/error.h"

namespace shardwise::libtorch::detail {

#ifdef SHARDWISE_HAVE_C10D

namespace {

template <class Group>
ProcessGroup adopt_any(Group* group, std::shared_ptr<void> owner, StopGuard* guard) {
  return GroupAccess::join(guard, [&](std::shared_ptr<StopState> stop) {
    Peers peers;
    peers.environment.rank = group->getRank();
    peers.environment.world_size = group->getSize();
    peers.environment.launcher = "a group of the program";
    std::unique_ptr<Collectives> collectives;
    if (group->getSize() > 1) {
      collectives =
          std::make_unique<CollectivesOf<Group>>(group, std::move(owner), c10d::kUnsetTimeout);
    }
    auto calls = std::make_shared<AgreedCalls>(std::move(peers), std::move(collectives), nullptr);
    calls->require_same(versions(stop != nullptr));
    calls->introduce();
    calls->set_stop(std::move(stop));
    return calls;
  });
}

}  // namespace

ProcessGroup adopt(c10d::ProcessGroup* group, std::shared_ptr<void> owner, StopGuard* guard) {
  return adopt_any(group, std::move(owner), guard);
}

ProcessGroup adopt(c10d::Backend* group, std::shared_ptr<void> owner, StopGuard* guard) {
  return adopt_any(group, std::move(owner), guard);
}

#else

namespace {

[[noreturn]] void throw_no_c10d() {
  throw Error(ErrorCode::kDistributed, "this build does not support c10d process groups",
              "adopt_process_group()", "build Shardwise with a LibTorch that has c10d's headers");
}

}  // namespace

ProcessGroup adopt(c10d::ProcessGroup*, std::shared_ptr<void>, StopGuard*) { throw_no_c10d(); }

ProcessGroup adopt(c10d::Backend*, std::shared_ptr<void>, StopGuard*) { throw_no_c10d(); }

#endif

}  // namespace shardwise::libtorch::detail
