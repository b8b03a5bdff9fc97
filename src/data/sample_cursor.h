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

/// Reads many samples of a dataset, some at a time, holding their shards: after the first of a
/// shard, a sample costs no look into the pool and counts no holder, which threads would do in
/// turns. While samples of one run are used, the CPU fetches the bytes of the next, and the records
/// of those behind it.
///
/// One thread. For as long as a batch: shards that it holds are not evicted. Of those in a
/// ShardCache, whose room is scarce, it holds only the one that is read.
class SHARDWISE_EXPORT SampleCursor {
 public:
  /// Shards held at most, if nothing else is said.
  static constexpr std::size_t kMaxShards = 64;
  /// Samples in a run at most.
  static constexpr std::size_t kMaxRun = 32;

  /// @param indices     of the samples that are read, in this order.
  /// @param max_shards  held at most; a power of two.
  /// @param ahead_bytes  of each field that are fetched ahead.
  /// REQUIRES: `data` and `indices` outlive it.
  SampleCursor(const Dataset& data, std::span<const std::uint64_t> indices,
               std::size_t max_shards = kMaxShards, std::uint64_t ahead_bytes = 512);
  ~SampleCursor();
  SampleCursor(const SampleCursor&) = delete;
  SampleCursor& operator=(const SampleCursor&) = delete;

  /// The next samples, as many as lie in shards that are held at the same time; none at the end.
  /// Valid until the next call. A copy of one is a Sample of its own.
  /// Errors: as Dataset::operator[], of the next sample; that one is then left out.
  std::span<const Sample> next_run();

 private:
  struct Held {
    ShardHandle<OpenShard> shard;
    std::uint64_t number = 0;
  };
  /// Samples whose pins are those of shards that are held, and not counted again.
  struct Run {
    std::unique_ptr<Sample[]> samples;
    std::size_t size = 0;
  };

  [[nodiscard]] std::uint64_t number_of(std::uint64_t index) const noexcept;
  /// Where a shard is held, if it is.
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
  std::size_t at_ = 0;        // of the first that no run has
  std::size_t expected_ = 0;  // of the first whose records were not asked for
  Run now_;                   // what next_run() gave
  Run next_;                  // what follows it, as far as its shards are held
  std::vector<Held> held_;
  Held* from_cache_ = nullptr;  // of held_: the one shard that lies in a cache
};

}  // namespace shardwise::detail
