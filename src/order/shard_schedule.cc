#include "shardwise/order/shard_schedule.h"

#include <algorithm>
#include <string>

#include "order/arithmetic.h"
#include "shardwise/base/error.h"
#include "shardwise/order/balanced_sampler.h"
#include "shardwise/order/wids_sampler.h"

namespace shardwise {

namespace {

using order_detail::ceil_div;
using SampleRange = EpochOrder::SampleRange;

void check_starts(std::span<const std::uint64_t> starts, std::uint64_t num_samples) {
  if (!starts.empty() && starts.front() == 0 && std::is_sorted(starts.begin(), starts.end()) &&
      starts.back() == num_samples) {
    return;
  }
  throw InvalidArgument("these are not the shards of " + std::to_string(num_samples) + " samples",
                        {},
                        "give the first sample of each shard, then the number of samples: "
                        "ascending, the first 0");
}

std::uint64_t shard_of(std::span<const std::uint64_t> starts, std::uint64_t sample) {
  const auto after = std::upper_bound(starts.begin(), starts.end(), sample);
  return static_cast<std::uint64_t>(after - starts.begin()) - 1;
}

}  // namespace

std::optional<ShardSchedule> ShardSchedule::of(const Sampler& sampler,
                                               std::span<const std::uint64_t> shard_starts,
                                               std::uint64_t max_touches) {
  const bool is_known = dynamic_cast<const OrderedSampler*>(&sampler) != nullptr ||
                        dynamic_cast<const WidsSampler*>(&sampler) != nullptr;
  if (!is_known) return std::nullopt;
  check_starts(shard_starts, sampler.spec().num_samples);
  ShardSchedule schedule(sampler, shard_starts);
  if (!schedule.add_groups(sampler, shard_starts, max_touches)) return std::nullopt;
  schedule.add_padding(sampler, shard_starts);
  return schedule;
}

ShardSchedule::ShardSchedule(const Sampler& sampler, std::span<const std::uint64_t> shard_starts)
    : num_shards_(shard_starts.size() - 1),
      world_size_(sampler.world_size()),
      num_streams_(sampler.spec().streams),
      num_slots_(sampler.partition().delivered_slots()),
      ranks_are_fixed_(!sampler.spec().balance_bytes),
      kept_(sampler.kept()) {
  const std::uint64_t n = sampler.spec().num_samples;
  if (sampler.spec().sampler == SamplerKind::kWids) {  // a contiguous block each rank
    num_streams_ = world_size_;
    const std::uint64_t block = ceil_div(n, world_size_);
    for (std::uint64_t rank = 0; rank < world_size_; ++rank) {
      runs_.push_back(std::min(rank * block, n));
    }
  } else {
    const Streams streams(n, num_streams_);
    const std::uint64_t num_runs = std::min(num_streams_, n);  // the others are empty
    for (std::uint64_t stream = 0; stream < num_runs; ++stream) {
      runs_.push_back(streams.run_begin(stream));
    }
  }
  runs_.push_back(n);
}

/// Appends a group that holds these ranges of samples; false if it touches too much.
bool ShardSchedule::add_group(std::span<const SampleRange> samples,
                              std::span<const std::uint64_t> shard_starts,
                              std::uint64_t max_touches) {
  std::uint64_t begin = groups_.back().begin;
  const std::size_t first_touch = touched_.size();
  for (const auto& [first, last] : samples) {
    if (first == last) continue;
    begin += last - first;
    for (std::uint64_t shard = shard_of(shard_starts, first);
         shard < num_shards_ && shard_starts[shard] < last; ++shard) {
      if (shard_starts[shard] == shard_starts[shard + 1]) continue;
      if (touched_.size() == max_touches) return false;
      touched_.push_back(shard);
    }
  }
  const auto added = touched_.begin() + static_cast<std::ptrdiff_t>(first_touch);
  if (samples.size() > 1) {
    std::sort(added, touched_.end());
    touched_.erase(std::unique(added, touched_.end()), touched_.end());
  }
  groups_.push_back({begin, touched_.size()});
  return true;
}

bool ShardSchedule::add_groups(const Sampler& sampler, std::span<const std::uint64_t> shard_starts,
                               std::uint64_t max_touches) {
  groups_.push_back({0, 0});
  const auto* const wids = dynamic_cast<const WidsSampler*>(&sampler);
  const auto* const ordered = dynamic_cast<const OrderedSampler*>(&sampler);
  const bool in_order =
      wids != nullptr ? !sampler.spec().shuffle : ordered->order().is_sequential();
  if (in_order) {
    for (std::uint64_t shard = 0; shard < num_shards_; ++shard) {
      const SampleRange samples{shard_starts[shard], shard_starts[shard + 1]};
      if (!add_group({&samples, 1}, shard_starts, max_touches)) return false;
    }
    return true;
  }
  if (wids != nullptr) {
    for (std::uint64_t rank = 0; rank < world_size_; ++rank) {
      const std::unique_ptr<Sampler> mine = wids->for_rank(rank);
      for (const SampleRange& chunk : static_cast<const WidsSampler&>(*mine).chunks_in_order()) {
        if (!add_group({&chunk, 1}, shard_starts, max_touches)) return false;
      }
    }
    return true;
  }
  const EpochOrder& order = ordered->order();
  const std::uint64_t num_groups = order.num_groups();
  if (num_groups > max_touches) return false;
  groups_.reserve(num_groups + 1);
  std::vector<SampleRange> samples;
  for (std::uint64_t group = 0; group < num_groups; ++group) {
    order.list_group(group, samples);
    if (!add_group(samples, shard_starts, max_touches)) return false;
  }
  return true;
}

/// The slots that come again at the end hold what the epoch's first slots hold.
void ShardSchedule::add_padding(const Sampler& sampler,
                                std::span<const std::uint64_t> shard_starts) {
  const std::uint64_t num_slots = kept_.size();
  for (std::uint64_t slot = num_slots; slot < num_slots_; ++slot) {
    const std::unique_ptr<Sampler> first = sampler.for_rank(slot % num_slots % world_size_);
    const std::uint64_t sample = first->at(slot % num_slots / world_size_);
    padding_.push_back({shard_of(shard_starts, sample), slot, slot + 1});
  }
}

/// True if one of slots first, first + streams, ... (`count` of them) is delivered by these ranks.
bool ShardSchedule::delivers(const RankRange& ranks, std::uint64_t first,
                             std::uint64_t count) const noexcept {
  if (count == 0) return false;
  const std::uint64_t rank = first % world_size_;
  if (rank >= ranks.first && rank - ranks.first < ranks.count) return true;
  if (num_streams_ >= world_size_) return false;  // a multiple: all slots are of one rank
  // Ranks go up by num_streams_ and round: the next one at or after ranks.first.
  const std::uint64_t ahead = (ranks.first + world_size_ - rank) % world_size_;
  const std::uint64_t steps = ceil_div(ahead, num_streams_);
  return steps < count && steps * num_streams_ - ahead < ranks.count;
}

/// The piece of `group` that is the `first`-th to before the `last`-th position of `stream`.
std::optional<ShardSchedule::Piece> ShardSchedule::piece(std::uint64_t group, std::uint64_t stream,
                                                         std::uint64_t first, std::uint64_t last,
                                                         const RankRange& ranks) const {
  std::optional<Piece> found;
  bool is_delivered = false;
  while (first < last) {
    const std::uint64_t slot = first * num_streams_ + stream;
    const std::uint64_t kept = kept_.kept_before(slot);
    if (kept >= num_slots_) break;
    if (!kept_.is_kept(slot)) {
      first = ceil_div(kept_.slot(kept) - stream, num_streams_);
      continue;
    }
    // Up to the next gap, or the end of the piece, or of what is delivered.
    const std::uint64_t run = std::min(kept_.run_length(kept), num_slots_ - kept);
    const std::uint64_t count = std::min(last - first, ceil_div(run, num_streams_));
    if (!found) found = Piece{kept, kept, group};
    found->end = kept + (count - 1) * num_streams_ + 1;
    is_delivered = is_delivered || delivers(ranks, kept, count);
    first += count;
  }
  return is_delivered ? found : std::nullopt;
}

/// The pieces that these ranks have a part of, by begin.
std::vector<ShardSchedule::Piece> ShardSchedule::pieces(const RankRange& ranks) const {
  std::vector<Piece> found;
  std::size_t group = 0;
  for (std::size_t stream = 0; stream + 1 < runs_.size(); ++stream) {
    const std::uint64_t run_begin = runs_[stream];
    const std::uint64_t run_end = runs_[stream + 1];
    while (group + 1 < groups_.size() && groups_[group].begin < run_end) {
      const std::uint64_t begin = std::max(groups_[group].begin, run_begin);
      const std::uint64_t end = std::min(groups_[group + 1].begin, run_end);
      if (const auto part = piece(group, stream, begin - run_begin, end - run_begin, ranks)) {
        found.push_back(*part);
      }
      if (groups_[group + 1].begin > run_end) break;  // it goes on in the next stream
      ++group;
    }
  }
  const auto by_begin = [](const Piece& x, const Piece& y) { return x.begin < y.begin; };
  if (!std::is_sorted(found.begin(), found.end(), by_begin)) {
    std::sort(found.begin(), found.end(), by_begin);
  }
  return found;
}

std::optional<EpochUses> ShardSchedule::uses(const RankRange& ranks) const {
  if (ranks.count == 0 || ranks.count > world_size_ || ranks.first > world_size_ - ranks.count) {
    throw InvalidArgument("no ranks " + std::to_string(ranks.first) + " to before " +
                              std::to_string(ranks.first + ranks.count),
                          {}, "there are " + std::to_string(world_size_) + " ranks, from 0");
  }
  if (!ranks_are_fixed_ && ranks.count < world_size_) return std::nullopt;
  EpochUses epoch;
  epoch.num_slots = num_slots_;
  epoch.uses.reserve(touched_.size());
  // No two pieces begin in one slot, so what is merged into an earlier use leaves all in order.
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::vector<std::uint64_t> latest(num_shards_, kNone);
  const auto add = [&](const ShardUse& use) {
    std::uint64_t& place = latest[use.shard];
    if (place != kNone && epoch.uses[place].end >= use.begin) {
      epoch.uses[place].end = std::max(epoch.uses[place].end, use.end);
      return;
    }
    place = epoch.uses.size();
    epoch.uses.push_back(use);
  };
  for (const Piece& part : pieces(ranks)) {
    const std::uint64_t last = groups_[part.group + 1].first_touch;
    for (std::uint64_t i = groups_[part.group].first_touch; i < last; ++i) {
      add({touched_[i], part.begin, part.end});
    }
  }
  for (const ShardUse& use : padding_) {
    if (delivers(ranks, use.begin, 1)) add(use);
  }
  return epoch;
}

}  // namespace shardwise
