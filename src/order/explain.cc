#include "shardwise/order/explain.h"

#include <memory>
#include <string>

#include "base/error_types.h"
#include "order/sampler_access.h"
#include "order/spec.h"

namespace shardwise {

std::vector<Sampler::RankStep> explain_step(const Sampler& sampler, std::uint64_t step) {
  if (step >= sampler.steps()) {
    throw OutOfRange("no step " + std::to_string(step),
                     "epoch " + std::to_string(sampler.epoch()) + " with batches of " +
                         std::to_string(sampler.batch_size()),
                     "choose a step in [0, " + std::to_string(sampler.steps()) + ")");
  }
  std::vector<Sampler::RankStep> ranks;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); ++rank) {
    const std::unique_ptr<Sampler> mine = sampler.for_rank(rank);
    const std::uint64_t first = mine->first_of_step(step);
    mine->seek(first);
    Sampler::RankStep part;
    part.rank = rank;
    part.samples.resize(mine->first_of_step(step + 1) - first);
    mine->next_batch(part.samples);
    ranks.push_back(std::move(part));
  }
  return ranks;
}

std::vector<Sampler::SampleTime> when_sample(const Sampler& sampler, std::uint64_t sample) {
  detail::require_sample(sample, sampler.num_samples());
  std::vector<Sampler::SampleTime> times;
  for (const auto& [share, index] : detail::SamplerAccess::deliveries(sampler, sample)) {
    const std::uint64_t first_rank = share * sampler.replicas();
    const std::unique_ptr<Sampler> mine = sampler.for_rank(first_rank);
    const std::uint64_t position = mine->position_in_epoch(index);
    const std::uint64_t step = mine->step_of(index);
    for (std::uint64_t rank = first_rank; rank < first_rank + sampler.replicas(); ++rank) {
      times.push_back({rank, step, index - mine->first_of_step(step), position});
    }
  }
  return times;
}

}  // namespace shardwise
