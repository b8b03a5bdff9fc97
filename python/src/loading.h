#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <memory_resource>

#include "loader/column_maker.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/reducer.h"

namespace shardwise::python {

/// The contents of a `shardwise.Batch`.
struct BatchObject {
  Batch batch;
  bool gives_torch = false;  ///< whether its values are torch tensors instead of NumPy arrays
};

/// Makes a reducer that calls `ranks.all_reduce_sum` with a list of integers.
/// Lifetime: `ranks` must outlive the reducer.
/// REQUIRES: the GIL.
/// Errors: InvalidArgument if the rank or the number of ranks is invalid.
std::shared_ptr<Reducer> python_reducer(nanobind::handle ranks);

/// Makes a memory resource that calls `allocate(num_bytes)`. The result is an object with
/// data_ptr(), e.g. a torch tensor. It is kept until the memory is freed.
/// Lifetime: `allocate` must outlive all allocations.
/// REQUIRES: the GIL.
std::shared_ptr<std::pmr::memory_resource> python_memory(nanobind::handle allocate);

/// Converts the row of a batch of one row. The `content` decides whether the result is a str, bytes
/// or a parsed value. Other rows become a number, or a NumPy array over the batch's memory.
nanobind::object only_row(const Batch::Array& array, detail::ColumnMaker::Content content);

void add_batches(nanobind::module_& module);
void add_loaders(nanobind::module_& module);

}  // namespace shardwise::python
