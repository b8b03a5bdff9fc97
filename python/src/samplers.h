#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"

namespace shardwise::python {

using SamplerPointer = std::unique_ptr<Sampler>;

/// The contents of a `shardwise.Sampler`: a sampler at the beginning of its epoch. Each iterator
/// has its own copy.
struct SamplerObject {
  SamplerPointer sampler;
  /// The data of the sampler, for pickling: a Dataset, a mix() of datasets, or a length.
  nanobind::object data;
  Order order{};  ///< the order as given; for a mix() with weights, the sampler's own order differs
  std::uint64_t global_batch_size = 0;
};

}  // namespace shardwise::python
