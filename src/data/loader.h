#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/ordered_pipeline.h"
#include "shardwise/data/dataset.h"

namespace shardwise {

using LoaderOptions = PipelineOptions;

/// Samples (or batches of them) loaded ahead by threads, delivered in order; see OrderedPipeline
/// for threads, errors and early exit. An item is a sample number, or a batch of them.
template <class Item, class Result>
using Loader = OrderedPipeline<Item, Result>;

/// A loader of single samples: `work(sample)` runs on the loader's threads for each number that
/// `next` gives, and its results come in that order.
/// @param next  callable giving std::optional<std::uint64_t>: the next sample number, as a
///              sampler's next(); called by one thread at a time, and kept until the loader is
///              gone.
/// Errors: those of the dataset and of `work`, thrown by the loader's next() in the sample's place.
template <class Next, class Fn>
requires std::invocable<Fn&, const Sample&>
auto make_loader(Dataset data, Next next, Fn work, const LoaderOptions& options = {}) {
  using Result = std::invoke_result_t<Fn&, const Sample&>;
  return Loader<std::uint64_t, Result>(
      std::move(next),
      [data = std::move(data), work = std::move(work)](const std::uint64_t& index) mutable {
        return work(data[index]);
      },
      options);
}

}  // namespace shardwise
