#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "order/epoch_order.h"
#include "order/wids_walk.h"
#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// The order of Python wids, bit for bit, for runs that began with wids and for comparisons. It is
/// not the default, because it has the faults of wids. Ranks have unequal numbers of samples, and a
/// rank has the same block of samples in every epoch. A run cannot resume with other ranks, and
/// seeking costs O(epoch). The exact samplers do not have these faults.
///
/// Positions: rank r's sample i is at position i * world_size + r of an epoch. In wids, the epoch
/// advances only when the iterator is exhausted. Here set_epoch() sets it.
///
/// Threads: one.
/// Memory: a chunk's numbers, and 8 bytes per chunk.
/// Cost: O(1) per sample in sequence; at() and seek() replay from the current position, or from the
/// beginning.
/// Source: wids.ChunkedSampler, DistributedChunkedSampler and ShardListSampler with shuffle=True.
/// docs/formats/wids-order.md (version 1) specifies the order and lists the advantages of other
/// orders.
class SHARDWISE_EXPORT WidsSampler final : public Sampler {
 public:
  static constexpr unsigned kVersion = 1;

  /// Makes the order of DistributedChunkedSampler or, with one rank, of ChunkedSampler.
  /// `order.kind` must be Wids.
  /// Errors: InvalidArgument.
  explicit WidsSampler(const SampleSet& samples, const Order& order = {.kind = Wids{}},
                       const RankOptions& ranks = {});
  /// Makes the order of ShardListSampler: shards are chunks, and there is one process.
  /// Errors: InvalidArgument also for more than one rank, or with a chunk_size.
  [[nodiscard]] static WidsSampler shard_list(const SampleSet& samples,
                                              const Order& order = {.kind = Wids{}});

  WidsSampler(const WidsSampler& other);
  WidsSampler& operator=(const WidsSampler&) = delete;
  WidsSampler(WidsSampler&&) noexcept = default;

  /// Returns this rank's chunks as ranges of sample numbers, in the order in which this epoch reads
  /// them, shuffled or not. Cost: O(chunks).
  std::vector<EpochOrder::SampleRange> chunks_in_order() const;

  std::unique_ptr<Sampler> clone() const override;

 private:
  WidsSampler(const SampleSet& samples, ResumeToken::OrderSpec spec, const RankOptions& ranks,
              ShardOffsets offsets);

  void prepare(SkipList::Point point, const SkipList& skip, const Order* changed) override;
  void evaluate(std::uint64_t first, std::span<std::uint64_t> out) const override;
  std::uint64_t find_position(std::uint64_t index) const override;
  std::optional<std::uint64_t> position_after(std::uint64_t count) const override;
  std::uint64_t num_positions() const override { return block_size_ * num_shares(); }
  void expect(EpochAudit::Expectation& expectation) const override;
  std::uint64_t count_before(std::uint64_t position) const override;
  std::vector<Delivery> find_deliveries(std::uint64_t sample) const override;

  const Wids& wids() const { return std::get<Wids>(order().kind); }
  std::vector<WidsWalk::Range> ranges() const;
  std::unique_ptr<WidsWalk> begin_replay(std::uint64_t epoch) const;

  ShardOffsets offsets_;
  std::uint64_t block_size_;
  std::uint64_t first_index_ = 0;  ///< index in this rank's block at which the sampler began
  std::unique_ptr<WidsWalk> replay_;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::WidsSampler;
}  // namespace shardwise
