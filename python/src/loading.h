#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <memory_resource>

#include "shardwise/loader/batch.h"
#include "shardwise/loader/reducer.h"

namespace shardwise::python {

/// The contents of a `shardwise.Batch`.
struct BatchObject {
  Batch batch;
  bool gives_torch = false;  ///< whether its values are torch tensors instead of NumPy arrays
};

/// Makes a reducer that calls `ranks.all_reduce_sum`, a function of a list of whole numbers.
/// Lifetime: `ranks` must outlive it.
/// REQUIRES: the GIL.
/// Errors: InvalidArgument if the rank numbers are invalid.
std::shared_ptr<Reducer> python_reducer(nanobind::handle ranks);

/// Makes a memory resource from `allocate(num_bytes)`. The function returns an object with
/// data_ptr(), e.g. a torch tensor, which is kept until the memory is freed.
/// Lifetime: `allocate` must live while memory is allocated.
/// REQUIRES: the GIL.
std::shared_ptr<std::pmr::memory_resource> python_memory(nanobind::handle allocate);

void add_batches(nanobind::module_& module);
void add_loaders(nanobind::module_& module);

}  // namespace shardwise::python
