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
/// requires. Call it at the end of an epoch, before a checkpoint counts. Every rank must call it.
/// Buffers that each rank computes by itself, e.g. of batch normalisation, differ until
/// average_buffers().
/// Cost: one XXH3 hash of the module's bytes, and one exchange of 16 bytes. Tensors on other
///   devices are copied. More only if ranks differ.
/// Errors: Mismatch, on every rank, naming the first tensors that differ, and which ranks have
///   which. kDistributed.
SHARDWISE_EXPORT void require_same_replicas(const torch::nn::Module& module,
                                            const ProcessGroup& group);

/// Makes the buffers of all ranks equal. Call it before an evaluation, because each rank's batch
/// normalisation has seen only its own samples. Every rank must call it. Floats become the mean
/// over the ranks, summed in float64 and rounded once. Whole numbers and bools become the maximum.
/// All ranks have equal weight.
/// Cost: one all-reduce of all floats, and one of all whole numbers, if there are any.
/// Errors: Unsupported for complex numbers. kDistributed.
SHARDWISE_EXPORT void average_buffers(const torch::nn::Module& module, const ProcessGroup& group);

/// Averages gradients over all samples of a step on all ranks, however unequally the ranks share
/// them.
///
/// Before average(), each rank's gradients must be those of the *sum* of its samples' losses
/// (`Reduction::Sum`). A rank without samples passes num_samples 0, runs no backward pass, and
/// counts as zeros. After it, the gradients of all ranks are bitwise equal: the sum over the ranks
/// divided by the number of samples. Several backward passes may precede it; the gradients are then
/// those of the mean over all their samples, with one reduction.
///
/// A gradient is then defined on all ranks or on none, so optimizers treat a parameter equally
/// everywhere. It is undefined if no rank has one. Parameters that require no gradient are left
/// alone, so weight decay does not change them.
///
/// Every rank must call average(), with parameters of the same shapes, the same of which require
/// gradients.
/// @param num_samples  of this rank's step, over all its backward passes.
/// @return  the number of samples of all ranks. If it is 0, the gradients are undefined.
/// Shapes: any, on any device. Gradients are reduced in float32, or in float64 if a parameter has
///   that type, and rounded once to the parameter's type. Sparse gradients become dense.
/// Cost: one all-reduce of all gradients, on the device of the first parameter, in a buffer that is
///   reused. The numbers of samples travel with its header.
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
