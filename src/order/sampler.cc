#include "shardwise/order/sampler.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "order/arithmetic.h"
#include "order/check_options.h"
#include "shardwise/base/error.h"

namespace shardwise {

namespace {

using order_detail::ceil_div;

constexpr std::size_t kBlock = 512;

void check_sample(std::uint64_t sample, std::uint64_t num_samples) {
  if (sample < num_samples) return;
  throw OutOfRange("no sample " + std::to_string(sample), {},
                   "sample numbers are in [0, " + std::to_string(num_samples) + ")");
}

OrderSpec ordered_spec(SamplerKind kind, std::uint64_t n, const ShardOffsets& offsets,
                       const OrderOptions& options) {
  OrderSpec spec;
  spec.order_version = EpochOrder::kVersion;
  spec.sampler = kind;
  spec.num_samples = n;
  spec.streams = options.streams;
  spec.tail = options.tail;
  spec.balance_bytes = options.balance_bytes;
  if (kind == SamplerKind::kSequential) return spec;
  spec.seed = options.seed;
  spec.window = options.window;
  spec.shuffle = options.shuffle;
  if (kind == SamplerKind::kChunked) spec.chunk_size = options.chunk_size;
  if (kind == SamplerKind::kSharded) spec.layout = order_detail::layout_hash(*offsets);
  return spec;
}

}  // namespace

void SampleCount::throw_negative(std::int64_t n) {
  throw InvalidArgument("a number of samples cannot be " + std::to_string(n), {},
                        "it is at least 0");
}

Sampler::Sampler(OrderSpec spec, const OrderOptions& options)
    : spec_(spec),
      epoch_(options.epoch),
      skip_(options.skip),
      partition_(0, options.world_size, options.rank, options.tail, options.streams) {}

Sampler::~Sampler() = default;

void Sampler::set_slots(KeptSlots kept) {
  kept_ = std::move(kept);
  partition_ = Partition(kept_.size(), world_size(), rank(), partition_.tail());
  size_ = partition_.size();
}

void Sampler::set_epoch(std::uint64_t epoch) {
  epoch_ = epoch;
  prepare();
  reset();
}

void Sampler::move_to(std::uint64_t index) noexcept {
  buffer_first_ = index;
  cursor_ = 0;
  filled_ = 0;
  next_fill_ = kFirstFill;
}

void Sampler::seek(std::uint64_t index) {
  if (index > size_) {
    throw OutOfRange(
        "cannot move to sample " + std::to_string(index) + " of rank " + std::to_string(rank()),
        "epoch " + std::to_string(epoch_),
        "it delivers " + std::to_string(size_) + " samples in this epoch");
  }
  first_kept_ = 0;
  first_index_ = 0;
  move_to(index);
}

void Sampler::resume_at(std::uint64_t slots) {
  first_kept_ = std::min(kept_.kept_before(slots), partition_.delivered_slots());
  first_index_ = std::min(partition_.index_at(first_kept_), size_);
  move_to(first_index_);
}

std::uint64_t Sampler::at(std::uint64_t index) const {
  if (index >= size_) {
    throw OutOfRange("no sample " + std::to_string(index) + " on rank " + std::to_string(rank()),
                     "epoch " + std::to_string(epoch_),
                     "it delivers " + std::to_string(size_) + " samples in this epoch");
  }
  std::uint64_t sample = 0;
  evaluate(index, {&sample, 1});
  return sample;
}

bool Sampler::refill() {
  const std::uint64_t first = position();
  if (first >= size_) return false;
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(next_fill_, size_ - first));
  evaluate(first, {buffer_.data(), count});
  next_fill_ = std::min(4 * next_fill_, kBufferSize);
  buffer_first_ = first;
  cursor_ = 0;
  filled_ = count;
  return true;
}

std::size_t Sampler::next_batch(std::span<std::uint64_t> batch) {
  const std::size_t buffered = std::min(batch.size(), filled_ - cursor_);
  std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(cursor_), buffered, batch.begin());
  cursor_ += buffered;
  const std::uint64_t first = position();
  const auto rest =
      static_cast<std::size_t>(std::min<std::uint64_t>(batch.size() - buffered, size_ - first));
  if (rest == 0) return buffered;
  evaluate(first, batch.subspan(buffered, rest));
  buffer_first_ = first + rest;
  cursor_ = 0;
  filled_ = 0;
  return buffered + rest;
}

std::uint64_t Sampler::raw_slots(std::uint64_t kept) const noexcept { return kept_.slot(kept); }

std::uint64_t Sampler::steps(std::uint64_t batch_size, std::uint64_t first) const noexcept {
  const std::uint64_t consumed = std::min(kept_.kept_before(first), partition_.delivered_slots());
  return ceil_div(ceil_div(partition_.delivered_slots() - consumed, world_size()), batch_size);
}

std::uint64_t Sampler::slots_after(std::uint64_t num_steps, std::uint64_t batch_size,
                                   std::uint64_t first) const noexcept {
  return raw_slots(partition_.slots_after(num_steps, batch_size, kept_.kept_before(first)));
}

std::uint64_t Sampler::slots_consumed() const noexcept {
  const std::uint64_t consumed = first_kept_ + (position() - first_index_) * world_size();
  return raw_slots(std::min(consumed, partition_.delivered_slots()));
}

void Sampler::set_skip(SkipList skip) {
  if (!skip.empty() && !can_skip()) {
    throw InvalidArgument(
        "the " + std::string(sampler_name(spec_.sampler)) + " sampler cannot leave samples out", {},
        "use chunked, sharded or sequential");
  }
  if (!skip.samples().empty()) check_sample(skip.samples().back(), spec_.num_samples);
  const std::uint64_t consumed = slots_consumed();
  skip_ = std::move(skip);
  prepare();
  resume_at(consumed);
}

ResumeToken Sampler::token(Hash128 fingerprint, std::optional<std::uint64_t> slots) const {
  ResumeToken token;
  token.fingerprint = fingerprint;
  token.order = spec_;
  token.epoch = epoch_;
  token.slots = slots.value_or(slots_consumed());
  token.skip = skip_;
  return token;
}

void Sampler::resume(const ResumeToken& token, Hash128 fingerprint) {
  token.require(spec_, fingerprint);
  SkipList skip = skip_;
  skip.merge(token.skip);
  set_skip(std::move(skip));
  set_epoch(token.epoch);
  resume_at(token.slots);
}

std::vector<Delivery> Sampler::deliveries(std::uint64_t sample) const {
  check_sample(sample, spec_.num_samples);
  return find_deliveries(sample);
}

std::vector<Delivery> Sampler::find_deliveries(std::uint64_t sample) const {
  std::vector<Delivery> found;
  for (const std::uint64_t slot : slots_of(sample)) {
    if (!kept_.is_kept(slot)) continue;
    for (std::uint64_t kept = kept_.kept_before(slot); kept < partition_.delivered_slots();
         kept += partition_.num_slots()) {
      found.push_back({kept % world_size(), kept / world_size(), raw_slots(kept)});
    }
  }
  return found;
}

AuditExpectation Sampler::expectation(Hash128 fingerprint) const {
  return expectation(fingerprint, AuditSum::of_range(0, spec_.num_samples, fingerprint));
}

AuditExpectation Sampler::expectation(Hash128 fingerprint, const AuditSum& all) const {
  AuditExpectation expectation(spec_.num_samples, fingerprint, all);
  expect_epoch(expectation);
  return expectation;
}

std::unique_ptr<Sampler> Sampler::for_rank(std::uint64_t rank) const {
  std::unique_ptr<Sampler> other = clone();
  other->partition_ = Partition(partition_.num_slots(), world_size(), rank, partition_.tail());
  other->prepare();
  other->reset();
  return other;
}

SlotSampler::SlotSampler(OrderSpec spec, const OrderOptions& options, std::uint64_t num_positions)
    : Sampler(spec, options), streams_(num_positions, options.streams) {}

void SlotSampler::evaluate(std::uint64_t first, std::span<std::uint64_t> out) const {
  fill_kept(partition().slot(first), world_size(), out);
}

void SlotSampler::fill_kept(std::uint64_t first, std::uint64_t stride,
                            std::span<std::uint64_t> out) const {
  const std::uint64_t num_slots = partition().num_slots();
  while (!out.empty()) {
    std::uint64_t slot = first;
    std::size_t count = 1;
    if (slot >= num_slots) {
      slot %= num_slots;  // padded: at most one a rank, so one by one
    } else {
      const std::uint64_t run = std::min(num_slots - slot, kept().run_length(slot));
      count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), ceil_div(run, stride)));
    }
    fill_slots(kept().slot(slot), stride, out.first(count));
    first += count * stride;
    out = out.subspan(count);
  }
}

void SlotSampler::fill_slots(std::uint64_t first, std::uint64_t stride,
                             std::span<std::uint64_t> out) const {
  const std::uint64_t num_streams = streams_.count();
  if (stride % num_streams == 0) {  // all in one stream
    fill(streams_.position_of_slot(first), stride / num_streams, out);
    return;
  }
  // They go round these streams; in each of them they are neighbours.
  const std::uint64_t shared = num_streams / stride;
  std::array<std::uint64_t, kBlock> run;
  for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
    const std::span<std::uint64_t> block = out.subspan(begin, std::min(kBlock, out.size() - begin));
    const std::uint64_t block_first = first + begin * stride;
    for (std::uint64_t s = 0; s < shared && s < block.size(); ++s) {
      const auto count = static_cast<std::size_t>(ceil_div(block.size() - s, shared));
      fill(streams_.position_of_slot(block_first + s * stride), 1, {run.data(), count});
      for (std::size_t i = 0; i < count; ++i) block[s + i * shared] = run[i];
    }
  }
}

OrderedSampler::OrderedSampler(SamplerKind kind, std::uint64_t n, ShardOffsets offsets,
                               const OrderOptions& options)
    : SlotSampler(ordered_spec(kind, n, offsets, options), options, n),
      offsets_(std::move(offsets)),
      order_epoch_(options.epoch),
      order_(make_order()) {
  if (!options.skip.samples().empty()) check_sample(options.skip.samples().back(), n);
}

EpochOrder OrderedSampler::make_order() const {
  const OrderSpec& s = spec();
  if (s.sampler == SamplerKind::kSequential || !s.shuffle)
    return EpochOrder::sequential(s.num_samples);
  const EpochOrder::Shuffle shuffle{s.seed, epoch(), s.window};
  if (s.sampler == SamplerKind::kSharded) return EpochOrder::sharded(offsets_, shuffle);
  return EpochOrder::chunked(s.num_samples, s.chunk_size, shuffle);
}

void OrderedSampler::prepare() {
  if (order_epoch_ != epoch()) {
    order_ = make_order();
    order_epoch_ = epoch();
  }
  std::vector<SkipList::Slots> skipped;
  for (const std::uint64_t sample : skip().samples()) {
    const std::uint64_t slot = slots_of(sample).front();
    skipped.push_back({epoch(), slot, slot + 1});
  }
  for (const SkipList::Slots& range : skip().slots()) {
    if (range.epoch == epoch()) skipped.push_back(range);
  }
  set_slots(KeptSlots(order_.size(), std::move(skipped)));
}

void OrderedSampler::fill(std::uint64_t first, std::uint64_t stride,
                          std::span<std::uint64_t> out) const {
  order_.fill(first, stride, out);
}

std::vector<std::uint64_t> OrderedSampler::slots_of(std::uint64_t sample) const {
  return {streams().slot_of_position(order_.position_of(sample))};
}

void OrderedSampler::expect_epoch(AuditExpectation& expectation) const {
  const auto sample_in = [this](std::uint64_t slot) {
    std::uint64_t sample = 0;
    fill_slots(slot, 1, {&sample, 1});
    return sample;
  };
  const std::uint64_t num_slots = partition().num_slots();
  for (std::uint64_t slot = num_slots; slot < partition().delivered_slots(); ++slot) {
    if (num_slots > 0) expectation.repeat(sample_in(kept().slot(slot % num_slots)));
  }
  for (std::uint64_t slot = partition().delivered_slots(); slot < num_slots; ++slot) {
    expectation.leave_out(sample_in(kept().slot(slot)));
  }
  for (const std::uint64_t sample : skip().samples()) expectation.leave_out(sample);
  for (const SkipList::Slots& range : skip().slots()) {
    if (range.epoch != epoch()) continue;
    for (std::uint64_t slot = range.begin; slot < std::min(range.end, order_.size()); ++slot) {
      const std::uint64_t sample = sample_in(slot);
      if (expectation.times(sample) > 0) expectation.leave_out(sample);
    }
  }
}

SequentialSampler::SequentialSampler(SampleCount n, const OrderOptions& options)
    : OrderedSampler(SamplerKind::kSequential, n.value(), nullptr,
                     order_detail::checked(SamplerKind::kSequential, options)) {
  prepare();
}

ChunkedSampler::ChunkedSampler(SampleCount n, const OrderOptions& options)
    : OrderedSampler(SamplerKind::kChunked, n.value(), nullptr,
                     order_detail::checked(SamplerKind::kChunked, options)) {
  prepare();
}

ShardedSampler::ShardedSampler(ShardOffsets offsets, const OrderOptions& options)
    : OrderedSampler(SamplerKind::kSharded, order_detail::checked(offsets).back(), offsets,
                     order_detail::checked(SamplerKind::kSharded, options)) {
  prepare();
}

std::unique_ptr<Sampler> SequentialSampler::clone() const {
  return std::make_unique<SequentialSampler>(*this);
}
std::unique_ptr<Sampler> ChunkedSampler::clone() const {
  return std::make_unique<ChunkedSampler>(*this);
}
std::unique_ptr<Sampler> ShardedSampler::clone() const {
  return std::make_unique<ShardedSampler>(*this);
}

}  // namespace shardwise
