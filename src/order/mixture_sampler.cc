#include "order/mixture_sampler.h"

#include <string>

#include "base/error_types.h"
#include "order/mixture_slots.h"
#include "order/sampler_access.h"

namespace shardwise::detail {

namespace {

const Order& checked_mixture(const Order& order) {
  if (std::holds_alternative<Mixture>(order.kind)) return order;
  throw InvalidArgument("the order is not a mixture", {}, "give an order whose kind is Mixture");
}

const detail::MixtureSlots& mixture_of(const SlotSampler& sampler) {
  return static_cast<const detail::MixtureSlots&>(detail::SamplerAccess::slots(sampler));
}

}  // namespace

MixtureSampler::MixtureSampler(const SampleSet& samples, const Order& order,
                               const RankOptions& ranks)
    : SlotSampler(samples, checked_mixture(order), ranks) {}

std::unique_ptr<Sampler> MixtureSampler::clone() const {
  return std::make_unique<MixtureSampler>(*this);
}

std::size_t MixtureSampler::num_datasets() const noexcept {
  return mixture_of(*this).num_datasets();
}

std::uint64_t MixtureSampler::first_sample(std::size_t dataset) const {
  return mixture_of(*this).first_sample(dataset);
}

MixtureSample MixtureSampler::split(std::uint64_t number) const {
  if (number >= num_samples()) {
    throw OutOfRange("no sample " + std::to_string(number) + " in the mixture", {},
                     "numbers are in [0, " + std::to_string(num_samples()) + ")");
  }
  const std::size_t dataset = mixture_of(*this).dataset_of(number);
  return {dataset, number - first_sample(dataset)};
}

std::optional<MixtureSample> MixtureSampler::next_split() {
  const std::optional<std::uint64_t> number = next();
  if (!number) return std::nullopt;
  return split(*number);
}

}  // namespace shardwise::detail
