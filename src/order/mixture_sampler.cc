#include "shardwise/order/mixture_sampler.h"

#include <algorithm>
#include <bit>
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
using order_detail::uint128;

constexpr std::uint64_t kWhole = std::uint64_t{1} << 32;
/// From this stride on, single samples of a block are cheaper than all of them.
constexpr std::uint64_t kFewStride = 8;

std::string dataset_text(std::size_t i) { return "data set " + std::to_string(i); }

void check_part(const MixturePart& part, std::size_t i) {
  if (!std::isfinite(part.weight) || part.weight < 0) {
    throw InvalidArgument("a weight of " + std::to_string(part.weight), dataset_text(i),
                          "weights are finite and at least 0");
  }
  if (part.weight > 0 && part.num_samples.value() == 0) {
    throw InvalidArgument("nothing to draw from", dataset_text(i),
                          "it has no samples: leave it out, or give it weight 0");
  }
  OrderOptions options;
  options.sampler = part.sampler;
  options.chunk_size = part.chunk_size;
  options.window = part.window;
  options.shuffle = part.shuffle;
  order_detail::checked(part.sampler, options);
  if (part.sampler != SamplerKind::kChunked && part.sampler != SamplerKind::kSharded &&
      part.sampler != SamplerKind::kSequential) {
    throw InvalidArgument("a mixture of " + std::string(sampler_name(part.sampler)) + " samplers",
                          dataset_text(i), "use chunked, sharded or sequential");
  }
  if (part.sampler == SamplerKind::kSharded &&
      order_detail::checked(part.offsets).back() != part.num_samples.value()) {
    throw InvalidArgument("the shards do not hold as many samples as the data set", dataset_text(i),
                          "give its own offsets");
  }
}

/// Shares of 2^32, as running sums.
std::vector<std::uint64_t> shares_of(const std::vector<MixturePart>& parts) {
  double total = 0;
  for (const MixturePart& part : parts) total += part.weight;
  if (!(total > 0) || !std::isfinite(total)) {
    throw InvalidArgument("a mixture with no weight", {},
                          "at least one weight must be above 0, and their sum finite");
  }
  std::vector<std::uint64_t> shares;
  std::vector<std::pair<double, std::size_t>> fractions;  // negated, so that they sort as wanted
  std::uint64_t missing = kWhole;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double exact = parts[i].weight / total * static_cast<double>(kWhole);
    const auto share = std::min(static_cast<std::uint64_t>(exact), missing);
    shares.push_back(share);
    missing -= share;
    if (parts[i].weight > 0) fractions.emplace_back(static_cast<double>(share) - exact, i);
  }
  std::sort(fractions.begin(), fractions.end());
  for (std::size_t i = 0; missing > 0; i = (i + 1) % fractions.size(), --missing) {
    ++shares[fractions[i].second];
  }
  std::uint64_t before = 0;
  for (std::uint64_t& share : shares) before += std::exchange(share, before);
  shares.push_back(before);
  return shares;
}

OrderSpec mixture_spec(const std::vector<MixturePart>& parts, const OrderOptions& options) {
  order_detail::checked(SamplerKind::kMixture, options);
  if (parts.empty())
    throw InvalidArgument("a mixture of nothing", {}, "give at least one data set");
  OrderSpec spec;
  spec.order_version = EpochOrder::kVersion;
  spec.sampler = SamplerKind::kMixture;
  spec.seed = options.seed;
  Hasher128 layout;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_part(parts[i], i);
    const std::uint64_t n = parts[i].num_samples.value();
    if (n > kMaxSamples - spec.num_samples) {
      throw InvalidArgument("too many samples in a mixture", {}, "at most 2^62 are possible");
    }
    spec.num_samples += n;
    const bool sharded = parts[i].sampler == SamplerKind::kSharded;
    for (const std::uint64_t value :
         {n, std::bit_cast<std::uint64_t>(parts[i].weight),
          static_cast<std::uint64_t>(parts[i].sampler), parts[i].chunk_size, parts[i].window,
          std::uint64_t{parts[i].shuffle},
          sharded ? order_detail::layout_hash(*parts[i].offsets) : 0}) {
      layout.update_u64(value);
    }
  }
  spec.layout = layout.digest().low;
  spec.epoch_size = options.epoch_size == 0 ? spec.num_samples : options.epoch_size;
  return spec;
}

std::uint64_t epoch_size_of(const std::vector<MixturePart>& parts, const OrderOptions& options) {
  return mixture_spec(parts, options).epoch_size;
}

}  // namespace

MixtureSampler::MixtureSampler(std::vector<MixturePart> parts, const OrderOptions& options)
    : SlotSampler(mixture_spec(parts, options), options, epoch_size_of(parts, options)),
      parts_(std::move(parts)),
      shares_(shares_of(parts_)),
      orders_(parts_.size()) {
  first_.push_back(0);
  for (const MixturePart& part : parts_) first_.push_back(first_.back() + part.num_samples.value());
  prepare();
}

std::unique_ptr<Sampler> MixtureSampler::clone() const {
  return std::make_unique<MixtureSampler>(*this);
}

void MixtureSampler::prepare() {
  if (spec().epoch_size == 0 || epoch() >= kMaxSamples / spec().epoch_size) {
    throw InvalidArgument("no epoch " + std::to_string(epoch()) + " of a mixture with " +
                              std::to_string(spec().epoch_size) + " slots an epoch",
                          {}, "a mixture has at most 2^62 slots in all its epochs");
  }
  set_slots(KeptSlots(spec().epoch_size));
}

MixtureSample MixtureSampler::split(std::uint64_t number) const {
  if (number >= first_.back()) {
    throw OutOfRange("no sample " + std::to_string(number) + " in the mixture", {},
                     "numbers are in [0, " + std::to_string(first_.back()) + ")");
  }
  const auto after = std::upper_bound(first_.begin(), first_.end(), number);
  const auto dataset = static_cast<std::uint64_t>(after - first_.begin()) - 1;
  return {dataset, number - first_[dataset]};
}

std::optional<MixtureSample> MixtureSampler::next_split() {
  const std::optional<std::uint64_t> number = next();
  if (!number) return std::nullopt;
  return split(*number);
}

void MixtureSampler::split_draws(std::size_t lo, std::size_t hi, std::uint64_t draws,
                                 std::vector<std::uint64_t>& counts) const {
  if (hi - lo == 1 || draws == 0) {
    counts[lo] = draws;
    return;
  }
  const std::size_t mid = (lo + hi) / 2;
  const std::uint64_t whole = shares_[hi] - shares_[lo];
  const std::uint64_t part = shares_[mid] - shares_[lo];
  const std::uint64_t phase =
      multiply_high(derive_key(spec().seed, lo, KeyPurpose::kMixturePhase, hi).low, whole);
  const auto left =
      static_cast<std::uint64_t>((static_cast<uint128>(draws) * part + phase) / whole);
  split_draws(lo, mid, left, counts);
  split_draws(mid, hi, draws - left, counts);
}

std::vector<std::uint64_t> MixtureSampler::draws_before_block(std::uint64_t block) const {
  std::vector<std::uint64_t> counts(parts_.size());
  split_draws(0, parts_.size(), block * kBlock, counts);
  return counts;
}

std::uint64_t MixtureSampler::draws_before(std::size_t dataset, std::uint64_t slot) const {
  if (dataset >= parts_.size()) {
    throw OutOfRange("no data set " + std::to_string(dataset) + " in the mixture", {},
                     "it has " + std::to_string(parts_.size()));
  }
  std::uint64_t draws = draws_before_block(slot / kBlock)[dataset];
  const Block& current = block(slot / kBlock, false);
  for (std::size_t o = 0; o < slot % kBlock; ++o) draws += current.dataset[o] == dataset ? 1 : 0;
  return draws;
}

const MixtureSampler::Block& MixtureSampler::block(std::uint64_t number, bool with_samples) const {
  if (block_.number != number) {
    std::vector<std::uint64_t> draws = draws_before_block(number);
    const std::vector<std::uint64_t> end = draws_before_block(number + 1);
    std::array<std::uint32_t, kBlock> list{};
    std::size_t size = 0;
    for (std::size_t d = 0; d < parts_.size(); ++d) {
      for (std::uint64_t i = draws[d]; i < end[d]; ++i)
        list[size++] = static_cast<std::uint32_t>(d);
    }
    std::array<std::uint64_t, kBlock> places;
    for (std::size_t o = 0; o < kBlock; ++o) places[o] = o;
    Permutation(kBlock, derive_key(spec().seed, 0, KeyPurpose::kMixtureBlock, number))
        .apply(places);
    for (std::size_t o = 0; o < kBlock; ++o) {
      block_.dataset[o] = list[places[o]];
      block_.draw[o] = draws[block_.dataset[o]]++;
    }
    block_.number = number;
    block_.has_samples = false;
  }
  if (with_samples && !block_.has_samples) {
    // The draws of each data set follow one another, so they are made together.
    std::array<std::uint64_t, kBlock> made;
    std::vector<bool> done(parts_.size());
    for (std::size_t o = 0; o < kBlock; ++o) {
      const std::uint32_t d = block_.dataset[o];
      if (done[d]) continue;
      done[d] = true;
      const auto count = static_cast<std::size_t>(std::count(
          block_.dataset.begin() + static_cast<std::ptrdiff_t>(o), block_.dataset.end(), d));
      draw(d, block_.draw[o], {made.data(), count});
      std::size_t next = 0;
      for (std::size_t p = o; p < kBlock; ++p) {
        if (block_.dataset[p] == d) block_.sample[p] = made[next++];
      }
    }
    block_.has_samples = true;
  }
  return block_;
}

const EpochOrder& MixtureSampler::order(std::size_t dataset, std::uint64_t epoch) const {
  std::optional<CachedOrder>& cached = orders_[dataset];
  if (!cached || cached->epoch != epoch) {
    const MixturePart& part = parts_[dataset];
    const EpochOrder::Shuffle shuffle{
        derive_key(spec().seed, 0, KeyPurpose::kMixtureDataset, dataset).low, epoch, part.window};
    const auto make = [&] {
      if (part.sampler == SamplerKind::kSequential || !part.shuffle) {
        return EpochOrder::sequential(part.num_samples.value());
      }
      if (part.sampler == SamplerKind::kSharded) return EpochOrder::sharded(part.offsets, shuffle);
      return EpochOrder::chunked(part.num_samples.value(), part.chunk_size, shuffle);
    };
    cached = CachedOrder{epoch, make()};
  }
  return cached->order;
}

/// out[i] = the number of draw first + i from `dataset`.
void MixtureSampler::draw(std::size_t dataset, std::uint64_t first,
                          std::span<std::uint64_t> out) const {
  const std::uint64_t n = parts_[dataset].num_samples.value();
  while (!out.empty()) {
    const std::uint64_t position = first % n;
    const std::span<std::uint64_t> run =
        out.first(std::min<std::uint64_t>(out.size(), n - position));
    order(dataset, first / n).fill(position, 1, run);
    for (std::uint64_t& number : run) number += first_[dataset];
    first += run.size();
    out = out.subspan(run.size());
  }
}

void MixtureSampler::fill(std::uint64_t first, std::uint64_t stride,
                          std::span<std::uint64_t> out) const {
  std::uint64_t slot = epoch_begin() + first;
  const bool all = stride < kFewStride && out.size() > 1;
  for (std::uint64_t& number : out) {
    const Block& current = block(slot / kBlock, all);
    const std::size_t o = slot % kBlock;
    if (current.has_samples) {
      number = current.sample[o];
    } else {
      draw(current.dataset[o], current.draw[o], {&number, 1});
    }
    slot += stride;
  }
}

std::vector<std::uint64_t> MixtureSampler::slots_of(std::uint64_t sample) const {
  const auto [dataset, number] = split(sample);
  const std::uint64_t n = parts_[dataset].num_samples.value();
  const std::uint64_t begin = draws_before(dataset, epoch_begin());
  const std::uint64_t end = draws_before(dataset, epoch_begin() + spec().epoch_size);
  std::vector<std::uint64_t> slots;
  for (std::uint64_t own_epoch = begin / n; own_epoch * n < end; ++own_epoch) {
    const std::uint64_t wanted = own_epoch * n + order(dataset, own_epoch).position_of(number);
    if (wanted < begin || wanted >= end) continue;
    // The last block before which there were not more draws than `wanted`.
    std::uint64_t low = epoch_begin() / kBlock;
    std::uint64_t high = (epoch_begin() + spec().epoch_size) / kBlock + 1;
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      (draws_before_block(middle)[dataset] <= wanted ? low : high) = middle;
    }
    const Block& found = block(low, false);
    for (std::size_t o = 0; o < kBlock; ++o) {
      if (found.dataset[o] == dataset && found.draw[o] == wanted) {
        slots.push_back(low * kBlock + o - epoch_begin());
      }
    }
  }
  return slots;
}

void MixtureSampler::expect_epoch(AuditExpectation& /*expectation*/) const {
  throw InvalidArgument("cannot prove an epoch of a mixture",
                        "the exact epochs are those of its data sets",
                        "keep an EpochAudit for each data set");
}

}  // namespace shardwise
