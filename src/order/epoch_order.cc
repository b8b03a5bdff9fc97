#include "order/epoch_order.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "order/arithmetic.h"
#include "order/fields.h"
#include "order/key.h"
#include "order/spec.h"

namespace shardwise::detail {

namespace {

// How positions are mapped to samples (docs/formats/order.md, A pass). An example with 23 samples,
// chunk_size 5 and window 2: chunk 4 is short, because it has only 3 samples, so missing_ is 2. The
// chunks are permuted to 3 1 4 2 0, so short_place_ is 2.
//
//   place         0         1         2       3         4
//   chunk         3         1         4       2         0          chunks_(place)
//   samples       15 .. 19  5 .. 9    20..22  10 .. 14  0 .. 4
//   layout        0         5         10      13        18      23
//   group         |------- 0 --------|------- 1 -------|-- 2 --|   window_ places each
//   padded        0         5         10      15        20         place * chunk_size_
//
// A position p of group g (group_at()) maps to the layout position b + Q(p - b). Here b is the
// group's first position, and Q permutes its samples (permutation_of()). lay_out() then computes
// the place, the chunk and the sample. This needs no other group.
//
// The short chunk: only chunk m - 1 may be short, and it may be at any place. In the layout, all
// later places begin missing_ earlier than if all chunks were full. Therefore
//
//   - groups after the short one begin missing_ earlier (chunked_group(), group_at()), and
//   - in the group of the short chunk, missing_ is first added to layout positions from short_end_
//     (13 above) on ("padded"). Division by chunk_size_ then gives place and offset.
//
// If chunk_size_ divides n, missing_ is 0, and all of this has no effect. The last group has the
// remaining places, here one. With window_ 1 a group is one chunk, so no position is changed.
//
// In a sharded order, chunks have different lengths. Instead of the division, a binary search in a
// table of the places' beginnings (ShardTable) finds the place.

/// Number of positions that are computed at a time, in a buffer on the stack.
constexpr std::size_t kMapBlock = 512;

void check_size(std::uint64_t n) {
  if (n <= kMaxSamples) return;
  throw InvalidArgument("cannot order " + counted(n, "sample"), {}, "choose at most 2^62 samples");
}

}  // namespace

/// The layout of permuted shards: begin[i] is the beginning of place i, and shard[i] the shard at
/// place i.
struct EpochOrder::ShardTable {
  ShardOffsets offsets;
  std::vector<std::uint64_t> begin;
  std::vector<std::uint64_t> shard;
};

ShardOffsets shard_offsets_from_lengths(std::span<const std::uint64_t> lengths) {
  auto offsets = std::make_shared<std::vector<std::uint64_t>>();
  offsets->reserve(lengths.size() + 1);
  std::uint64_t total = 0;
  offsets->push_back(0);
  for (const std::uint64_t length : lengths) {
    if (length > kMaxSamples - total) check_size(~std::uint64_t{0});
    total += length;
    offsets->push_back(total);
  }
  return offsets;
}

EpochOrder::EpochOrder(Kind kind, std::uint64_t n, std::uint64_t num_chunks, const Shuffle& shuffle,
                       std::uint64_t chunk_size)
    : kind_(kind),
      n_(n),
      seed_(shuffle.seed),
      epoch_(shuffle.epoch),
      window_(std::clamp<std::uint64_t>(shuffle.window, 1, std::max<std::uint64_t>(num_chunks, 1))),
      chunks_(num_chunks, derive_key(shuffle.seed, shuffle.epoch, KeyPurpose::kChunks)),
      chunk_size_(chunk_size) {}

EpochOrder EpochOrder::sequential(std::uint64_t n) {
  check_size(n);
  return {Kind::kSequential, n, 0, {}, 1};
}

EpochOrder EpochOrder::chunked(std::uint64_t n, std::uint64_t chunk_size, const Shuffle& shuffle) {
  check_size(n);
  check_numbers(Chunked{.chunk_size = chunk_size, .window = shuffle.window});
  chunk_size = std::min(chunk_size, std::max<std::uint64_t>(n, 1));
  const std::uint64_t num_chunks = ceil_div(n, chunk_size);
  EpochOrder order(Kind::kChunked, n, num_chunks, shuffle, chunk_size);
  order.chunk_reciprocal_ = reciprocal_of(chunk_size);
  order.group_size_ = order.window_ * chunk_size;
  // With r = ceil(2^64 / chunk_size) = (2^64 + e) / chunk_size, 0 <= e < chunk_size, the product x
  // * r / 2^64 exceeds x / chunk_size by (x * e / 2^64) / chunk_size. If x * e < 2^64, the floors
  // are equal. (For chunk_size 1, r does not fit in 64 bits.)
  if (chunk_size > 1 && order.group_size_ <= ~std::uint64_t{0} / chunk_size) {
    order.exact_reciprocal_ = order.chunk_reciprocal_ + 1;
  }
  order.full_group_ = PermutationDomain(std::min(order.group_size_, n));
  if (shuffle.phase) {
    const Hash128 key = derive_key(shuffle.seed, shuffle.epoch, KeyPurpose::kPhase);
    order.phase_ = n == 0 ? 0 : multiply_high(key.low, chunk_size);
  }
  if (num_chunks > 0) {
    order.missing_ = num_chunks * chunk_size - n;
    order.short_place_ = order.chunks_.inverse(num_chunks - 1);
    order.short_end_ = (order.short_place_ + 1) * chunk_size - order.missing_;
  }
  return order;
}

EpochOrder EpochOrder::sharded(ShardOffsets offsets, const Shuffle& shuffle) {
  checked(offsets);
  check_numbers(Sharded{.window = shuffle.window});
  if (shuffle.phase) {
    throw InvalidArgument("whole shards as chunks cannot have a phase", {},
                          "use chunks of equal size, or leave out the phase");
  }
  const std::uint64_t num_shards = offsets->size() - 1;
  EpochOrder order(Kind::kSharded, offsets->back(), num_shards, shuffle, 1);
  auto table = std::make_shared<ShardTable>();
  table->shard.resize(num_shards);
  for (std::uint64_t i = 0; i < num_shards; ++i) table->shard[i] = i;
  order.chunks_.apply(table->shard);
  table->begin.reserve(num_shards + 1);
  std::uint64_t begin = 0;
  for (const std::uint64_t shard : table->shard) {
    table->begin.push_back(begin);
    begin += (*offsets)[shard + 1] - (*offsets)[shard];
  }
  table->begin.push_back(begin);
  table->offsets = std::move(offsets);
  order.shards_ = std::move(table);
  return order;
}

std::uint64_t EpochOrder::at(std::uint64_t position) const {
  if (position >= n_) {
    throw OutOfRange("the epoch has no position " + std::to_string(position), {},
                     "choose a position in [0, " + std::to_string(n_) + ")");
  }
  std::uint64_t sample = 0;
  fill(position, 1, {&sample, 1});
  return sample;
}

EpochOrder::Group EpochOrder::chunked_group(std::uint64_t number) const noexcept {
  // Groups after the short chunk begin earlier by its missing samples.
  const std::uint64_t short_group = short_place_ / window_;
  const std::uint64_t begin = number * group_size_ - (number > short_group ? missing_ : 0);
  const std::uint64_t full_end =
      (number + 1) * group_size_ - (number >= short_group ? missing_ : 0);
  return {number, begin, std::min(full_end, n_)};  // the last group may have fewer places
}

EpochOrder::Group EpochOrder::sharded_group(std::uint64_t number) const noexcept {
  const std::vector<std::uint64_t>& begin = shards_->begin;
  const std::uint64_t num_shards = begin.size() - 1;
  const std::uint64_t first = number * window_;
  const std::uint64_t last = window_ > num_shards - first ? num_shards : first + window_;
  return {number, begin[first], begin[last]};
}

EpochOrder::Group EpochOrder::group_at(std::uint64_t position) const noexcept {
  if (kind_ == Kind::kChunked) {
    const std::uint64_t short_group = short_place_ / window_;
    const bool after = position >= chunked_group(short_group).end;
    return chunked_group((position + (after ? missing_ : 0)) / group_size_);
  }
  const std::vector<std::uint64_t>& begin = shards_->begin;
  const auto after = std::upper_bound(begin.begin(), begin.end(), position);
  return sharded_group((static_cast<std::uint64_t>(after - begin.begin()) - 1) / window_);
}

Permutation EpochOrder::permutation_of(const Group& group) const {
  const Hash128 key = derive_key(seed_, epoch_, KeyPurpose::kSamples, group.number);
  const std::uint64_t size = group.end - group.begin;
  if (size == full_group_.size) return {full_group_, key};
  return {size, key};
}

void EpochOrder::fill(std::uint64_t first, std::uint64_t stride,
                      std::span<std::uint64_t> out) const {
  SHARDWISE_ASSERT(stride > 0);
  SHARDWISE_ASSERT_HOT(out.empty() || (first < n_ && (n_ - 1 - first) / stride >= out.size() - 1));
  if (kind_ == Kind::kSequential) {
    for (std::uint64_t& sample : out) {
      sample = first;
      first += stride;
    }
    return;
  }
  while (!out.empty()) {
    const Group group = group_at(first);
    const std::uint64_t left = (group.end - 1 - first) / stride + 1;
    std::span<std::uint64_t> rest = out.first(std::min<std::uint64_t>(left, out.size()));
    out = out.subspan(rest.size());
    const Permutation permutation = permutation_of(group);
    while (!rest.empty()) {
      const std::span<std::uint64_t> block = rest.first(std::min(rest.size(), kMapBlock));
      for (std::uint64_t& value : block) {
        value = first - group.begin;
        first += stride;
      }
      permutation.apply(block);
      lay_out(group, block);
      rest = rest.subspan(block.size());
    }
  }
}

void EpochOrder::map(std::span<std::uint64_t> positions) const {
  SHARDWISE_ASSERT_HOT(std::ranges::all_of(positions, [this](auto p) { return p < n_; }));
  if (kind_ == Kind::kSequential) return;
  for (std::size_t i = 0; i < positions.size();) {
    const Group group = group_at(positions[i]);
    const std::uint64_t group_size = group.end - group.begin;
    const Permutation permutation = permutation_of(group);
    bool more = true;
    while (more) {
      // Collects a block of consecutive positions that are in this group, as offsets from the
      // group's beginning.
      const std::size_t begin = i;
      const std::size_t limit = std::min(positions.size(), begin + kMapBlock);
      for (; i < limit; ++i) {
        const std::uint64_t offset = positions[i] - group.begin;
        if (offset >= group_size) break;
        positions[i] = offset;
      }
      more = i == limit && i < positions.size();
      const std::span<std::uint64_t> block = positions.subspan(begin, i - begin);
      permutation.apply(block);
      lay_out(group, block);
    }
  }
}

/// Replaces offsets in a group's layout by sample numbers.
void EpochOrder::lay_out(const Group& group, std::span<std::uint64_t> layout_positions) const {
  if (kind_ == Kind::kChunked) {
    lay_out_chunked(group, layout_positions);
    if (phase_ == 0) return;
    for (std::uint64_t& sample : layout_positions) {
      const std::uint64_t moved = sample + phase_;
      sample = moved - (moved >= n_ ? n_ : 0);
    }
  } else {
    lay_out_sharded(group, layout_positions);
  }
}

void EpochOrder::lay_out_chunked(const Group& group,
                                 std::span<std::uint64_t> layout_positions) const {
  const std::uint64_t first_place = group.number * window_;
  if (window_ == 1) {
    const std::uint64_t first_sample = chunks_(first_place) * chunk_size_;
    for (std::uint64_t& value : layout_positions) value += first_sample;
    return;
  }
  // The end of the short chunk, relative to the group. After it, all positions are `missing_`
  // earlier.
  const std::uint64_t short_end =
      short_end_ >= group.begin ? short_end_ - group.begin : std::uint64_t{0};
  const bool has_short = short_place_ >= first_place && short_place_ - first_place < window_;
  const std::uint64_t limit = has_short ? short_end : ~std::uint64_t{0};
  std::array<std::uint64_t, kMapBlock> chunk;
  const std::size_t count = layout_positions.size();
  if (window_ <= count) {  // compute all chunks of the group once, into a table
    const std::uint64_t num_places = std::min(window_, chunks_.size() - first_place);
    for (std::uint64_t i = 0; i < num_places; ++i) chunk[i] = first_place + i;
    chunks_.apply({chunk.data(), num_places});
    // Replaces each chunk by the difference between its sample numbers and its layout positions,
    // mod 2^64.
    for (std::uint64_t i = 0; i < num_places; ++i) chunk[i] = (chunk[i] - i) * chunk_size_;
    if (exact_reciprocal_ != 0) {
      for (std::uint64_t& value : layout_positions) {
        const std::uint64_t padded = value + (value >= limit ? missing_ : 0);
        value = padded + chunk[multiply_high(padded, exact_reciprocal_)];
      }
      return;
    }
    for (std::uint64_t& value : layout_positions) {
      const std::uint64_t padded = value + (value >= limit ? missing_ : 0);
      value = padded + chunk[divide(padded, chunk_size_, chunk_reciprocal_).quotient];
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t value = layout_positions[i];
    const std::uint64_t padded = value >= limit ? value + missing_ : value;
    const auto [place, offset] = divide(padded, chunk_size_, chunk_reciprocal_);
    chunk[i] = first_place + place;
    layout_positions[i] = offset;
  }
  chunks_.apply({chunk.data(), count});
  for (std::size_t i = 0; i < count; ++i) layout_positions[i] += chunk[i] * chunk_size_;
}

void EpochOrder::lay_out_sharded(const Group& group,
                                 std::span<std::uint64_t> layout_positions) const {
  const ShardTable& table = *shards_;
  const std::vector<std::uint64_t>& offsets = *table.offsets;
  const std::uint64_t first_place = group.number * window_;
  if (window_ == 1) {
    const std::uint64_t first_sample = offsets[table.shard[first_place]];
    for (std::uint64_t& value : layout_positions) value += first_sample;
    return;
  }
  const std::uint64_t num_places = std::min(window_, table.shard.size() - first_place);
  const auto begin = table.begin.begin() + static_cast<std::ptrdiff_t>(first_place);
  const auto end = begin + static_cast<std::ptrdiff_t>(num_places);
  for (std::uint64_t& value : layout_positions) {
    const std::uint64_t position = group.begin + value;
    const auto after = std::upper_bound(begin, end, position);
    const auto place = static_cast<std::size_t>(after - table.begin.begin()) - 1;
    value = offsets[table.shard[place]] + (position - table.begin[place]);
  }
}

std::uint64_t EpochOrder::num_groups() const noexcept {
  return is_sequential() ? 0 : ceil_div(chunks_.size(), window_);
}

void EpochOrder::list_group(std::uint64_t number, std::vector<SampleRange>& samples) const {
  SHARDWISE_ASSERT(number < num_groups());
  samples.clear();
  const std::uint64_t first_place = number * window_;
  const std::uint64_t num_places = std::min(window_, chunks_.size() - first_place);
  for (std::uint64_t place = first_place; place < first_place + num_places; ++place) {
    if (kind_ == Kind::kSharded) {
      const std::uint64_t shard = shards_->shard[place];
      samples.emplace_back((*shards_->offsets)[shard], (*shards_->offsets)[shard + 1]);
    } else {
      const std::uint64_t unmoved = chunks_(place) * chunk_size_;
      const std::uint64_t length = std::min(chunk_size_, n_ - unmoved);
      const std::uint64_t first = unmoved + phase_ - (unmoved + phase_ >= n_ ? n_ : 0);
      const std::uint64_t before_end = std::min(length, n_ - first);
      samples.emplace_back(first, first + before_end);
      if (before_end < length) samples.emplace_back(0, length - before_end);
    }
  }
}

std::uint64_t EpochOrder::position_of(std::uint64_t sample) const {
  require_sample(sample, n_);
  if (kind_ == Kind::kSequential) return sample;
  std::uint64_t place = 0;
  std::uint64_t layout_position = 0;
  Group group{};
  if (kind_ == Kind::kChunked) {
    const std::uint64_t unmoved = sample - phase_ + (sample < phase_ ? n_ : 0);
    const auto [chunk, offset] = divide(unmoved, chunk_size_, chunk_reciprocal_);
    place = chunks_.inverse(chunk);
    layout_position = place * chunk_size_ - (place > short_place_ ? missing_ : 0) + offset;
    group = chunked_group(place / window_);
  } else {
    const std::vector<std::uint64_t>& offsets = *shards_->offsets;
    const auto after = std::upper_bound(offsets.begin(), offsets.end(), sample);
    const auto shard = static_cast<std::uint64_t>(after - offsets.begin()) - 1;
    place = chunks_.inverse(shard);
    layout_position = shards_->begin[place] + (sample - offsets[shard]);
    group = sharded_group(place / window_);
  }
  return group.begin + permutation_of(group).inverse(layout_position - group.begin);
}

}  // namespace shardwise::detail
