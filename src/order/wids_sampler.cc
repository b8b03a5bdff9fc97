#include "order/wids_sampler.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <utility>

#include "base/assert.h"
#include "order/arithmetic.h"
#include "order/epoch_order.h"
#include "order/spec.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

using detail::ceil_div;
using detail::uint128;

/// The part of CPython's random.Random that wids uses.
class PythonRandom {
 public:
  explicit PythonRandom(uint128 seed) {
    InitByArray sequence(seed);
    engine_.seed(sequence);
  }

  /// random.shuffle(values).
  void shuffle(std::vector<std::uint64_t>& values) {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
  }

 private:
  /// Matsumoto and Nishimura's init_by_array, as a seed sequence that writes the whole state at
  /// once.
  class InitByArray {
   public:
    using result_type = std::uint32_t;

    explicit InitByArray(uint128 seed) {
      do {
        key_.push_back(static_cast<std::uint32_t>(seed));
        seed >>= 32;
      } while (seed != 0);
    }

    template <class Iterator>
    void generate(Iterator first, Iterator last) {
      const auto size = static_cast<std::size_t>(last - first);
      std::vector<std::uint32_t> state(size);
      state[0] = 19650218;
      for (std::size_t i = 1; i < size; ++i) {
        state[i] = 1812433253U * mixed(state[i - 1]) + static_cast<std::uint32_t>(i);
      }
      std::size_t i = 1;
      const auto advance = [&] {
        if (++i < size) return;
        state[0] = state[size - 1];
        i = 1;
      };
      std::size_t j = 0;
      for (std::size_t k = std::max(size, key_.size()); k > 0; --k) {
        state[i] =
            (state[i] ^ (mixed(state[i - 1]) * 1664525U)) + key_[j] + static_cast<std::uint32_t>(j);
        advance();
        j = (j + 1) % key_.size();
      }
      for (std::size_t k = size - 1; k > 0; --k) {
        state[i] = (state[i] ^ (mixed(state[i - 1]) * 1566083941U)) - static_cast<std::uint32_t>(i);
        advance();
      }
      state[0] = 0x80000000U;
      std::copy(state.begin(), state.end(), first);
    }

   private:
    static std::uint32_t mixed(std::uint32_t x) { return x ^ (x >> 30); }
    std::vector<std::uint32_t> key_;
  };

  /// _randbelow(n): as many bits as n has, until they make a number below n.
  std::uint64_t below(std::uint64_t n) {
    const auto num_bits = static_cast<unsigned>(std::bit_width(n));
    std::uint64_t value = bits(num_bits);
    while (value >= n) value = bits(num_bits);
    return value;
  }

  /// getrandbits(num_bits), from 1 to 64: words from the low end, the last one cut.
  std::uint64_t bits(unsigned num_bits) {
    if (num_bits <= 32) return word() >> (32 - num_bits);
    const std::uint64_t low = word();
    return low | (word() >> (64 - num_bits)) << 32;
  }

  std::uint64_t word() { return engine_(); }

  std::mt19937 engine_;
};

const Order& checked_wids(const Order& order) {
  if (std::holds_alternative<Wids>(order.kind)) return order;
  throw InvalidArgument("the order is not that of wids", {}, "give an order whose kind is Wids");
}

/// How many of a share's positions lie before `position`.
std::uint64_t index_at(std::uint64_t position, std::uint64_t shares, std::uint64_t share) {
  return position / shares + (position % shares > share ? 1 : 0);
}

}  // namespace

/// An epoch in the middle: iterate_ranges(), stopped inside one of its ranges.
struct WidsSampler::Replay {
  PythonRandom random;
  std::vector<Range> ranges;
  std::vector<std::uint64_t> places;  ///< permuted numbers of ranges
  std::size_t next_place = 0;
  std::uint64_t first = 0;             ///< this rank's index of samples[0]
  std::vector<std::uint64_t> samples;  ///< of the range that is being read
};

WidsSampler::WidsSampler(const SampleSet& samples, ResumeToken::OrderSpec spec,
                         const RankOptions& ranks, ShardOffsets offsets)
    : Sampler(samples, std::move(spec), {}, ranks),
      offsets_(std::move(offsets)),
      block_size_(ceil_div(num_samples(), num_shares())) {
  start({}, {});
}

WidsSampler::WidsSampler(const SampleSet& samples, const Order& order, const RankOptions& ranks)
    : WidsSampler(samples, detail::make_spec(samples, checked_wids(order), detail::checked(ranks)),
                  ranks, nullptr) {}

WidsSampler WidsSampler::shard_list(const SampleSet& samples, const Order& order) {
  const auto* const kind = std::get_if<Wids>(&order.kind);
  if (kind == nullptr || kind->chunk_size != 0) {
    throw InvalidArgument("the order of wids' ShardListSampler has no chunk_size and no ranks", {},
                          "leave chunk_size at its default");
  }
  const ShardOffsets offsets = samples.shard_starts();
  ResumeToken::OrderSpec spec = detail::make_spec(samples, order, {});
  spec.layout = detail::layout_hash(detail::checked(offsets));
  return {samples, std::move(spec), {}, offsets};
}

WidsSampler::WidsSampler(const WidsSampler& other)
    : Sampler(other),
      offsets_(other.offsets_),
      block_size_(other.block_size_),
      first_index_(other.first_index_),
      replay_(std::make_unique<Replay>(*other.replay_)) {}

WidsSampler::WidsSampler(WidsSampler&&) noexcept = default;
WidsSampler::~WidsSampler() = default;

std::unique_ptr<Sampler> WidsSampler::clone() const { return std::make_unique<WidsSampler>(*this); }

std::vector<WidsSampler::Range> WidsSampler::ranges() const {
  std::vector<Range> ranges;
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

std::unique_ptr<WidsSampler::Replay> WidsSampler::begin_replay(std::uint64_t epoch) const {
  std::vector<Range> blocks = ranges();
  std::vector<std::uint64_t> places(blocks.size());
  std::iota(places.begin(), places.end(), std::uint64_t{0});
  const uint128 seed = order().seed + uint128{1289738273} * epoch;
  auto replay = std::make_unique<Replay>(
      Replay{PythonRandom(seed), std::move(blocks), std::move(places), 0, 0, {}});
  if (wids().shuffle && (wids().shufflefirst || epoch > 0)) replay->random.shuffle(replay->places);
  return replay;
}

void WidsSampler::prepare(SkipList::Point point, const SkipList& skip) {
  if (!skip.empty()) {  // of a token from another order
    throw InvalidArgument("skip does not apply to the wids sampler", {},
                          "it is for chunked, sharded, sequential and mixture; begin the run anew");
  }
  std::unique_ptr<Replay> replay = begin_replay(point.epoch);
  std::uint64_t size = 0;
  for (const Range& range : replay->ranges) size += range.end - range.begin;
  replay_ = std::move(replay);
  first_index_ = index_at(point.position, num_shares(), share());
  // As many as if every rank had a whole block: what does not exist lies at the ranks' ends.
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
  Replay& replay = *replay_;
  for (std::uint64_t& sample : out) {
    while (first - replay.first >= replay.samples.size()) {
      replay.first += replay.samples.size();
      const Range range = replay.ranges[replay.places[replay.next_place++]];
      replay.samples.resize(range.end - range.begin);
      std::iota(replay.samples.begin(), replay.samples.end(), range.begin);
      if (wids().shuffle) replay.random.shuffle(replay.samples);
    }
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

void WidsSampler::expect(EpochAudit::Expectation& /*expectation*/) const {}  // every sample once

}  // namespace shardwise::detail
