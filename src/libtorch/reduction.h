#pragma once

#include <vector>

#include <torch/torch.h>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch::detail {

// Sums, minima and maxima over the ranks, for tensors of any type. Some types are reduced in a
// wider type, and rounded once at the end. Backends lack types: Gloo of LibTorch 1.13 lacks int16,
// bool, bfloat16 and complex types. 16-bit floats would lose bits with each addition.

/// Errors: Unsupported for tensors that no group can reduce: non-strided layouts, quantized types,
/// and for kMin and kMax types without an order.
void require_reducible(const torch::Tensor& tensor, ProcessGroup::ReduceOp op);

/// Returns the tensor to reduce: `tensor` itself, a view of it, or a copy in a wider type. A
/// complex tensor gets one more dimension.
/// REQUIRES: require_reducible().
torch::Tensor widened(const torch::Tensor& tensor);

/// The inverse of widened(): writes the reduced `wide` to the `tensor` that it was made from.
void narrow_into(const torch::Tensor& tensor, const torch::Tensor& wide);

/// Reduces in the order of the ranks, so that all ranks get the same bits.
torch::Tensor reduced(const std::vector<torch::Tensor>& of_ranks, ProcessGroup::ReduceOp op);

}  // namespace shardwise::libtorch::detail
