#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// The size in bytes of a sample, as an index knows it. Called from the sampler's thread.
using SampleBytes = std::function<std::uint64_t(std::uint64_t sample)>;

/// Chunked, sharded or sequential order with the bytes of each step spread evenly over the ranks,
/// for samples of very different sizes (video, text): otherwise all ranks wait for the one that
/// drew the longest. Ranks still get equal counts, and every sample still comes exactly once;
/// resuming on another number of ranks works as ever, because each row keeps its samples.
///
/// Version 1. W consecutive slots form a row, and each rank gets one sample of each row. Rows are
/// dealt in blocks of 64. At the beginning of block b all ranks have 0 bytes. Its rows are dealt
/// from the one whose largest and smallest sample differ most to the one where they differ least
/// (equal ones by slot): the samples from the largest to the smallest (equal ones by slot) go to
/// the ranks from the one with the fewest bytes so far to the one with the most (equal ones by
/// (rank + b) mod W). Where a row is not whole, at the end of the epoch or where a run resumed, the
/// ranks that have a sample in it are those that would have one without balancing, so sizes do not
/// change.
///
/// Threads: one thread. Memory: 64 numbers, and 24 * 64 * W bytes while a block is dealt. Cost:
/// about 100 * W ns a sample, since every rank deals for all.
class SHARDWISE_EXPORT BalancedSampler final : public OrderedSampler {
 public:
  /// options.sampler is chunked, sequential, or sharded with `offsets`.
  BalancedSampler(SampleCount n, const OrderOptions& options, SampleBytes bytes,
                  ShardOffsets offsets = nullptr);
  std::unique_ptr<Sampler> clone() const override;

 private:
  static constexpr std::uint64_t kRows = 64;
  struct Block;

  void prepare() override;
  void evaluate(std::uint64_t first, std::span<std::uint64_t> out) const override;
  std::vector<Delivery> find_deliveries(std::uint64_t sample) const override;
  Block deal(std::uint64_t number) const;

  SampleBytes bytes_;
  /// The block that evaluate() used last: its number, from where its run had resumed, this rank's
  /// part.
  mutable std::uint64_t cached_block_ = ~std::uint64_t{0};
  mutable std::uint64_t cached_first_ = 0;
  mutable std::vector<std::uint64_t> cached_;
};

}  // namespace shardwise
