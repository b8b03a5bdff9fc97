#include "order/mixture_slots.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <variant>

#include "base/assert.h"
#include "base/counted.h"
#include "order/arithmetic.h"
#include "order/key.h"
#include "order/spec.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

/// Number of slots that are located at a time.
constexpr std::size_t kSlots = 512;

std::string dataset_text(std::size_t i) { return "data set " + std::to_string(i); }

/// True if a data set is drawn from at some position.
bool is_drawn(const Mixture& mixture, std::size_t dataset) {
  return mixture.parts[dataset].weight > 0 ||
         std::ranges::any_of(mixture.schedule, [dataset](const Mixture::Change& change) {
           return change.weights[dataset] > 0;
         });
}

std::shared_ptr<const MixtureSchedule> schedule_of(const Mixture& mixture, std::uint64_t seed) {
  auto schedule = std::make_shared<const MixtureSchedule>(mixture, seed);
  for (std::size_t i = 0; i < mixture.parts.size(); ++i) {
    if (mixture.parts[i].num_samples > 0 || !is_drawn(mixture, i)) continue;
    throw InvalidArgument("a data set of the mixture is empty", dataset_text(i),
                          "leave out the data set, or set its weight to 0");
  }
  return schedule;
}

/// Returns the shards of samples [begin, end), with `begin` as sample 0.
ShardOffsets part_starts(const ShardOffsets& all, std::uint64_t begin, std::uint64_t end,
                         std::size_t dataset) {
  const auto first = std::lower_bound(all->begin(), all->end(), begin);
  const auto last = std::upper_bound(first, all->end(), end);
  auto starts = std::make_shared<std::vector<std::uint64_t>>(first, last);
  if (starts->empty() || starts->front() != begin || starts->back() != end) {
    throw InvalidArgument("the shards of the mixture do not match the samples of a data set",
                          dataset_text(dataset),
                          "give the shards of all data sets, in the order of the data sets");
  }
  for (std::uint64_t& start : *starts) start -= begin;
  return starts;
}

}  // namespace

MixtureSlots::MixtureSlots(const SampleSet& samples, const Mixture& mixture, const Order& order)
    : seed_(order.seed), epoch_size_(order.epoch_size == 0 ? samples.size() : order.epoch_size) {
  if (mixture.parts.empty()) {
    throw InvalidArgument("the mixture has no data set", {}, "give at least one data set");
  }
  draws_ = schedule_of(mixture, seed_);
  first_.push_back(0);
  std::vector<std::uint64_t> layouts;
  for (std::size_t i = 0; i < mixture.parts.size(); ++i) {
    const Mixture::Part& part = mixture.parts[i];
    if (part.num_samples > samples.size() - first_.back()) {
      throw InvalidArgument(
          "the mixture has more samples than the " + human_count(samples.size()) + " to be ordered",
          dataset_text(i),
          "correct num_samples of the data sets, which must add up to " +
              human_count(samples.size()));
    }
    const std::uint64_t end = first_.back() + part.num_samples;
    ShardOffsets starts;
    if (std::holds_alternative<Sharded>(part.kind)) {
      starts = part_starts(samples.shard_starts(), first_.back(), end, i);
      layouts.push_back(layout_hash(*starts));
    }
    parts_.emplace_back(part.num_samples, std::move(starts), part.kind,
                        derive_key(order.seed, 0, KeyPurpose::kMixtureDataset, i).low);
    first_.push_back(end);
  }
  if (first_.back() != samples.size()) {
    throw InvalidArgument("the mixture has " + counted(first_.back(), "sample") + ", but " +
                              human_count(samples.size()) + " are to be ordered",
                          {},
                          "correct num_samples of the data sets, which must add up to " +
                              human_count(samples.size()));
  }
  if (!layouts.empty()) layout_ = layout_hash(layouts);
  for (const Passes& part : parts_) static_cast<void>(part[0]);  // throws for an invalid option
  set_epoch(0);
}

std::unique_ptr<SlotOrder> MixtureSlots::clone() const {
  return std::make_unique<MixtureSlots>(*this);
}

void MixtureSlots::set_epoch(std::uint64_t epoch) {
  if (epoch_size_ == 0 || epoch >= kMaxSamples / epoch_size_) {
    throw InvalidArgument("epoch " + std::to_string(epoch) + " is too large for " +
                              counted(epoch_size_, "sample") + " per epoch of the mixture",
                          {},
                          "choose a smaller epoch; all epochs together have at most 2^62 samples");
  }
  epoch_ = epoch;
}

void MixtureSlots::set_weights(const Order& order) {
  draws_ = schedule_of(std::get<Mixture>(order.kind), seed_);
}

std::size_t MixtureSlots::dataset_of(std::uint64_t sample) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), sample);
  return static_cast<std::size_t>(after - first_.begin()) - 1;
}

/// Replaces draws from `dataset` by the sample numbers in the mixture.
void MixtureSlots::draw_from(std::size_t dataset, std::span<std::uint64_t> draws) const {
  const std::uint64_t n = parts_[dataset].size();
  while (!draws.empty()) {
    // Handles all draws at the front that are in one epoch of the data set: nearly always the whole
    // span.
    const std::uint64_t number = draws.front() / n;
    const std::uint64_t begin = number * n;
    std::size_t count = 0;
    while (count < draws.size() && draws[count] - begin < n) draws[count++] -= begin;
    parts_[dataset][number].map(draws.first(count));
    for (std::uint64_t& sample : draws.first(count)) sample += first_[dataset];
    draws = draws.subspan(count);
  }
}

void MixtureSlots::fill(std::uint64_t first, std::uint64_t stride,
                        std::span<std::uint64_t> out) const {
  SHARDWISE_ASSERT_HOT(in_epoch(first, stride, out.size()));
  std::array<std::uint32_t, kSlots> dataset;
  std::array<std::uint64_t, kSlots> draw;
  std::array<std::uint64_t, kSlots> sorted;
  std::array<std::uint16_t, kSlots> order;
  std::uint64_t slot = first_slot() + first;
  while (!out.empty()) {
    const std::size_t count = std::min(kSlots, out.size());
    draws_->locate(slot, stride, {dataset.data(), count}, {draw.data(), count});
    // Groups the draws by data set, because draws of one data set are close together in its order.
    std::iota(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), std::uint16_t{0});
    std::stable_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                     [&](std::uint16_t x, std::uint16_t y) { return dataset[x] < dataset[y]; });
    for (std::size_t i = 0; i < count; ++i) sorted[i] = draw[order[i]];
    for (std::size_t begin = 0; begin < count;) {
      const std::uint32_t from = dataset[order[begin]];
      std::size_t end = begin;
      while (end < count && dataset[order[end]] == from) ++end;
      draw_from(from, {sorted.data() + begin, end - begin});
      begin = end;
    }
    for (std::size_t i = 0; i < count; ++i) out[order[i]] = sorted[i];
    slot += count * stride;
    out = out.subspan(count);
  }
}

std::vector<std::uint64_t> MixtureSlots::slots_of(std::uint64_t sample) const {
  SHARDWISE_ASSERT(sample < first_.back());
  const std::size_t dataset = dataset_of(sample);
  const std::uint64_t n = parts_[dataset].size();
  const std::uint64_t begin = first_slot();
  const std::uint64_t end = begin + epoch_size_;
  // The draws in all blocks that the epoch touches. Draws in the first and the last block may be
  // outside of the epoch.
  const std::uint64_t low =
      draws_->draws_before(dataset, begin / MixtureDraws::kBlock * MixtureDraws::kBlock);
  const std::uint64_t high =
      draws_->draws_before(dataset, ceil_div(end, MixtureDraws::kBlock) * MixtureDraws::kBlock);
  std::vector<std::uint64_t> slots;
  for (std::uint64_t number = low / n; number * n < high; ++number) {
    const std::uint64_t draw =
        number * n + parts_[dataset][number].position_of(sample - first_[dataset]);
    if (draw < low || draw >= high) continue;
    const std::optional<std::uint64_t> slot = draws_->slot_of(dataset, draw);
    if (slot && *slot >= begin && *slot < end) slots.push_back(*slot - begin);
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

}  // namespace shardwise::detail
