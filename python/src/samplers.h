#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"

namespace shardwise::python {

using SamplerPointer = std::unique_ptr<Sampler>;

/// The contents of a `shardwise.Sampler`: the beginning of its epoch. Iterators have their own
/// copies.
struct SamplerObject {
  SamplerPointer sampler;
  /// The data it was made of, for pickling: a Dataset, a mix() of several, or a length.
  nanobind::object data;
  Order order{};  ///< the given one; over a mix() with weights, the sampler has another
  std::uint64_t global_batch_size = 0;
};

}  // namespace shardwise::python
