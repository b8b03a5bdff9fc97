#include "order/shard_schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/counted.h"
#include "order/arithmetic.h"
#include "order/epoch_order.h"
#include "order/kept_slots.h"
#include "order/mixture_slots.h"
#include "order/pass_slots.h"
#include "order/sampler_access.h"
#include "order/wids_sampler.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

using SampleRange = EpochOrder::SampleRange;

void check_starts(std::span<const std::uint64_t> starts, std::uint64_t num_samples) {
  if (!starts.empty() && starts.front() == 0 && std::is_sorted(starts.begin(), starts.end()) &&
      starts.back() == num_samples) {
    return;
  }
  throw InvalidArgument(
      "the list of shard offsets does not fit " + counted(num_samples, "sample"), {},
      "give the first sample of each shard, in ascending order from 0, then the number of samples");
}

std::uint64_t shard_of(std::span<const std::uint64_t> starts, std::uint64_t sample) {
  const auto after = std::upper_bound(starts.begin(), starts.end(), sample);
  return static_cast<std::uint64_t>(after - starts.begin()) - 1;
}

}  // namespace

/// Divides an epoch into pieces. Every function returns false if the order touches too many shards.
class ShardSchedule::Maker {
 public:
  Maker(ShardSchedule& schedule, std::span<const std::uint64_t> starts, std::uint64_t max_touches)
      : schedule_(schedule), starts_(starts), max_touches_(max_touches) {}

  bool add_passes(const PassSlots& slots);
  bool add_mixture(const MixtureSlots& slots);
  bool add_wids(const WidsSampler& sampler);
  void add_padding(const SlotSampler& sampler);

 private:
  /// Samples that are shuffled together: positions [begin, end) of an order, and the shards that
  /// contain them.
  struct Group {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t first_touch;
    std::uint64_t last_touch;
  };

  bool touch(std::span<const SampleRange> samples, std::uint64_t base);
  bool list_groups(const EpochOrder& order, std::uint64_t base);
  bool add_pass(const PassSlots& slots, const EpochOrder& order, std::uint64_t pass_begin);
  void add_piece(const Group& group, const StridedRange& slots);

  ShardSchedule& schedule_;
  std::span<const std::uint64_t> starts_;
  std::uint64_t max_touches_;
  std::vector<Group> groups_;  // groups of the current order
};

/// Appends the shards that contain these samples. `base` is added to the sample numbers.
bool ShardSchedule::Maker::touch(std::span<const SampleRange> samples, std::uint64_t base) {
  std::vector<std::uint64_t>& touched = schedule_.touched_;
  const std::size_t first_touch = touched.size();
  for (const auto& [begin, end] : samples) {
    if (begin == end) continue;
    for (std::uint64_t shard = shard_of(starts_, base + begin);
         shard + 1 < starts_.size() && starts_[shard] < base + end; ++shard) {
      if (starts_[shard] == starts_[shard + 1]) continue;
      if (touched.size() == max_touches_) return false;
      touched.push_back(shard);
    }
  }
  if (samples.size() > 1) {
    const auto added = touched.begin() + static_cast<std::ptrdiff_t>(first_touch);
    std::sort(added, touched.end());
    touched.erase(std::unique(added, touched.end()), touched.end());
  }
  return true;
}

/// Lists the groups of `order`. `base` is added to the sample numbers.
bool ShardSchedule::Maker::list_groups(const EpochOrder& order, std::uint64_t base) {
  groups_.clear();
  std::uint64_t begin = 0;
  const auto add = [&](std::span<const SampleRange> samples) {
    const std::uint64_t first_touch = schedule_.touched_.size();
    if (!touch(samples, base)) return false;
    std::uint64_t end = begin;
    for (const auto& [first, last] : samples) end += last - first;
    groups_.push_back({begin, end, first_touch, schedule_.touched_.size()});
    begin = end;
    return true;
  };
  if (order.is_sequential()) {
    for (std::uint64_t shard = shard_of(starts_, base);
         shard + 1 < starts_.size() && begin < order.size(); ++shard) {
      const SampleRange samples{std::max(starts_[shard], base) - base,
                                std::min(starts_[shard + 1] - base, order.size())};
      if (!add({&samples, 1})) return false;
    }
    return true;
  }
  if (order.num_groups() > max_touches_) return false;
  std::vector<SampleRange> samples;
  for (std::uint64_t group = 0; group < order.num_groups(); ++group) {
    order.list_group(group, samples);
    if (!add(samples)) return false;
  }
  return true;
}

void ShardSchedule::Maker::add_piece(const Group& group, const StridedRange& slots) {
  if (slots.count == 0 || group.first_touch == group.last_touch) return;
  schedule_.pieces_.push_back({slots, group.first_touch, group.last_touch});
}

/// Adds a pass that begins at slot `pass_begin` of the epoch. The number is modulo 2^64, because
/// the pass may begin before the epoch.
bool ShardSchedule::Maker::add_pass(const PassSlots& slots, const EpochOrder& order,
                                    std::uint64_t pass_begin) {
  if (!list_groups(order, 0)) return false;
  const Streams& streams = slots.streams();
  const std::uint64_t num_streams = streams.count();
  // The other streams are empty.
  const std::uint64_t used_streams = std::min(num_streams, order.size());
  // Computes which slots of the pass belong to the epoch.
  const bool begins_before = static_cast<std::int64_t>(pass_begin) < 0;
  const std::uint64_t before = begins_before ? std::uint64_t{0} - pass_begin : 0;
  const std::uint64_t low = std::min(before, order.size());
  const std::uint64_t high = std::min(order.size(), slots.num_slots() - pass_begin);
  std::size_t group = 0;
  for (std::uint64_t stream = 0; stream < used_streams; ++stream) {
    const std::uint64_t run_begin = streams.run_begin(stream);
    const std::uint64_t run_end =
        stream + 1 < used_streams ? streams.run_begin(stream + 1) : order.size();
    const StridedRange own{stream, num_streams, run_end - run_begin};  // slots of the pass
    const std::uint64_t first_own = own.count_below(low), last_own = own.count_below(high);
    while (group < groups_.size() && groups_[group].begin < run_end) {
      const Group& part = groups_[group];
      const std::uint64_t first = std::max(std::max(part.begin, run_begin) - run_begin, first_own);
      const std::uint64_t last = std::min(std::min(part.end, run_end) - run_begin, last_own);
      if (first < last) add_piece(part, {own[first] + pass_begin, num_streams, last - first});
      if (part.end > run_end) break;  // the group continues in the next stream
      ++group;
    }
  }
  return true;
}

bool ShardSchedule::Maker::add_passes(const PassSlots& slots) {
  const Passes& passes = slots.passes();
  const std::uint64_t n = passes.size();
  if (n == 0) return true;
  const std::uint64_t first_slot = slots.is_exact() ? 0 : slots.first_slot();
  const std::uint64_t end = first_slot + slots.num_slots();
  if (slots.is_exact()) return add_pass(slots, passes[slots.epoch()], 0);
  for (std::uint64_t pass = first_slot / n; pass * n < end; ++pass) {
    if (!add_pass(slots, passes[pass], pass * n - first_slot)) return false;
  }
  return true;
}

bool ShardSchedule::Maker::add_mixture(const MixtureSlots& slots) {
  constexpr std::uint64_t kBlock = MixtureDraws::kBlock;
  const std::uint64_t first_slot = slots.first_slot();
  const std::uint64_t end_slot = first_slot + slots.num_slots();
  for (std::size_t dataset = 0; dataset < slots.num_datasets(); ++dataset) {
    const std::uint64_t base = slots.first_sample(dataset);
    const std::uint64_t n = slots.first_sample(dataset + 1) - base;
    const std::uint64_t low = slots.draws().draws_before(dataset, first_slot / kBlock * kBlock);
    const std::uint64_t high =
        slots.draws().draws_before(dataset, ceil_div(end_slot, kBlock) * kBlock);
    for (std::uint64_t pass = n == 0 ? 0 : low / n; low < high && pass * n < high; ++pass) {
      if (!list_groups(slots.passes(dataset)[pass], base)) return false;
      for (const Group& group : groups_) {
        const std::uint64_t first = std::max(pass * n + group.begin, low);
        const std::uint64_t last = std::min(pass * n + group.end, high);
        if (first >= last) continue;
        const auto [begin, end] = slots.draws().slots_of_draws(dataset, first, last);
        const std::uint64_t from = std::max(begin, first_slot);
        const std::uint64_t to = std::min(end, end_slot);
        if (from < to) add_piece(group, {from - first_slot, 1, to - from});
      }
    }
  }
  return true;
}

bool ShardSchedule::Maker::add_wids(const WidsSampler& sampler) {
  const std::uint64_t num_shares = schedule_.num_shares_;
  for (std::uint64_t share = 0; share < num_shares; ++share) {
    const std::unique_ptr<Sampler> mine = sampler.for_rank(share * sampler.replicas());
    std::uint64_t index = 0;
    for (const SampleRange& chunk : static_cast<const WidsSampler&>(*mine).chunks_in_order()) {
      const std::uint64_t first_touch = schedule_.touched_.size();
      if (!touch({&chunk, 1}, 0)) return false;
      const Group group{0, 0, first_touch, schedule_.touched_.size()};
      add_piece(group, {index * num_shares + share, num_shares, chunk.second - chunk.first});
      index += chunk.second - chunk.first;
    }
  }
  return true;
}

/// Adds the padding at the end, which repeats the epoch's first slots.
void ShardSchedule::Maker::add_padding(const SlotSampler& sampler) {
  const Walk& walk = SamplerAccess::walk(sampler);
  for (std::uint64_t slot = walk.partition.num_slots(); slot < walk.partition.delivered_slots();
       ++slot) {
    std::uint64_t sample = 0;
    SamplerAccess::slots(sampler).fill(walk.slot(slot), 1, {&sample, 1});
    schedule_.padding_.push_back({shard_of(starts_, sample), slot, slot + 1});
  }
}

std::optional<ShardSchedule> ShardSchedule::of(const Sampler& sampler,
                                               std::span<const std::uint64_t> shard_starts,
                                               std::uint64_t max_touches) {
  const auto* const wids = dynamic_cast<const WidsSampler*>(&sampler);
  const auto* const slot_sampler = dynamic_cast<const SlotSampler*>(&sampler);
  const auto* const passes =
      slot_sampler ? dynamic_cast<const PassSlots*>(&SamplerAccess::slots(*slot_sampler)) : nullptr;
  const auto* const mixture =
      slot_sampler ? dynamic_cast<const MixtureSlots*>(&SamplerAccess::slots(*slot_sampler))
                   : nullptr;
  if (wids == nullptr && passes == nullptr && mixture == nullptr) return std::nullopt;
  check_starts(shard_starts, sampler.num_samples());
  ShardSchedule schedule;
  schedule.num_shards_ = shard_starts.size() - 1;
  schedule.world_size_ = sampler.world_size();
  schedule.replicas_ = sampler.replicas();
  schedule.num_shares_ = sampler.world_size() / sampler.replicas();
  schedule.num_slots_ = SamplerAccess::delivered(sampler);
  if (sampler.order().balance_bytes) {
    schedule.step_slots_ = schedule.num_shares_ * sampler.batch_size();
  }
  Maker maker(schedule, shard_starts, max_touches);
  if (wids != nullptr) {
    schedule.first_kept_ = SamplerAccess::first_position(sampler);
    schedule.kept_ = std::make_shared<const KeptSlots>(schedule.first_kept_ + schedule.num_slots_);
    if (!maker.add_wids(*wids)) return std::nullopt;
    return schedule;
  }
  const Walk& walk = SamplerAccess::walk(*slot_sampler);
  schedule.first_kept_ = walk.first_kept;
  schedule.kept_ = std::make_shared<const KeptSlots>(walk.kept);
  if (!(passes ? maker.add_passes(*passes) : maker.add_mixture(*mixture))) return std::nullopt;
  maker.add_padding(*slot_sampler);
  return schedule;
}

/// Returns the interval of slots in which `shares` deliver samples of `piece`, counted from the
/// point where the sampler began. Returns nullopt if they deliver no sample of it.
std::optional<UseInterval> ShardSchedule::delivered_part(const Piece& piece,
                                                         const RankOptions::Range& shares) const {
  std::optional<UseInterval> found;
  bool is_delivered = false;
  std::uint64_t index = 0;
  // Skips slots before the point where the sampler began.
  if (first_kept_ > 0) index = piece.slots.count_below(kept_->slot(first_kept_));
  while (index < piece.slots.count) {
    const std::uint64_t slot = piece.slots[index];
    const std::uint64_t number = kept_->kept_before(slot);
    if (number - first_kept_ >= num_slots_) break;
    if (!kept_->is_kept(slot)) {
      index = piece.slots.count_below(kept_->slot(number));
      continue;
    }
    // Handles the slots up to the next gap, the end of the piece, or the last delivery.
    const std::uint64_t stride = piece.slots.stride;
    const std::uint64_t first = number - first_kept_;
    const std::uint64_t run = std::min(kept_->run_length(number), num_slots_ - first);
    const StridedRange delivered{first, stride,
                                 std::min(piece.slots.count - index, ceil_div(run, stride))};
    if (!found) found = UseInterval{0, first, first};
    found->end = delivered[delivered.count - 1] + 1;
    is_delivered = is_delivered || delivered.meets(num_shares_, shares.first, shares.count);
    index += delivered.count;
  }
  if (!is_delivered) return std::nullopt;
  return in_whole_steps(*found);
}

UseInterval ShardSchedule::in_whole_steps(UseInterval use) const noexcept {
  use.begin -= use.begin % step_slots_;
  use.end = std::min(ceil_div(use.end, step_slots_) * step_slots_, num_slots_);
  return use;
}

UseInterval ShardSchedule::in_windows(UseInterval use, std::uint64_t window) const noexcept {
  const auto number_of = [&](std::uint64_t position) {
    const std::uint64_t kept = std::max(kept_->kept_before(position), first_kept_) - first_kept_;
    return std::min(kept, num_slots_);
  };
  const std::uint64_t first = kept_->slot(first_kept_ + use.begin);
  const std::uint64_t last = kept_->slot(first_kept_ + use.end - 1);
  use.begin = number_of(first - first % window);
  use.end = number_of(last - last % window + window);
  return use;
}

std::optional<EpochSchedule> ShardSchedule::uses(const RankOptions::Range& ranks,
                                                 std::uint64_t window) const {
  if (ranks.count == 0 || ranks.count > world_size_ || ranks.first > world_size_ - ranks.count) {
    throw InvalidArgument("the run has no ranks [" + std::to_string(ranks.first) + ", " +
                              std::to_string(ranks.first + ranks.count) + ")",
                          {}, "choose ranks in [0, " + std::to_string(world_size_) + ")");
  }
  const std::uint64_t first_share = ranks.first / replicas_;
  RankOptions::Range shares{first_share,
                            ceil_div(ranks.first + ranks.count, replicas_) - first_share};
  if (window != 0) shares = {.first = 0, .count = num_shares_};
  if (step_slots_ > 1 && shares.count < num_shares_) return std::nullopt;

  struct Part {
    UseInterval use;
    std::size_t piece;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto use = delivered_part(pieces_[i], shares);
    if (use) parts.push_back({window == 0 ? *use : in_windows(*use, window), i});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& x, const Part& y) { return x.use.begin < y.use.begin; });
  EpochSchedule epoch;
  epoch.num_slots = num_slots_;
  epoch.uses.reserve(touched_.size());
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::vector<std::uint64_t> latest(num_shards_, kNone);
  const auto add = [&](const UseInterval& use) {
    std::uint64_t& place = latest[use.shard];
    if (place != kNone && epoch.uses[place].end >= use.begin) {
      epoch.uses[place].end = std::max(epoch.uses[place].end, use.end);
      return;
    }
    place = epoch.uses.size();
    epoch.uses.push_back(use);
  };
  for (const Part& part : parts) {
    for (std::uint64_t i = pieces_[part.piece].first_touch; i < pieces_[part.piece].last_touch;
         ++i) {
      add({touched_[i], part.use.begin, part.use.end});
    }
  }
  for (const UseInterval& use : padding_) {
    if (!StridedRange{use.begin, 1, 1}.meets(num_shares_, shares.first, shares.count)) continue;
    add(window == 0 ? in_whole_steps(use) : in_windows(use, window));
  }
  // Pieces of several data sets, or of balanced steps, may begin in the same slot, so the uses may
  // be unsorted.
  const auto order = [](const UseInterval& use) { return std::pair(use.begin, use.shard); };
  if (!std::ranges::is_sorted(epoch.uses, {}, order)) std::ranges::sort(epoch.uses, {}, order);
  return epoch;
}

}  // namespace shardwise::detail
