#pragma once

#include <nanobind/nanobind.h>

#include "shardwise/order/order.h"

namespace shardwise::python {

/// The samples that an order is made over, from a Dataset, a whole number, or whatever has a
/// length. Errors: TypeError, InvalidArgument.
SampleSet sample_set(nanobind::handle data);

void add_orders(nanobind::module_& module);

}  // namespace shardwise::python
