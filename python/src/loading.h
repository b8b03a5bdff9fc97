#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <memory_resource>

#include "shardwise/loader/batch.h"
#include "shardwise/loader/reducer.h"

namespace shardwise::python {

/// What `shardwise.Batch` holds.
struct BatchObject {
  Batch batch;
};

/// Ranks that agree by `ranks.all_reduce_sum`, a function of a list of whole numbers.
/// REQUIRES: `ranks` outlives it. The GIL.
/// Errors: InvalidArgument if its numbers cannot be.
std::shared_ptr<Reducer> python_reducer(nanobind::handle ranks);

/// Memory that `allocate(num_bytes)` gives: an object with data_ptr(), as a torch tensor, which is
/// kept until the memory is freed.
/// REQUIRES: `allocate` lives while memory is taken. The GIL.
std::shared_ptr<std::pmr::memory_resource> python_memory(nanobind::handle allocate);

void add_batches(nanobind::module_& module);
void add_loaders(nanobind::module_& module);

}  // namespace shardwise::python
