#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/ordered_pipeline.h"
#include "shardwise/data/dataset.h"

namespace shardwise::test {

/// Single samples by threads: `work(sample)` runs on them for each number that
/// `next` gives, and its results come in that order.
/// @param next  callable giving std::optional<std::uint64_t>: the next sample number, as a
///              sampler's next(); called by one thread at a time, and kept until the loader is
///              gone.
/// Errors: those of the dataset and of `work`, thrown by the loader's next() in the sample's place.
template <class Next, class Fn>
requires std::invocable<Fn&, const Sample&>
auto sample_pipeline(Dataset data, Next next, Fn work, const PipelineOptions& options = {}) {
  using Result = std::invoke_result_t<Fn&, const Sample&>;
  return OrderedPipeline<std::uint64_t, Result>(
      std::move(next),
      [data = std::move(data), work = std::move(work)](const std::uint64_t& index) mutable {
        return work(data[index]);
      },
      options);
}

}  // namespace shardwise::test
