#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// Gives every rank the parameters and buffers of rank 0. Every rank must call it.
/// Errors: Mismatch, on every rank, if their names, types or shapes are not the same on all;
///   kDistributed.
SHARDWISE_EXPORT void broadcast_parameters(const torch::nn::Module& module,
                                           const ProcessGroup& group);

/// Makes the gradients those of the mean loss over all samples of a step on all ranks, however
/// unequally the ranks share them.
///
/// Before it, each rank's gradients are those of the *sum* of its samples' losses
/// (`Reduction::Sum`); a rank without samples calls it with num_samples 0 and no backward pass, and
/// counts as zeros. Afterwards the gradients of all ranks are the same bits: the sum over the ranks
/// divided by the number of samples.
/// Every rank must call it, with parameters of the same shapes.
/// @param num_samples  of this rank's step.
/// @return  the number of samples of all ranks; if it is 0, the gradients are zeros.
/// Shapes: any; float32 on the CPU is reduced as it is, other types and devices through float32.
/// Cost: one all-reduce of all gradients, in one buffer that is kept from call to call; the numbers
///   of samples go with its announcement.
class SHARDWISE_EXPORT GradientAverager {
 public:
  explicit GradientAverager(std::vector<torch::Tensor> parameters);

  std::int64_t average(std::int64_t num_samples, const ProcessGroup& group);

 private:
  std::vector<torch::Tensor> parameters_;
  torch::Tensor flat_;
};

}  // namespace shardwise::libtorch
