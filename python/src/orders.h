#pragma once

#include <nanobind/nanobind.h>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/order.h"

namespace shardwise::python {

/// The samples that an order is made over, from a Dataset, a mix() of them, a whole number, or
/// whatever has a length. Errors: TypeError, InvalidArgument.
SampleSet sample_set(nanobind::handle data);

/// Whether it is what mix() gave.
bool is_mixed(nanobind::handle data);
/// The objects of the data sets of a mix(), or a Dataset alone.
nanobind::tuple parts_of(nanobind::handle data);
/// Errors: TypeError if one of them is no Dataset.
MixedDataset mixed_dataset(const nanobind::tuple& parts);

/// The order over `data`: of a mix() with weights, the order's kind in each of its data sets.
/// Errors: InvalidArgument for a kind that cannot be mixed.
Order order_over(nanobind::handle data, Order order);

void add_orders(nanobind::module_& module);

}  // namespace shardwise::python
