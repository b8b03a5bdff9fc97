#pragma once

#include <vector>

#include <torch/types.h>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch::detail {

/// What the library asks of a group of c10d, whoever made it. Each call waits for the other ranks;
/// tensors are contiguous, and on a device that prepared() gave them.
class Collectives {
 public:
  Collectives(bool takes_cpu, bool takes_gpu) : takes_cpu_(takes_cpu), takes_gpu_(takes_gpu) {}
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

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
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& input) = 0;
  virtual void all_reduce(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) = 0;
  /// Of a tensor of any type.
  virtual void broadcast(const torch::Tensor& tensor, int root) = 0;

 private:
  const bool takes_cpu_;
  const bool takes_gpu_;
};

}  // namespace shardwise::libtorch::detail
