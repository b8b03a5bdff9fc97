#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>

#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/reducer.h"

namespace shardwise::libtorch {

/// Returns a tensor that shares the memory of a batch's array and keeps it alive. It copies
/// nothing: a write to the tensor is visible in the array, and vice versa.
/// @return  a tensor of the array's type, on the CPU: [N, ...]. For a ragged array it is
///   one-dimensional: row i is values.slice(0, offsets[i], offsets[i + 1]).
/// Errors: InvalidArgument if LibTorch lacks the type (uint16, uint32, uint64).
SHARDWISE_EXPORT torch::Tensor to_tensor(const Batch::Array& array);
/// Returns a copy of the offsets of a ragged array: int64 [N + 1]. If the array is not ragged, the
/// result is empty.
SHARDWISE_EXPORT torch::Tensor offsets_tensor(const Batch::Array& array);

/// Pairs of a column's name and the struct member that gets its tensor.
template <class Struct>
using Members = std::initializer_list<std::pair<std::string_view, torch::Tensor Struct::*>>;

/// Returns a struct of your own whose members are tensors of a batch, made by to_tensor(). All
/// other members have their values in `Struct{}`.
///
///     struct Pairs { torch::Tensor images, captions; };
///     auto pairs = to_struct<Pairs>(batch, {{"jpg", &Pairs::images}, {"txt", &Pairs::captions}});
///
/// Errors: NotFound; the text lists the columns. The errors of to_tensor().
template <class Struct>
Struct to_struct(const Batch& batch, Members<Struct> members) {
  Struct result{};
  for (const auto& [column, member] : members) result.*member = to_tensor(batch[column]);
  return result;
}

/// Makes a Reducer from a process group, so that a Loader can run on the ranks of the group.
SHARDWISE_EXPORT std::shared_ptr<Reducer> make_reducer(ProcessGroup group);

}  // namespace shardwise::libtorch
