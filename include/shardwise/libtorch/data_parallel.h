#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// Copies the parameters and buffers of rank 0 to every rank. Every rank must call it.
/// Errors: Mismatch, on every rank, if names, types or shapes differ between ranks. kDistributed.
SHARDWISE_EXPORT void broadcast_parameters(const torch::nn::Module& module,
                                           const ProcessGroup& group);

/// Proves that the parameters and buffers of all ranks are bitwise equal, as data parallel training
/// requires. Call it at the end of an epoch, before you write a checkpoint. Every rank must call
/// it. Buffers that each rank computes by itself, e.g. of batch normalisation, are equal only after
/// average_buffers().
/// Cost: one XXH3 hash of the module's bytes, and one exchange of 16 bytes. Tensors on other
///   devices are copied to the CPU. If ranks differ, further exchanges find the tensors.
/// Errors: Mismatch, on every rank, naming the first tensors that differ, and the ranks that have
///   equal values of them. kDistributed.
SHARDWISE_EXPORT void require_same_replicas(const torch::nn::Module& module,
                                            const ProcessGroup& group);

/// Makes the buffers of all ranks equal. Call it before an evaluation, because each rank's batch
/// normalisation has seen only its own samples. Every rank must call it. Floats become the mean
/// over the ranks, summed in float64 and rounded once. Whole numbers and bools become the maximum.
/// All ranks have equal weight.
/// Cost: one all-reduce of all floats, and one of all whole numbers, if there are any.
/// Errors: Unsupported for complex numbers. kDistributed.
SHARDWISE_EXPORT void average_buffers(const torch::nn::Module& module, const ProcessGroup& group);

/// Averages gradients over all samples of a step on all ranks. The ranks may have different numbers
/// of samples.
///
/// Before average(), each rank's gradients must be those of the *sum* of its samples' losses
/// (`Reduction::Sum`). A rank without samples passes num_samples 0 and runs no backward pass; its
/// gradients count as zeros. After average(), the gradients of all ranks are bitwise equal: the sum
/// over the ranks divided by the number of samples. Several backward passes may precede one
/// average(). The gradients are then those of the mean over all their samples.
///
/// After average(), a parameter's gradient is defined on all ranks if any rank had one, otherwise
/// on none. Optimizers therefore treat a parameter equally on all ranks. Parameters that require no
/// gradient get none, so weight decay does not change them.
///
/// Every rank must call average(). The parameters must have the same shapes on all ranks, and the
/// same ones must require gradients.
/// @param num_samples  samples of this rank in the step, over all its backward passes.
/// @return  the number of samples of all ranks. If it is 0, the gradients are undefined.
/// Shapes: any, on any device. Gradients are reduced in float32, or in float64 if a parameter has
///   that type, and rounded once to the parameter's type. Sparse gradients become dense.
/// Cost: one all-reduce of all gradients, on the device of the first parameter, in a buffer that is
///   reused. The numbers of samples need no further exchange: they are sent in the call's header
///   (see ProcessGroup).
/// Errors: Unsupported for complex numbers. kDistributed.
class SHARDWISE_EXPORT GradientAverager {
 public:
  explicit GradientAverager(std::vector<torch::Tensor> parameters);

  std::int64_t average(std::int64_t num_samples, const ProcessGroup& group);

  /// Total time of average(), including the wait for slower ranks.
  [[nodiscard]] std::chrono::nanoseconds time_spent() const noexcept { return time_spent_; }

 private:
  [[nodiscard]] std::vector<torch::Tensor> trainable() const;

  std::vector<torch::Tensor> parameters_;
  torch::Tensor flat_;
  std::chrono::nanoseconds time_spent_{};
};

}  // namespace shardwise::libtorch
