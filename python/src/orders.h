#pragma once

#include <nanobind/nanobind.h>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/order.h"

namespace shardwise::python {

/// Returns the samples for an order: of a Dataset, a mix() of them, a whole number, or any object
/// with a length. Errors: TypeError, InvalidArgument.
SampleSet sample_set(nanobind::handle data);

/// True if `data` was returned by mix().
bool is_mixed(nanobind::handle data);
/// Returns the Python objects of the data sets in a mix(), or a single Dataset.
nanobind::tuple parts_of(nanobind::handle data);
/// Errors: TypeError if a part is not a Dataset.
MixedDataset mixed_dataset(const nanobind::tuple& parts);

/// Returns the order over `data`. For a mix() with weights, it applies the order's kind in each
/// data set.
/// Errors: InvalidArgument for a kind that cannot be mixed.
Order order_over(nanobind::handle data, Order order);

void add_orders(nanobind::module_& module);

}  // namespace shardwise::python
