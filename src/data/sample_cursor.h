#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/open_shard.h"
#include "index/segment_of.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/sample.h"
#include "storage/shard_handle.h"

namespace shardwise::detail {

/// Reads many samples of a dataset in runs, while it holds their shards. After the first sample of
/// a shard, a sample needs no lookup in the pool and no atomic count, for which threads would
/// contend. While the caller uses one run, the CPU prefetches the bytes of the next, and the
/// records of later ones.
///
/// Lifetime: keep it no longer than a batch, as shards that it holds are not evicted. A
///   ShardCache's room is scarce: of its shards, only the current one is held.
/// Threads: one.
class SHARDWISE_EXPORT SampleCursor {
 public:
  /// Default for the number of shards held.
  static constexpr std::size_t kMaxShards = 64;
  /// Maximum number of samples in a run.
  static constexpr std::size_t kMaxRun = 32;

  /// @param indices      of the samples to read, in this order.
  /// @param max_shards   maximum number of shards held; a power of two.
  /// @param ahead_bytes  number of bytes to prefetch of each field.
  /// REQUIRES: `data` and `indices` outlive it.
  SampleCursor(const Dataset& data, std::span<const std::uint64_t> indices,
               std::size_t max_shards = kMaxShards, std::uint64_t ahead_bytes = 512);
  ~SampleCursor();
  SampleCursor(const SampleCursor&) = delete;
  SampleCursor& operator=(const SampleCursor&) = delete;

  /// The next samples, as many as can be held at the same time; empty at the end. Valid until the
  /// next call; a copied Sample stays valid.
  /// Errors: as Dataset::operator[], of the next sample, which is then skipped.
  std::span<const Sample> next_run();

 private:
  struct Held {
    ShardHandle<OpenShard> shard;
    std::uint64_t number = 0;
  };
  /// Samples that use the pins of held shards, without counting as holders.
  struct Run {
    std::unique_ptr<Sample[]> samples;
    std::size_t size = 0;
  };

  [[nodiscard]] std::uint64_t number_of(std::uint64_t index) const noexcept;
  /// The slot for a shard, whether or not it is held.
  [[nodiscard]] Held& place_of(std::uint64_t shard) noexcept {
    return held_[shard & (held_.size() - 1)];
  }
  [[nodiscard]] const Held* find_held(std::uint64_t number) noexcept;
  void read_into(Run& run);
  void open_into(Run& run);
  void fill(Run& run) noexcept;
  void borrow(Sample& sample, const Held& held, std::uint64_t index, std::uint64_t number) noexcept;
  void clear(Run& run) noexcept;
  void prefetch_records() noexcept;
  void prefetch_bytes(const Run& run) noexcept;

  const Dataset& data_;
  const std::span<const std::uint64_t> indices_;
  const std::uint64_t size_;  // of data_
  const ShardFinder finder_;
  const std::uint64_t ahead_bytes_;
  std::size_t at_ = 0;        // first sample that is in no run
  std::size_t expected_ = 0;  // first sample whose records are not prefetched
  Run now_;                   // the caller's run
  Run next_;                  // the run after it, as far as its shards are held
  std::vector<Held> held_;
  Held* from_cache_ = nullptr;  // in held_: the one shard from a cache
};

}  // namespace shardwise::detail
