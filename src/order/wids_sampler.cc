#include "order/wids_sampler.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "order/arithmetic.h"
#include "order/epoch_order.h"
#include "order/spec.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

const Order& checked_wids(const Order& order) {
  if (std::holds_alternative<Wids>(order.kind)) return order;
  throw InvalidArgument("the kind of the order is not Wids", {}, "set the kind to Wids");
}

/// The number of a share's positions before `position`.
std::uint64_t index_at(std::uint64_t position, std::uint64_t shares, std::uint64_t share) {
  return position / shares + (position % shares > share ? 1 : 0);
}

}  // namespace

WidsSampler::WidsSampler(const SampleSet& samples, ResumeToken::OrderSpec spec,
                         const RankOptions& ranks, ShardOffsets offsets)
    : Sampler(samples, std::move(spec), {}, ranks),
      offsets_(std::move(offsets)),
      block_size_(ceil_div(num_samples(), num_shares())) {
  start({}, {});
}

WidsSampler::WidsSampler(const SampleSet& samples, const Order& order, const RankOptions& ranks)
    : WidsSampler(samples, make_spec(samples, checked_wids(order), checked(ranks)), ranks,
                  nullptr) {}

WidsSampler WidsSampler::shard_list(const SampleSet& samples, const Order& order) {
  const auto* const kind = std::get_if<Wids>(&order.kind);
  if (kind == nullptr || kind->chunk_size != 0) {
    throw InvalidArgument(
        "the order of wids' ShardListSampler must be of kind Wids without chunk_size", {},
        "set the kind to Wids, and leave chunk_size at its default");
  }
  const ShardOffsets offsets = samples.shard_starts();
  ResumeToken::OrderSpec spec = make_spec(samples, order, {});
  spec.layout = layout_hash(checked(offsets));
  return {samples, std::move(spec), {}, offsets};
}

WidsSampler::WidsSampler(const WidsSampler& other)
    : Sampler(other),
      offsets_(other.offsets_),
      block_size_(other.block_size_),
      first_index_(other.first_index_),
      replay_(std::make_unique<WidsWalk>(*other.replay_)) {}

std::unique_ptr<Sampler> WidsSampler::clone() const { return std::make_unique<WidsSampler>(*this); }

std::vector<WidsWalk::Range> WidsSampler::ranges() const {
  std::vector<WidsWalk::Range> ranges;
  if (offsets_) {
    for (std::size_t i = 0; i + 1 < offsets_->size(); ++i) {
      ranges.push_back({(*offsets_)[i], (*offsets_)[i + 1]});
    }
    return ranges;
  }
  const std::uint64_t n = num_samples();
  const std::uint64_t chunk_size = wids().chunk_size;
  const std::uint64_t end = std::min((share() + 1) * block_size_, n);
  for (std::uint64_t begin = std::min(share() * block_size_, n); begin < end;) {
    const std::uint64_t chunk_end = chunk_size < end - begin ? begin + chunk_size : end;
    ranges.push_back({begin, chunk_end});
    begin = chunk_end;
  }
  return ranges;
}

std::unique_ptr<WidsWalk> WidsSampler::begin_replay(std::uint64_t epoch) const {
  const uint128 seed = order().seed + uint128{1289738273} * epoch;
  const bool shuffles_ranges = wids().shuffle && (wids().shufflefirst || epoch > 0);
  return std::make_unique<WidsWalk>(PythonRandom(seed), ranges(), shuffles_ranges, wids().shuffle);
}

void WidsSampler::prepare(SkipList::Point point, const SkipList& skip, const Order* /*changed*/) {
  if (!skip.empty()) {  // the skip list of a token of another order
    throw InvalidArgument("skip does not apply to the wids sampler", {},
                          "start a new run without skip, or choose another sampler");
  }
  std::unique_ptr<WidsWalk> replay = begin_replay(point.epoch);
  std::uint64_t size = 0;
  for (const WidsWalk::Range& range : replay->ranges) size += range.end - range.begin;
  replay_ = std::move(replay);
  first_index_ = index_at(point.position, num_shares(), share());
  // The counts assume that every rank has a whole block. The samples that a rank lacks are at the
  // block's end.
  set_walk(num_positions() - point.position, size - std::min(size, first_index_));
}

std::vector<EpochOrder::SampleRange> WidsSampler::chunks_in_order() const {
  std::vector<EpochOrder::SampleRange> chunks;
  chunks.reserve(replay_->places.size());
  for (const std::uint64_t place : replay_->places) {
    chunks.emplace_back(replay_->ranges[place].begin, replay_->ranges[place].end);
  }
  return chunks;
}

void WidsSampler::evaluate(std::uint64_t first, std::span<std::uint64_t> out) const {
  SHARDWISE_ASSERT(first + out.size() <= size());
  first += first_index_;
  if (first < replay_->first) *replay_ = std::move(*begin_replay(epoch()));
  WidsWalk& replay = *replay_;
  for (std::uint64_t& sample : out) {
    while (first - replay.first >= replay.samples.size()) replay.advance();
    sample = replay.samples[first - replay.first];
    ++first;
  }
}

std::uint64_t WidsSampler::find_position(std::uint64_t index) const {
  return (first_index_ + index) * num_shares() + share();
}

std::optional<std::uint64_t> WidsSampler::position_after(std::uint64_t count) const {
  if (count >= num_positions() - first_position()) return std::nullopt;
  return first_position() + count;
}

std::uint64_t WidsSampler::count_before(std::uint64_t position) const {
  std::uint64_t count = 0;
  for (std::uint64_t share = 0; share < num_shares(); ++share) {
    const std::uint64_t begin = std::min(share * block_size_, num_samples());
    const std::uint64_t end = std::min(begin + block_size_, num_samples());
    count += std::min(index_at(position, num_shares(), share), end - begin);
  }
  return count;
}

std::vector<Sampler::Delivery> WidsSampler::find_deliveries(std::uint64_t sample) const {
  const std::uint64_t owner = sample / block_size_;
  const std::unique_ptr<Sampler> replayed = for_rank(owner * replicas());
  while (const std::optional<std::uint64_t> next = replayed->next()) {
    if (*next == sample) return {{owner, replayed->position() - 1}};
  }
  return {};
}

// There is nothing to add, because an expectation contains every sample once by default.
void WidsSampler::expect(EpochAudit::Expectation& /*expectation*/) const {}

}  // namespace shardwise::detail
