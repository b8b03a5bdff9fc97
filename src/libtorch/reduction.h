#pragma once

#include <vector>

#include <torch/torch.h>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch::detail {

// Sums, minima and maxima over the ranks, for tensors of any type. Not every backend supports every
// type: Gloo of LibTorch 1.13 lacks int16, bool, bfloat16 and complex types. 16-bit floats would
// lose bits in each addition. Such tensors are therefore reduced in a wider type, and rounded once
// at the end.

/// Throws Unsupported for tensors that no group can reduce: non-strided layouts, quantized types,
/// and for kMin and kMax types without an order.
void require_reducible(const torch::Tensor& tensor, ProcessGroup::ReduceOp op);

/// Returns the tensor to reduce: `tensor`, a view of it, or a copy in a wider type. For a complex
/// tensor the result has one more dimension.
/// REQUIRES: require_reducible().
torch::Tensor widened(const torch::Tensor& tensor);

/// Copies the reduced `wide`, made by widened(), back to `tensor`.
void narrow_into(const torch::Tensor& tensor, const torch::Tensor& wide);

/// Reduces in the order of the ranks, so that all ranks get the same bits.
torch::Tensor reduced(const std::vector<torch::Tensor>& of_ranks, ProcessGroup::ReduceOp op);

}  // namespace shardwise::libtorch::detail
