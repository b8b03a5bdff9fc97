#include "shardwise/order/resampled_sampler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "order/arithmetic.h"
#include "order/check_options.h"
#include "shardwise/base/error.h"
#include "shardwise/order/key.h"

namespace shardwise {

namespace {

using order_detail::multiply_high;

OrderSpec resampled_spec(std::uint64_t n, const ShardOffsets& offsets,
                         const OrderOptions& options) {
  order_detail::checked(SamplerKind::kResampled, options);
  if (n == 0) throw InvalidArgument("cannot draw from 0 samples", {}, "there must be at least 1");
  OrderSpec spec;
  spec.order_version = EpochOrder::kVersion;
  spec.sampler = SamplerKind::kResampled;
  spec.num_samples = n;
  spec.seed = options.seed;
  spec.streams = options.streams;
  spec.resample = options.resample;
  spec.epoch_size = options.epoch_size == 0 ? n : options.epoch_size;
  if (options.resample == ResampleUnit::kShard) {
    if (!offsets) {
      throw InvalidArgument("cannot resample by shard", "the shard offsets are not given",
                            "give them in place of the number of samples");
    }
    spec.layout = order_detail::layout_hash(*offsets);
  }
  return spec;
}

[[noreturn]] void throw_not_exact(std::string_view what) {
  throw InvalidArgument(what, "the resampled sampler draws with replacement",
                        "use chunked or sharded, where each sample has one place");
}

}  // namespace

ResampledSampler::ResampledSampler(SampleCount n, const OrderOptions& options)
    : SlotSampler(resampled_spec(n.value(), nullptr, options), options,
                  options.epoch_size == 0 ? n.value() : options.epoch_size) {
  prepare();
}

ResampledSampler::ResampledSampler(ShardOffsets offsets, const OrderOptions& options)
    : SlotSampler(resampled_spec(order_detail::checked(offsets).back(), offsets, options), options,
                  options.epoch_size == 0 ? offsets->back() : options.epoch_size),
      offsets_(std::move(offsets)),
      draw_size_(order_detail::ceil_div(spec().num_samples, offsets_->size() - 1)) {
  prepare();
}

ResampledSampler& ResampledSampler::with_epoch(std::uint64_t num_samples) {
  if (num_samples == 0 || num_samples > kMaxSamples) {
    throw InvalidArgument("an epoch of " + std::to_string(num_samples) + " draws", {},
                          "it has at least 1 and at most 2^62");
  }
  mutable_spec().epoch_size = num_samples;
  set_positions(num_samples);
  set_epoch(epoch());
  return *this;
}

ResampledSampler& ResampledSampler::repeat(std::uint64_t times) {
  if (times > kMaxSamples / spec().epoch_size) {
    throw InvalidArgument("cannot repeat an epoch " + std::to_string(times) + " times", {},
                          "it has at most 2^62 draws");
  }
  return with_epoch(spec().epoch_size * times);
}

double ResampledSampler::expected_coverage(std::uint64_t num_draws, std::uint64_t num_samples) {
  if (num_samples == 0) return 0;
  const auto n = static_cast<double>(num_samples);
  return -std::expm1(static_cast<double>(num_draws) * std::log1p(-1.0 / n));
}

std::unique_ptr<Sampler> ResampledSampler::clone() const {
  return std::make_unique<ResampledSampler>(*this);
}

void ResampledSampler::prepare() { set_slots(KeptSlots(spec().epoch_size)); }

void ResampledSampler::fill(std::uint64_t first, std::uint64_t stride,
                            std::span<std::uint64_t> out) const {
  if (spec().resample == ResampleUnit::kShard) {
    fill_by_shard(first, stride, out);
    return;
  }
  for (std::uint64_t& sample : out) {
    const Hash128 draw = derive_key(spec().seed, epoch(), KeyPurpose::kResampled, first);
    sample = multiply_high(draw.low, spec().num_samples);
    first += stride;
  }
}

void ResampledSampler::fill_by_shard(std::uint64_t first, std::uint64_t stride,
                                     std::span<std::uint64_t> out) const {
  while (!out.empty()) {
    // All that is read of one shard in one pass.
    const std::uint64_t number = first / draw_size_;
    const std::uint64_t offset = first % draw_size_;
    const Hash128 draw = derive_key(spec().seed, epoch(), KeyPurpose::kResampledShard, number);
    const std::uint64_t hit = multiply_high(draw.low, spec().num_samples);
    const auto after = std::upper_bound(offsets_->begin(), offsets_->end(), hit);
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

std::vector<std::uint64_t> ResampledSampler::slots_of(std::uint64_t /*sample*/) const {
  throw_not_exact("cannot say when a sample comes");
}

void ResampledSampler::expect_epoch(AuditExpectation& /*expectation*/) const {
  throw_not_exact("cannot prove an epoch");
}

}  // namespace shardwise
