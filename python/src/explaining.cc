#include "shardwise/order/explain.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "batch_plan.h"
#include "objects.h"
#include "samplers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

using RankSamples = std::pair<std::uint64_t, std::vector<std::uint64_t>>;
/// Rank, step, place in the batch, position in the epoch.
using Time = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;

/// Returns the samples of every rank in its list `step` of Sampler.batches().
std::vector<RankSamples> explain_lists(const Sampler& sampler, std::uint64_t step,
                                       const BatchRule& rule) {
  std::vector<RankSamples> ranks;
  std::uint64_t most = 0;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); ++rank) {
    const SamplerPointer mine = sampler.for_rank(rank);
    const BatchPlan plan(*mine, rule);
    most = std::max(most, plan.count());
    const std::uint64_t first = plan.position_after(step);
    std::vector<std::uint64_t> samples(plan.position_after(step + 1) - first);
    mine->seek(first);
    mine->next_batch(samples);
    ranks.emplace_back(rank, std::move(samples));
  }
  if (step < most) return ranks;
  throw OutOfRange(
      "no step " + std::to_string(step),
      "epoch " + std::to_string(sampler.epoch()) + " with batches of " + std::to_string(rule.size),
      "the epoch has " + std::to_string(most) + " steps, numbered from 0; give a smaller step");
}

/// Converts the step and place of each delivery from the sampler's own steps to the lists of
/// Sampler.batches().
std::vector<Time> times_in_lists(const Sampler& sampler, const std::vector<Time>& times,
                                 const BatchRule& rule) {
  std::vector<Time> all;
  for (const auto& [rank, step, place, position] : times) {
    const SamplerPointer mine = sampler.for_rank(rank);
    const BatchPlan plan(*mine, rule);
    const std::uint64_t index = mine->first_of_step(step) + place;
    const std::uint64_t list = plan.batches_before(index);
    if (list == plan.count()) continue;  // drop_last leaves it out
    all.emplace_back(rank, list, index - plan.position_after(list), position);
  }
  return all;
}

std::vector<RankSamples> explain(const SamplerObject& self, std::uint64_t step, std::uint64_t size,
                                 bool drop_last, bool even) {
  if (size > 0) return explain_lists(*self.sampler, step, {size, drop_last, even});
  std::vector<RankSamples> ranks;
  for (Sampler::RankStep& rank : explain_step(*self.sampler, step)) {
    ranks.emplace_back(rank.rank, std::move(rank.samples));
  }
  return ranks;
}

std::vector<Time> when(const SamplerObject& self, std::uint64_t sample, std::uint64_t size,
                       bool drop_last, bool even) {
  std::vector<Time> times;
  for (const Sampler::SampleTime& time : when_sample(*self.sampler, sample)) {
    times.emplace_back(time.rank, time.step, time.place, time.position);
  }
  return size == 0 ? times : times_in_lists(*self.sampler, times, {size, drop_last, even});
}

}  // namespace

void add_explaining(nb::module_& module) {
  module.def("explain_step", &explain, "sampler"_a, "step"_a, "size"_a = 0, "drop_last"_a = false,
             "even"_a = false,
             nb::sig("def explain_step(sampler: Sampler, step: int, size: int = 0, "
                     "drop_last: bool = False, even: bool = False) -> list[tuple[int, list[int]]]"),
             "Each rank with its samples in a step of the sampler; with ``size`` in a list of "
             "Sampler.batches(). Raises OutOfRange.");
  module.def(
      "when_sample", &when, "sampler"_a, "sample"_a, "size"_a = 0, "drop_last"_a = false,
      "even"_a = false,
      nb::sig("def when_sample(sampler: Sampler, sample: int, size: int = 0, drop_last: bool "
              "= False, even: bool = False) -> list[tuple[int, int, int, int]]"),
      "Rank, step, place in the batch and position in the epoch of each delivery of a "
      "sample. Raises OutOfRange; InvalidArgument for draws with replacement.");
}

}  // namespace shardwise::python
