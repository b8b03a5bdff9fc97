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

/// An array of a batch as a tensor over the same memory, which the tensor keeps: nothing is copied.
/// Writing to one is seen in the other.
/// @return  of the array's type, on the CPU; [N, ...], or, of a ragged array, all its values in one
///   dimension: row i is values.slice(0, offsets[i], offsets[i + 1]).
/// Errors: InvalidArgument if LibTorch has no such type (uint16, uint32, uint64).
SHARDWISE_EXPORT torch::Tensor to_tensor(const Batch::Array& array);
/// The offsets of a ragged array: int64 [N + 1], a copy. Of another one, empty.
SHARDWISE_EXPORT torch::Tensor offsets_tensor(const Batch::Array& array);

/// Which member of a struct gets the tensor of which column.
template <class Struct>
using Members = std::initializer_list<std::pair<std::string_view, torch::Tensor Struct::*>>;

/// The tensors of a batch in a struct of your own, as to_tensor() makes them; other members are as
/// `Struct{}` has them.
///
///     struct Pairs { torch::Tensor images, captions; };
///     auto pairs = to_struct<Pairs>(batch, {{"jpg", &Pairs::images}, {"txt", &Pairs::captions}});
///
/// Errors: NotFound, listing the columns that there are; as to_tensor().
template <class Struct>
Struct to_struct(const Batch& batch, Members<Struct> members) {
  Struct result{};
  for (const auto& [column, member] : members) result.*member = to_tensor(batch[column]);
  return result;
}

/// A process group for a Loader, which then is one rank of it.
SHARDWISE_EXPORT std::shared_ptr<Reducer> make_reducer(ProcessGroup group);

}  // namespace shardwise::libtorch
