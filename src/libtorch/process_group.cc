#include "shardwise/libtorch/process_group.h"

#include <torch/torch.h>
#include <torch/version.h>

#include <utility>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "libtorch/group_access.h"
#include "libtorch/reduction.h"

namespace shardwise::libtorch {

ProcessGroup::ProcessGroup() : ProcessGroup(GroupAccess::alone(nullptr)) {}

int ProcessGroup::rank() const noexcept { return calls_->environment().rank; }
int ProcessGroup::world_size() const noexcept { return calls_->environment().world_size; }
int ProcessGroup::local_rank() const noexcept { return calls_->environment().local_rank; }
int ProcessGroup::local_world_size() const noexcept {
  return calls_->environment().local_world_size;
}

void ProcessGroup::all_reduce(const torch::Tensor& tensor, ReduceOp op) const {
  detail::require_reducible(tensor, op);
  calls_->reduce("all_reduce", tensor, op);
}

std::int64_t ProcessGroup::all_reduce(std::int64_t value, ReduceOp op) const {
  const auto tensor = torch::full({1}, value, torch::kInt64);
  all_reduce(tensor, op);
  return tensor.item<std::int64_t>();
}

double ProcessGroup::all_reduce(double value, ReduceOp op) const {
  const auto tensor = torch::full({1}, value, torch::kFloat64);
  all_reduce(tensor, op);
  return tensor.item<double>();
}

void ProcessGroup::broadcast(const torch::Tensor& tensor, int root) const {
  if (root < 0 || root >= world_size()) {
    throw OutOfRange("no such rank", std::to_string(root),
                     "choose a rank from 0 to " + std::to_string(world_size() - 1));
  }
  calls_->broadcast(tensor, root);
}

void ProcessGroup::barrier() const { calls_->barrier(); }

void ProcessGroup::require_same(
    const std::vector<std::pair<std::string, std::string>>& record) const {
  calls_->require_same(record);
}

ProcessGroup GroupAccess::alone(std::shared_ptr<StopState> stop) {
  return ProcessGroup(
      std::make_shared<detail::AgreedCalls>(detail::Peers(), nullptr, std::move(stop)));
}

Record detail::versions(bool has_guard) {
  return {{"version of shardwise", SHARDWISE_VERSION},
          {"version of LibTorch", TORCH_VERSION},
          {"StopGuard", has_guard ? "given" : "not given"}};
}

ProcessGroup init_process_group(const ProcessGroup::Options& options) {
  return GroupAccess::join(options.guard, [&](std::shared_ptr<StopState> stop) {
    const RankEnvironment ranks = rank_environment();
    if (!stop) return detail::connect(ranks, options, nullptr);
    const shardwise::detail::CancelScope scope(stop->flag());
    ProcessGroup::Options joined = options;
    joined.cancel = shardwise::detail::CancelScope::joined(options.cancel);
    return detail::connect(ranks, joined, std::move(stop));
  });
}

}  // namespace shardwise::libtorch
