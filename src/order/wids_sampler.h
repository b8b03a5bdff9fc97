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

/// The order of Python wids, bit for bit: for runs that were begun with it, and for comparisons.
/// Not the default, because it keeps what was wrong with it: uneven ranks, each with the same block
/// of samples in every epoch, no resuming on other ranks, O(epoch) to enter at a position. The
/// exact samplers have none of this, with the same seed, chunk_size and shards.
///
/// docs/formats/wids-order.md specifies it (version 1), and lists what the other orders do better.
/// Source: wids.ChunkedSampler, DistributedChunkedSampler and ShardListSampler with shuffle=True.
///
/// Positions: rank r's sample i is at position i * world_size + r of an epoch. In wids an epoch
/// moves on by itself when the iterator is exhausted, and only then; here set_epoch() decides.
///
/// Threads: one thread. Memory: a chunk's numbers, and 8 bytes a chunk.
/// Cost:    about 15 ns a sample in sequence; at() and seek() replay from where the sampler stands,
///          or from the beginning.
class SHARDWISE_EXPORT WidsSampler final : public Sampler {
 public:
  static constexpr unsigned kVersion = 1;

  /// DistributedChunkedSampler; with one rank, ChunkedSampler. `order.kind` is Wids.
  /// Errors: InvalidArgument.
  explicit WidsSampler(const SampleSet& samples, const Order& order = {.kind = Wids{}},
                       const RankOptions& ranks = {});
  /// ShardListSampler: shards as chunks, one process. Errors: InvalidArgument also if there is more
  /// than one rank, or a chunk_size.
  [[nodiscard]] static WidsSampler shard_list(const SampleSet& samples,
                                              const Order& order = {.kind = Wids{}});

  WidsSampler(const WidsSampler& other);
  WidsSampler& operator=(const WidsSampler&) = delete;
  WidsSampler(WidsSampler&&) noexcept = default;

  /// The number that wids' len() returns: ceil(n / world_size), delivered or not.
  std::uint64_t wids_len() const noexcept { return block_size_; }

  /// This rank's chunks in the order in which this epoch reads them, as ranges of sample numbers.
  /// Without shuffling too. Cost: O(chunks).
  std::vector<EpochOrder::SampleRange> chunks_in_order() const;

  std::unique_ptr<Sampler> clone() const override;

 private:
  WidsSampler(const SampleSet& samples, ResumeToken::OrderSpec spec, const RankOptions& ranks,
              ShardOffsets offsets);

  void prepare(SkipList::Point point, const SkipList& skip) override;
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
  std::uint64_t first_index_ = 0;  ///< of the block, where the sampler began
  std::unique_ptr<WidsWalk> replay_;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::WidsSampler;
}  // namespace shardwise
