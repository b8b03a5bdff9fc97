#pragma once

#ifdef SHARDWISE_HAVE_C10D

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "libtorch/collectives.h"

namespace shardwise::libtorch::detail {

/// Returns true if a group accepts tensors on this type of device. LibTorch 2 reports this; in
/// LibTorch 1 it follows from the name of the backend.
template <class Group>
bool takes(const Group& group, c10::DeviceType type) {
  if constexpr (requires { group.getDeviceTypes(); }) {
    const auto devices = group.getDeviceTypes();
    for (const auto& device : devices) {
      if (device.type() == type) return true;
    }
    if (!devices.empty()) return false;
  }
  const std::string name = group.getBackendName();
  const bool on_gpu = name == "nccl" || name == "ucc";
  return type == c10::kCUDA ? on_gpu : name != "nccl";
}

/// Base class of a group: c10d::ProcessGroup, or c10d::Backend in LibTorch 2.
template <class Group>
using BaseOf = std::conditional_t<std::is_convertible_v<Group*, c10d::ProcessGroup*>,
                                  c10d::ProcessGroup, c10d::Backend>;

/// Collectives over a c10d group.
/// @tparam Group  c10d::ProcessGroup or c10d::Backend, see BaseOf.
template <class Group>
class CollectivesOf : public Collectives {
 public:
  /// @param owner  keeps the group alive.
  CollectivesOf(Group* group, std::shared_ptr<void> owner, std::chrono::milliseconds timeout)
      : Collectives(takes(*group, c10::kCPU), takes(*group, c10::kCUDA)),
        timeout_(timeout),
        owner_(std::move(owner)),
        group_(*group) {}

  void close() override { owner_.reset(); }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& input) override {
    std::vector<torch::Tensor> inputs = {input};
    std::vector<std::vector<torch::Tensor>> outputs(1);
    for (int rank = 0; rank < group_.getSize(); ++rank) {
      outputs[0].push_back(torch::empty_like(input));
    }
    c10d::AllgatherOptions options;
    options.timeout = timeout_;
    group_.allgather(outputs, inputs, options)->wait();
    return outputs[0];
  }
  void all_reduce(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) override {
    using Op = ProcessGroup::ReduceOp;
    std::vector<torch::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = op == Op::kMin   ? c10d::ReduceOp::MIN
                       : op == Op::kMax ? c10d::ReduceOp::MAX
                                        : c10d::ReduceOp::SUM;
    options.timeout = timeout_;
    group_.allreduce(tensors, options)->wait();
  }
  void broadcast(const torch::Tensor& tensor, int root) override {
    // Send bytes, because not every backend supports every type: Gloo of LibTorch 1.13 lacks
    // bfloat16 and int16.
    std::vector<torch::Tensor> tensors = {tensor.view({-1}).view(torch::kUInt8)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout_;
    group_.broadcast(tensors, options)->wait();
  }

 protected:
  [[nodiscard]] Group& group() const noexcept { return group_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

 private:
  const std::chrono::milliseconds timeout_;
  std::shared_ptr<void> owner_;
  Group& group_;
};

}  // namespace shardwise::libtorch::detail

#endif
