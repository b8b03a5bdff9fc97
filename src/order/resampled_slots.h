#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "order/partition.h"
#include "order/slot_order.h"
#include "order/weighted_draw.h"

namespace shardwise::detail {

/// Draws samples with replacement, which WebDataset calls "resampled".
///
/// NOT exact: an epoch of n draws from n samples contains about 63 % of them, some several times.
/// Every draw is a function of (seed, epoch, position), so any position is computed in O(1).
///
/// - By sample: each position draws a sample, uniformly or by the weights of a metadata column.
/// - By shard: each draw selects a shard, with a probability proportional to its length. The next L
///   positions read this shard in shuffled order, where L is the mean length of shards, rounded up.
///   A longer shard is read only in part. A shorter shard is read several times, in different
///   orders. Every sample is therefore equally likely.
///
/// Cost: O(draws) if samples are left out, because the whole epoch is searched for them.
/// Source: docs/formats/order.md (Resampled orders, version 1).
class ResampledSlots final : public SlotOrder {
 public:
  static constexpr unsigned kVersion = 1;

  ResampledSlots(const SampleSet& samples, const Resampled& kind, const Order& order);
  std::unique_ptr<SlotOrder> clone() const override;

  void set_epoch(std::uint64_t epoch) override { epoch_ = epoch; }
  std::uint64_t num_slots() const override { return epoch_size_; }
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const override;
  std::vector<std::uint64_t> slots_of(std::uint64_t sample) const override;
  bool can_find() const override { return false; }
  std::uint64_t layout() const override;
  bool is_exact() const override { return false; }
  std::string_view claim() const override { return "drawn with replacement, as ordered"; }

 private:
  void fill_positions(std::uint64_t first, std::uint64_t stride,
                      std::span<std::uint64_t> out) const;
  void fill_by_shard(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;

  std::uint64_t n_;
  std::uint64_t seed_;
  std::uint64_t epoch_size_;
  Streams streams_;
  ShardOffsets starts_;                           ///< when drawing by shard
  std::uint64_t draw_size_ = 1;                   ///< when drawing by shard: L, as explained above
  std::shared_ptr<const WeightedDraw> weighted_;  ///< when drawing with weights
  std::uint64_t epoch_ = 0;
};

}  // namespace shardwise::detail
