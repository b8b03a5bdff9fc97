#pragma once

#include <vector>

#include <torch/torch.h>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch::detail {

// Sums, minima and maxima over the ranks, of tensors of any type. Backends lack types (Gloo of
// LibTorch 1.13 int16, bool, bfloat16 and complex ones), and 16-bit floats lose bits with each
// addition, so these are reduced in wider elements, and rounded once at the end.

/// Errors: Unsupported, if no group could reduce it: other layouts than strided, quantized numbers,
///   and all that has no order, for kMin and kMax.
void require_reducible(const torch::Tensor& tensor, ProcessGroup::ReduceOp op);

/// In what elements it is reduced: the tensor itself, a view of it, or a copy. One dimension more
/// than the tensor if that is complex.
/// REQUIRES: require_reducible().
torch::Tensor widened(const torch::Tensor& tensor);

/// The other way round: `tensor` becomes what `wide`, which was made of it, has become.
void narrow_into(const torch::Tensor& tensor, const torch::Tensor& wide);

/// Adds (or compares) in the order of the ranks, so that all ranks have the same bits.
torch::Tensor reduced(const std::vector<torch::Tensor>& of_ranks, ProcessGroup::ReduceOp op);

}  // namespace shardwise::libtorch::detail
