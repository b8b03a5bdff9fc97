#include "loader/explain_batches.h"

#include <memory>

#include "base/error_types.h"
#include "order/spec.h"

namespace shardwise::detail {

std::vector<RankBatch> explain_batches(const EpochPlan& plan, std::uint64_t step) {
  const Sampler& sampler = plan.sampler();
  if (step >= plan.steps()) {
    throw OutOfRange("no step " + std::to_string(step), "epoch " + std::to_string(sampler.epoch()),
                     "choose a step in [0, " + std::to_string(plan.steps()) + ")");
  }
  std::vector<RankBatch> ranks(sampler.world_size());
  for (std::uint64_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].step.rank = rank;
  plan.visit_batches(step, step + 1, [&](std::uint64_t, std::uint64_t share, const BatchPlan& own) {
    for (std::uint64_t replica = 0; replica < sampler.replicas(); ++replica) {
      RankBatch& batch = ranks[share * sampler.replicas() + replica];
      batch.step.samples = own.samples;
      if (!plan.groups().empty()) batch.group = plan.groups()[own.group].key;
    }
  });
  return ranks;
}

std::vector<RankBatch> explain_batches(const MixedDataset& data, const Loader::Options& options,
                                       std::uint64_t world_size, const ResumeToken& token,
                                       std::uint64_t step) {
  const auto whole = EpochPlan::make(data, options, 0, world_size);
  return explain_batches(*whole->resume(token, Sampler::Changes::kRefuse), step);
}

std::vector<Sampler::SampleTime> when_in_batches(const EpochPlan& plan, std::uint64_t sample) {
  const Sampler& sampler = plan.sampler();
  require_sample(sample, sampler.num_samples());
  std::vector<Sampler::SampleTime> times;
  plan.visit_batches(
      0, plan.steps(), [&](std::uint64_t step, std::uint64_t share, const BatchPlan& own) {
        for (std::uint64_t place = 0; place < own.samples.size(); ++place) {
          if (own.samples[place] != sample) continue;
          const std::uint64_t first = share * sampler.replicas();
          for (std::uint64_t rank = first; rank < first + sampler.replicas(); ++rank) {
            times.push_back({rank, step, place, own.positions[place]});
          }
        }
      });
  return times;
}

}  // namespace shardwise::detail
