#pragma once

#include <chrono>
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

/// Proves that the parameters and buffers of all ranks are the same, bit for bit, as data parallel
/// training keeps them: to be called at the end of an epoch, before a checkpoint counts. Every rank
/// must call it. Buffers that each rank makes by itself, as those of batch normalisation, differ
/// until average_buffers().
/// Cost: one XXH3 of the module's bytes (on other devices, and a copy of them), and one exchange of
///   16 bytes; more only where ranks differ.
/// Errors: Mismatch, on every rank, naming the first tensors that differ and the ranks that have
///   which; kDistributed.
SHARDWISE_EXPORT void require_same_replicas(const torch::nn::Module& module,
                                            const ProcessGroup& group);

/// Makes the buffers of all ranks the same: to be called before an evaluation, since each rank's
/// batch normalisation has seen the rank's own samples only. Floats become the mean over the ranks,
/// added in float64 and rounded once; whole numbers and bools become the largest. Each rank counts
/// alike. Every rank must call it.
/// Cost: one all-reduce of all floats and one of all whole numbers; none of what there is not.
/// Errors: Unsupported (complex numbers); kDistributed.
SHARDWISE_EXPORT void average_buffers(const torch::nn::Module& module, const ProcessGroup& group);

/// Makes the gradients those of the mean loss over all samples of a step on all ranks, however
/// unequally the ranks share them.
///
/// Before it, each rank's gradients are those of the *sum* of its samples' losses
/// (`Reduction::Sum`); a rank without samples calls it with num_samples 0 and no backward pass, and
/// counts as zeros. Afterwards the gradients of all ranks are the same bits: the sum over the ranks
/// divided by the number of samples. Several backward passes may come before it: the gradients are
/// then those of the mean over all their samples, with one reduction.
///
/// A gradient is defined on all ranks afterwards or on none, so that optimizers treat a parameter
/// alike everywhere: it is undefined where no rank has one. Parameters that require no gradient are
/// left alone, and keep their value whatever the weight decay.
/// Every rank must call it, with parameters of the same shapes, of which the same require
/// gradients.
/// @param num_samples  of this rank's step, in all its backward passes.
/// @return  the number of samples of all ranks; if it is 0, the gradients are undefined.
/// Shapes: any, on any device. All are reduced in float32, or in float64 if there is a parameter of
///   that, and rounded once to the parameter's type; sparse gradients become dense.
/// Cost: one all-reduce of all gradients, in one buffer that is kept from call to call, on the
///   device of the first parameter; the numbers of samples go with its header.
/// Errors: Unsupported (complex numbers); kDistributed.
class SHARDWISE_EXPORT GradientAverager {
 public:
  explicit GradientAverager(std::vector<torch::Tensor> parameters);

  std::int64_t average(std::int64_t num_samples, const ProcessGroup& group);

  /// How long average() has taken in total, the wait for slower ranks included.
  [[nodiscard]] std::chrono::nanoseconds time_spent() const noexcept { return time_spent_; }

 private:
  [[nodiscard]] std::vector<torch::Tensor> trainable() const;

  std::vector<torch::Tensor> parameters_;
  torch::Tensor flat_;
  std::chrono::nanoseconds time_spent_{};
};

}  // namespace shardwise::libtorch
