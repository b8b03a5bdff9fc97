#pragma once

#include <vector>

#include <torch/types.h>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch::detail {

/// The operations that the library needs of a c10d group. Each call waits for the other ranks.
/// Tensors must be contiguous, on a device that prepared() chose.
class Collectives {
 public:
  Collectives(bool takes_cpu, bool takes_gpu) : takes_cpu_(takes_cpu), takes_gpu_(takes_gpu) {}
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  /// Releases the group. Its connections end unless it has another owner. No call may follow.
  virtual void close() = 0;

  /// Returns the tensor itself if the group accepts it, else a copy that the group accepts.
  [[nodiscard]] torch::Tensor prepared(const torch::Tensor& tensor) const {
    if (tensor.is_cuda() ? takes_gpu_ : takes_cpu_ && tensor.device().is_cpu()) {
      return tensor.contiguous();
    }
    return tensor.to(takes_cpu_ ? torch::kCPU : torch::kCUDA).contiguous();
  }

  /// Returns each rank's tensor, by rank.
  virtual std::vector<torch::Tensor> all_gather(const torch::Tensor& input) = 0;
  virtual void all_reduce(const torch::Tensor& tensor, ProcessGroup::ReduceOp op) = 0;
  /// Accepts tensors of any type.
  virtual void broadcast(const torch::Tensor& tensor, int root) = 0;

 private:
  const bool takes_cpu_;
  const bool takes_gpu_;
};

}  // namespace shardwise::libtorch::detail
