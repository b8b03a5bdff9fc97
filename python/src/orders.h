#pragma once

#include <nanobind/nanobind.h>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/order.h"

namespace shardwise::python {

/// Returns the samples for an order from a Dataset, a mix() of datasets, an int, or any object with
/// a length. Errors: TypeError, InvalidArgument.
SampleSet sample_set(nanobind::handle data);

/// Whether `data` was returned by mix().
bool is_mixed(nanobind::handle data);
/// Returns the Python objects of the datasets in a mix(), or of the single dataset.
nanobind::tuple parts_of(nanobind::handle data);
/// Errors: TypeError if a part is not a Dataset.
MixedDataset mixed_dataset(const nanobind::tuple& parts);

/// Returns the order for `data`. For a mix() with weights, the result draws from the datasets and
/// uses the given order's kind within each.
/// Errors: InvalidArgument for a kind that cannot be mixed.
Order order_over(nanobind::handle data, Order order);

void add_orders(nanobind::module_& module);

}  // namespace shardwise::python
