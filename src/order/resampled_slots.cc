#include "order/resampled_slots.h"

#include <algorithm>

#include "base/assert.h"
#include "base/counted.h"
#include "base/text.h"
#include "order/arithmetic.h"
#include "order/key.h"
#include "order/permutation.h"
#include "order/spec.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

ResampledSlots::ResampledSlots(const SampleSet& samples, const Resampled& kind, const Order& order)
    : n_(samples.size()),
      seed_(order.seed),
      epoch_size_(order.epoch_size == 0 ? n_ : order.epoch_size),
      streams_(epoch_size_, order.streams) {
  if (n_ == 0) throw InvalidArgument("cannot draw from 0 samples", {}, "give at least 1 sample");
  if (epoch_size_ > kMaxSamples) {
    throw InvalidArgument("an epoch cannot have " + counted(epoch_size_, "draw"), {},
                          "choose 1 to 2^62 draws");
  }
  if (kind.unit == Resampled::Unit::kShard) {
    if (!kind.weights.empty()) {
      throw InvalidArgument("weights cannot be used with draws by shard",
                            "column " + in_quotes(kind.weights), "draw by sample");
    }
    starts_ = samples.shard_starts();
    draw_size_ = ceil_div(n_, std::max<std::uint64_t>(starts_->size() - 1, 1));
  } else if (!kind.weights.empty()) {
    weighted_ = std::make_shared<const WeightedDraw>(samples.column(kind.weights));
  }
}

std::unique_ptr<SlotOrder> ResampledSlots::clone() const {
  return std::make_unique<ResampledSlots>(*this);
}

std::uint64_t ResampledSlots::layout() const {
  if (weighted_) return weighted_->digest();
  return starts_ ? layout_hash(*starts_) : 0;
}

void ResampledSlots::fill(std::uint64_t first, std::uint64_t stride,
                          std::span<std::uint64_t> out) const {
  SHARDWISE_ASSERT_HOT(in_epoch(first, stride, out.size()));
  SHARDWISE_ASSERT_HOT(stride % streams_.count() == 0 || streams_.count() % stride == 0);
  const std::uint64_t num_streams = streams_.count();
  if (stride % num_streams == 0) {
    fill_positions(streams_.position_of_slot(first), stride / num_streams, out);
    return;
  }
  for (std::uint64_t& sample : out) {
    fill_positions(streams_.position_of_slot(first), 1, {&sample, 1});
    first += stride;
  }
}

void ResampledSlots::fill_positions(std::uint64_t first, std::uint64_t stride,
                                    std::span<std::uint64_t> out) const {
  if (starts_) {
    fill_by_shard(first, stride, out);
    return;
  }
  for (std::uint64_t& sample : out) {
    const Hash128 draw = derive_key(seed_, epoch_, KeyPurpose::kResampled, first);
    sample = weighted_ ? (*weighted_)(draw.low) : multiply_high(draw.low, n_);
    first += stride;
  }
}

void ResampledSlots::fill_by_shard(std::uint64_t first, std::uint64_t stride,
                                   std::span<std::uint64_t> out) const {
  while (!out.empty()) {
    // Handles all slots of one draw of a shard.
    const std::uint64_t number = first / draw_size_;
    const std::uint64_t offset = first % draw_size_;
    const Hash128 draw = derive_key(seed_, epoch_, KeyPurpose::kResampledShard, number);
    const std::uint64_t hit = multiply_high(draw.low, n_);
    const auto after = std::upper_bound(starts_->begin(), starts_->end(), hit);
    const std::uint64_t begin = *(after - 1);
    const std::uint64_t length = *after - begin;
    const std::uint64_t pass = offset / length;
    const std::uint64_t pass_end = std::min((pass + 1) * length, draw_size_);
    const std::uint64_t left = (pass_end - 1 - offset) / stride + 1;
    const std::span<std::uint64_t> run = out.first(std::min<std::uint64_t>(left, out.size()));
    const Permutation permutation(
        length, derive_key(draw.low, draw.high, KeyPurpose::kResampledPass, pass));
    for (std::size_t i = 0; i < run.size(); ++i) run[i] = offset - pass * length + i * stride;
    permutation.apply(run);
    for (std::uint64_t& sample : run) sample += begin;
    first += run.size() * stride;
    out = out.subspan(run.size());
  }
}

std::vector<std::uint64_t> ResampledSlots::slots_of(std::uint64_t /*sample*/) const {
  throw InvalidArgument("cannot tell when a sample is read",
                        "the resampled sampler draws with replacement",
                        "use chunked or sharded, where each sample has one place");
}

}  // namespace shardwise::detail
