#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/ordered_pipeline.h"
#include "shardwise/data/dataset.h"

namespace shardwise::test {

/// Reads single samples on threads: calls `work(sample)` for each number that `next` gives, and
/// returns the results in that order.
/// @param next  returns std::optional<std::uint64_t>, the next sample number, as a sampler's
///   next(). One thread at a time calls it. It lives as long as the pipeline.
/// Errors: the pipeline's next() throws errors of the dataset and of `work` in the sample's place.
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
