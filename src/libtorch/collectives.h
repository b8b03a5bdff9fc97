#pragma once

#ifdef SHARDWISE_HAVE_C10D

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shardwise::libtorch::detail {

/// What the library asks of a group of c10d, whoever made it, and whichever of c10d's two classes
/// of groups it is. Each call waits for the other ranks; tensors are contiguous, and on a device
/// that prepared() gave them.
class Collectives {
 public:
  Collectives(bool takes_cpu, bool takes_gpu) : takes_cpu_(takes_cpu), takes_gpu_(takes_gpu) {}
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Lets go of the group, whose connections end if nobody else holds it. No call may follow.
  virtual void close() = 0;

  /// The tensor itself, if the group can take it, or a copy that it can.
  [[nodiscard]] torch::Tensor prepared(const torch::Tensor& tensor) const {
    if (tensor.is_cuda() ? takes_gpu_ : takes_cpu_ && tensor.device().is_cpu()) {
      return tensor.contiguous();
    }
    return tensor.to(takes_cpu_ ? torch::kCPU : torch::kCUDA).contiguous();
  }

  /// Each rank's tensor.
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& input,
                                                std::chrono::milliseconds timeout) = 0;
  virtual void all_reduce(std::vector<torch::Tensor>& tensors, c10d::ReduceOp op,
                          std::chrono::milliseconds timeout) = 0;
  /// Of a tensor of any type.
  virtual void broadcast(const torch::Tensor& tensor, int root,
                         std::chrono::milliseconds timeout) = 0;

 private:
  const bool takes_cpu_;
  const bool takes_gpu_;
};

/// Whether a group takes tensors on the CPU (or on a GPU): groups of LibTorch 2 say so, others are
/// known by the name of their backend.
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

/// @tparam Group  c10d::ProcessGroup, or c10d::Backend of LibTorch 2.
template <class Group>
class CollectivesOf final : public Collectives {
 public:
  /// @param owner  keeps the group.
  CollectivesOf(Group* group, std::shared_ptr<void> owner)
      : Collectives(takes(*group, c10::kCPU), takes(*group, c10::kCUDA)),
        owner_(std::move(owner)),
        group_(*group) {}

  [[nodiscard]] int rank() const override { return group_.getRank(); }
  [[nodiscard]] int size() const override { return group_.getSize(); }
  void close() override { owner_.reset(); }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& input,
                                        std::chrono::milliseconds timeout) override {
    std::vector<torch::Tensor> inputs = {input};
    std::vector<std::vector<torch::Tensor>> outputs(1);
    for (int rank = 0; rank < size(); ++rank) outputs[0].push_back(torch::empty_like(input));
    c10d::AllgatherOptions options;
    options.timeout = timeout;
    group_.allgather(outputs, inputs, options)->wait();
    return outputs[0];
  }
  void all_reduce(std::vector<torch::Tensor>& tensors, c10d::ReduceOp op,
                  std::chrono::milliseconds timeout) override {
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    options.timeout = timeout;
    group_.allreduce(tensors, options)->wait();
  }
  void broadcast(const torch::Tensor& tensor, int root,
                 std::chrono::milliseconds timeout) override {
    // As bytes: backends lack types, as Gloo of LibTorch 1.13 bfloat16 and int16.
    std::vector<torch::Tensor> tensors = {tensor.view({-1}).view(torch::kUInt8)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout;
    group_.broadcast(tensors, options)->wait();
  }

 private:
  std::shared_ptr<void> owner_;
  Group& group_;
};

}  // namespace shardwise::libtorch::detail

#endif
