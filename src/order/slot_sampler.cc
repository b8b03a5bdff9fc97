#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "order/arithmetic.h"
#include "order/deal.h"
#include "order/mixture_slots.h"
#include "order/pass_slots.h"
#include "order/resampled_slots.h"
#include "order/sampler_access.h"
#include "order/spec.h"
#include "order/wids_sampler.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

namespace {

using detail::ceil_div;
using detail::KeptSlots;
using detail::Partition;
using detail::SlotOrder;
using detail::SlotSampler;
using detail::Walk;

// Deliveries have four numberings, each from 0. An example: slots 2 and 5 are left out, the sampler
// began at slot 4, and two ranks read with Order::Tail::kPad.
//
//   slot           0  1  2  3  4  5  6  7  8  9         of the epoch, before anything is left out:
//                        x        x                     "position" in tokens and public headers
//   kept slot      0  1     2  3     4  5  6  7         the slots without gaps (KeptSlots)
//   walk slot                  0     1  2  3  4    5    from where the sampler began; 5 is a pad
//   rank, index                0,0   1,0 0,1 1,1 0,2  1,2
//
//   slot -> kept slot       kept.kept_before(slot)      if kept.is_kept(slot)
//   kept -> walk slot       minus first_kept            (3 above)
//   walk slot -> slot       Walk::slot(): kept.slot(first_kept + w); beyond num_slots() a pad
//   rank, index -> walk     partition.slot(index) = index * num_shares() + share()
//
// Pads repeat slots of the epoch from its slot 0, not of the walk, so the pads of a run do not
// depend on where it was resumed. `pads` does not contain samples that are left out from a later
// point of this epoch, so no pad repeats such a sample.
//
// Except for pads, walk slot w has the same sample for any number of ranks. The first t walk slots
// are therefore the same samples for any number of ranks, and a token stores only the slot of walk
// slot t (position_after()). With balanced bytes this is true only after whole steps: deal()
// assigns the walk slots of a step to ranks differently, and `rows` stores those of this rank.
//
// A Walk never changes, except for `dealt`, a cache of the last step. If prepare() throws, the
// sampler is unchanged, because a new Walk is complete before it replaces the old one.

/// Number of slots whose samples are computed at a time.
constexpr std::size_t kSlotsAtOnce = 4096;

/// Adds the slots of samples that are left out to `gaps`, for an order that can find samples. For
/// `whole_epoch` see kept_slots().
void find_samples(const SlotOrder& slots, std::uint64_t epoch, const SkipList& skip,
                  bool whole_epoch, std::vector<KeptSlots::Range>& gaps) {
  for (const auto& [sample, entry] : skip.samples()) {
    if (entry.from > SkipList::Point{epoch, slots.num_slots()}) continue;
    for (const std::uint64_t slot : slots.slots_of(sample)) {
      if (whole_epoch || entry.from <= SkipList::Point{epoch, slot})
        gaps.push_back({slot, slot + 1});
    }
  }
}

/// Does the work of find_samples() for an order that cannot find samples: searches every slot.
void look_through(const SlotOrder& slots, std::uint64_t epoch, const SkipList& skip,
                  bool whole_epoch, std::vector<KeptSlots::Range>& gaps) {
  std::vector<std::uint64_t> samples(kSlotsAtOnce);
  for (std::uint64_t first = 0; first < slots.num_slots(); first += samples.size()) {
    samples.resize(std::min<std::uint64_t>(kSlotsAtOnce, slots.num_slots() - first));
    slots.fill(first, 1, samples);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto found = skip.samples().find(samples[i]);
      if (found == skip.samples().end()) continue;
      const std::uint64_t slot = first + i;
      const std::uint64_t point = whole_epoch ? slots.num_slots() : slot;
      if (found->second.from <= SkipList::Point{epoch, point}) gaps.push_back({slot, slot + 1});
    }
  }
}

/// Returns the slots of an epoch without those that `skip` leaves out. With `whole_epoch`, samples
/// that `skip` leaves out only from a later point of this epoch on are left out, too.
KeptSlots kept_slots(const SlotOrder& slots, std::uint64_t epoch, const SkipList& skip,
                     bool whole_epoch) {
  std::vector<KeptSlots::Range> gaps;
  if (slots.can_find()) {
    find_samples(slots, epoch, skip, whole_epoch, gaps);
  } else if (!skip.samples().empty()) {
    look_through(slots, epoch, skip, whole_epoch, gaps);
  }
  const SkipList::Ranges& ranges = skip.ranges();
  for (auto at = ranges.lower_bound({epoch, 0}); at != ranges.end() && at->first.first == epoch;
       ++at) {
    gaps.push_back({at->first.second, at->second});
  }
  return KeptSlots(slots.num_slots(), std::move(gaps));
}

}  // namespace

namespace detail {

std::unique_ptr<SlotOrder> make_slot_order(const SampleSet& samples, const Order& order) {
  if (const auto* chunked = std::get_if<Chunked>(&order.kind)) {
    return std::make_unique<PassSlots>(samples.size(), nullptr, *chunked, order);
  }
  if (const auto* sharded = std::get_if<Sharded>(&order.kind)) {
    return std::make_unique<PassSlots>(samples.size(), samples.shard_starts(), *sharded, order);
  }
  if (const auto* resampled = std::get_if<Resampled>(&order.kind)) {
    return std::make_unique<ResampledSlots>(samples, *resampled, order);
  }
  if (const auto* mixture = std::get_if<Mixture>(&order.kind)) {
    return std::make_unique<MixtureSlots>(samples, *mixture, order);
  }
  return std::make_unique<PassSlots>(samples.size(), nullptr, Sequential{}, order);
}

}  // namespace detail

SlotSampler::SlotSampler(const SampleSet& samples, const Order& order, const RankOptions& ranks)
    : Sampler(samples, detail::make_spec(samples, order, ranks), order.skip, ranks),
      slots_(detail::make_slot_order(samples, spec().order)),
      bytes_(order.balance_bytes ? samples.sample_bytes() : nullptr) {
  // With one sample per rank in each step, balancing has no effect.
  if (batch_size() == 1) bytes_ = nullptr;
  // This Partition is made only to check the number of streams against the number of ranks.
  Partition(0, num_shares(), share(), order.tail, order.streams);
  mutable_spec().layout = slots_->layout();
  set_exact(slots_->is_exact());
  start({}, order.skip);
}

SlotSampler::SlotSampler(const SlotSampler& other)
    : Sampler(other),
      slots_(other.slots_->clone()),
      bytes_(other.bytes_),
      walk_(std::make_unique<Walk>(*other.walk_)) {}

SlotSampler::~SlotSampler() = default;

std::unique_ptr<Sampler> SlotSampler::clone() const { return std::make_unique<SlotSampler>(*this); }

void SlotSampler::prepare(SkipList::Point point, const SkipList& skip, const Order* changed) {
  std::unique_ptr<SlotOrder> slots = slots_->clone();
  if (changed != nullptr) slots->set_weights(*changed);
  slots->set_epoch(point.epoch);
  KeptSlots kept = kept_slots(*slots, point.epoch, skip, /*whole_epoch=*/false);
  const std::uint64_t first_kept = kept.kept_before(point.position);
  const Partition partition(kept.size() - first_kept, num_shares(), share(), order().tail);
  KeptSlots pads(0);
  if (partition.delivered_slots() > partition.num_slots()) {
    pads = kept_slots(*slots, point.epoch, skip, /*whole_epoch=*/true);
    if (pads.size() == 0) pads = kept;
  }
  auto walk = std::make_unique<Walk>(Walk{.kept = std::move(kept),
                                          .first_kept = first_kept,
                                          .partition = partition,
                                          .pads = std::move(pads),
                                          .dealt = detail::Dealt(num_shares())});
  slots_ = std::move(slots);
  walk_ = std::move(walk);
  set_walk(partition.delivered_slots(), partition.size());
}

void SlotSampler::evaluate(std::uint64_t first, std::span<std::uint64_t> out) const {
  SHARDWISE_ASSERT(first + out.size() <= size());
  if (bytes_) {
    evaluate_balanced(first, out);
  } else {
    fill_row(walk_->partition.slot(first), num_shares(), out);
  }
}

/// Sets out[i] to the sample in walk slot first + i * stride. Walk slots include padding.
/// REQUIRES: stride is 1 or num_shares().
void SlotSampler::fill_row(std::uint64_t first, std::uint64_t stride,
                           std::span<std::uint64_t> out) const {
  SHARDWISE_ASSERT(stride == 1 || stride == num_shares());
  const std::uint64_t num_slots = walk_->partition.num_slots();
  while (!out.empty()) {
    // Walk slots without a gap between them are consecutive slots, which one fill() computes.
    std::size_t count = 1;  // pads are computed one by one, because there is at most one per rank
    if (first < num_slots) {
      const std::uint64_t run =
          std::min(num_slots - first, walk_->kept.run_length(walk_->first_kept + first));
      count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), ceil_div(run, stride)));
    }
    slots_->fill(walk_->slot(first), stride, out.first(count));
    first += count * stride;
    out = out.subspan(count);
  }
}

/// Distributes a step to all ranks, and stores the part of this rank.
const detail::Dealt& SlotSampler::deal(std::uint64_t step) const {
  detail::Dealt& dealt = walk_->dealt;
  if (dealt.step == step) return dealt;
  dealt.step = ~std::uint64_t{0};  // mark it as invalid, in case bytes_() throws below
  const std::uint64_t per_step = num_shares() * batch_size();
  const std::uint64_t first = step * per_step;
  dealt.all_samples.resize(std::min(per_step, walk_->partition.delivered_slots() - first));
  dealt.all_sizes.resize(dealt.all_samples.size());
  fill_row(first, 1, dealt.all_samples);
  for (std::size_t i = 0; i < dealt.all_samples.size(); ++i) {
    dealt.all_sizes[i] = bytes_(dealt.all_samples[i]);
  }
  dealt.dealer.slots_of(share(), step, dealt.all_sizes, dealt.places);
  dealt.samples.clear();
  dealt.rows.clear();
  for (const std::uint32_t place : dealt.places) {
    dealt.samples.push_back(dealt.all_samples[place]);
    dealt.rows.push_back(first + place);
  }
  dealt.step = step;
  return dealt;
}

void SlotSampler::evaluate_balanced(std::uint64_t first, std::span<std::uint64_t> out) const {
  while (!out.empty()) {
    const std::uint64_t step = first / batch_size();
    const std::uint64_t place = first % batch_size();
    const std::vector<std::uint64_t>& samples = deal(step).samples;
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(samples.size() - place, out.size()));
    std::copy_n(samples.begin() + static_cast<std::ptrdiff_t>(place), count, out.begin());
    first += count;
    out = out.subspan(count);
  }
}

std::uint64_t SlotSampler::find_position(std::uint64_t index) const {
  if (bytes_) return walk_->slot(deal(index / batch_size()).rows[index % batch_size()]);
  return walk_->slot(walk_->partition.slot(index));
}

std::optional<std::uint64_t> SlotSampler::position_after(std::uint64_t count) const {
  if (count >= walk_->partition.delivered_slots()) return std::nullopt;
  return walk_->slot(count);
}

std::uint64_t SlotSampler::num_positions() const { return slots_->num_slots(); }

std::uint64_t SlotSampler::count_before(std::uint64_t position) const {
  // The second term excludes slots that the tail policy drops.
  return std::min(walk_->kept.kept_before(position),
                  walk_->first_kept + walk_->partition.delivered_slots());
}

void SlotSampler::expect(EpochAudit::Expectation& expectation) const {
  const Walk& walk = *walk_;
  const std::uint64_t num_slots = walk.partition.num_slots();
  const std::uint64_t delivered = walk.partition.delivered_slots();
  std::vector<std::uint64_t> samples;
  const auto sample_in = [this](std::uint64_t slot) {
    std::uint64_t sample = 0;
    slots_->fill(slot, 1, {&sample, 1});
    return sample;
  };
  for (std::uint64_t slot = num_slots; slot < delivered; ++slot) {
    samples.push_back(sample_in(walk.slot(slot)));
  }
  expectation.repeat(samples);
  if (is_exact()) {
    samples.clear();
    for (const KeptSlots::Gap& gap : walk.kept.gaps()) {
      const std::size_t before = samples.size();
      samples.resize(before + (gap.end - gap.begin));
      slots_->fill(gap.begin, 1, std::span(samples).subspan(before));
    }
    for (std::uint64_t slot = delivered; slot < num_slots; ++slot) {
      samples.push_back(sample_in(walk.slot(slot)));
    }
    expectation.leave_out(samples);
    return;
  }
  // Adds all slots of the epoch, except those left out or dropped.
  const std::uint64_t end = walk.first_kept + std::min(delivered, num_slots);
  samples.resize(kSlotsAtOnce);
  for (std::uint64_t kept = 0; kept < end;) {
    const std::uint64_t run = std::min(walk.kept.run_length(kept), end - kept);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(run, kSlotsAtOnce));
    const std::span<std::uint64_t> part = std::span(samples).first(count);
    slots_->fill(walk.kept.slot(kept), 1, part);
    expectation.repeat(part);
    kept += count;
  }
  expectation.set_claim(slots_->claim());
}

std::vector<Sampler::Delivery> SlotSampler::find_deliveries(std::uint64_t sample) const {
  const Walk& walk = *walk_;
  const std::uint64_t num_slots = walk.partition.num_slots();
  const std::uint64_t delivered = walk.partition.delivered_slots();
  std::vector<std::uint64_t> numbers;  // walk slots
  for (const std::uint64_t slot : slots_->slots_of(sample)) {
    const std::uint64_t kept = walk.kept.kept_before(slot);
    if (walk.kept.is_kept(slot) && kept >= walk.first_kept && kept - walk.first_kept < delivered) {
      numbers.push_back(kept - walk.first_kept);
    }
    for (std::uint64_t pad = num_slots; pad < delivered; ++pad) {
      if (walk.slot(pad) == slot) numbers.push_back(pad);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<Delivery> found;
  for (const std::uint64_t number : numbers) {
    if (!bytes_) {
      found.push_back({number % num_shares(), number / num_shares()});
      continue;
    }
    // The rank is known only after the step is distributed.
    const std::uint64_t step = number / (num_shares() * batch_size());
    for (std::uint64_t share = 0; share < num_shares(); ++share) {
      const std::unique_ptr<Sampler> other = for_rank(share * replicas());
      const auto& rows = static_cast<const SlotSampler&>(*other).deal(step).rows;
      const auto at = std::find(rows.begin(), rows.end(), number);
      if (at == rows.end()) continue;
      found.push_back({share, step * batch_size() + static_cast<std::uint64_t>(at - rows.begin())});
      break;
    }
  }
  return found;
}

namespace {

Order order_of(const ChunkedSampler::Options& options) {
  return {.seed = options.seed,
          .kind = Chunked{.chunk_size = options.chunk_size, .window = options.window},
          .streams = options.streams,
          .tail = options.tail,
          .skip = options.skip};
}

}  // namespace

ChunkedSampler::ChunkedSampler(const SampleSet& samples) : ChunkedSampler(samples, Options{}) {}

ChunkedSampler::ChunkedSampler(const SampleSet& samples, const Options& options,
                               const RankOptions& ranks)
    : SlotSampler(samples, order_of(options), ranks) {}

std::unique_ptr<Sampler> make_sampler(const SampleSet& samples, const Order& order,
                                      const RankOptions& ranks) {
  if (std::holds_alternative<Wids>(order.kind)) {
    return std::make_unique<WidsSampler>(samples, order, ranks);
  }
  return std::make_unique<SlotSampler>(samples, order, ranks);
}

}  // namespace shardwise
