#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/ordered_pipeline.h"
#include "shardwise/data/dataset.h"

namespace shardwise::test {

/// Reads samples on several threads. Calls `work(sample)` for each number that `next` returns.
/// Returns the results in the order of these numbers.
/// @param next  returns the next sample number as std::optional<std::uint64_t>, like a sampler's
///   next(). Only one thread at a time calls it. It is kept as long as the pipeline exists.
/// Errors: if reading a sample or `work` throws, the pipeline's next() throws that error instead of
///   returning the sample's result.
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
