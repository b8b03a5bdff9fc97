#include "shardwise/order/explain.h"

#include <algorithm>
#include <memory>
#include <string>

#include "shardwise/base/error.h"

namespace shardwise {

namespace {

void check_batch_size(std::uint64_t batch_size) {
  if (batch_size == 0) throw InvalidArgument("batch_size is 0 samples", {}, "it is at least 1");
}

}  // namespace

std::vector<RankStep> explain_step(const Sampler& sampler, std::uint64_t step,
                                   std::uint64_t batch_size, std::uint64_t first_slot) {
  check_batch_size(batch_size);
  const std::uint64_t num_steps = sampler.steps(batch_size, first_slot);
  if (step >= num_steps) {
    throw OutOfRange("no step " + std::to_string(step),
                     "epoch " + std::to_string(sampler.epoch()) + " with batches of " +
                         std::to_string(batch_size),
                     "it has " + std::to_string(num_steps) + " steps, numbered from 0");
  }
  std::vector<RankStep> ranks;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); ++rank) {
    const std::unique_ptr<Sampler> mine = sampler.for_rank(rank);
    mine->resume_at(first_slot);
    const std::uint64_t left = mine->size() - mine->position();
    // step * batch_size does not wrap: the step exists, so it is below the largest rank size.
    const std::uint64_t skipped = std::min(left, step * batch_size);
    const std::uint64_t first = mine->position() + skipped;
    RankStep part;
    part.rank = rank;
    for (std::uint64_t i = 0; i < std::min(batch_size, left - skipped); ++i) {
      part.samples.push_back(mine->at(first + i));
    }
    ranks.push_back(std::move(part));
  }
  return ranks;
}

std::vector<SampleTime> when_sample(const Sampler& sampler, std::uint64_t sample,
                                    std::uint64_t batch_size, std::uint64_t first_slot) {
  check_batch_size(batch_size);
  const std::unique_ptr<Sampler> resumed = sampler.clone();
  resumed->resume_at(first_slot);
  std::vector<SampleTime> times;
  for (const Delivery& delivery : resumed->deliveries(sample)) {
    const std::unique_ptr<Sampler> mine = resumed->for_rank(delivery.rank);
    mine->resume_at(first_slot);
    if (delivery.index < mine->position()) continue;
    const std::uint64_t index = delivery.index - mine->position();
    times.push_back({delivery.rank, index / batch_size, index % batch_size, delivery.slot});
  }
  return times;
}

}  // namespace shardwise
