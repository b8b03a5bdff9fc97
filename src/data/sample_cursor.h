#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/open_shard.h"
#include "data/range_ahead.h"
#include "index/segment_of.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/sample.h"
#include "storage/shard_handle.h"

namespace shardwise::detail {

/// The shards that a cursor holds, of a dataset and of the datasets that are joined to it.
/// Threads: one.
class HeldShards {
 public:
  /// REQUIRES: `data` outlives this object.
  HeldShards(const Dataset& data, std::size_t max_shards, std::span<const std::string> in_parts);

  /// Sets `sample` to the sample `index`, if its shards are held or can be pinned because they are
  /// open. Otherwise returns false, and `sample` is as after release().
  /// REQUIRES: index < the dataset's size; `sample` is as after release() or prepare().
  [[nodiscard]] bool try_borrow(Sample& sample, std::uint64_t index) noexcept;
  /// Sets `sample` to the first of the samples `coming`, and opens its shards if necessary. Shards
  /// may be released for this.
  /// @param coming  numbers of the samples that will be read, in this order; not empty.
  /// Errors: as Dataset::operator[]; `sample` is then as after release().
  void borrow(Sample& sample, std::span<const std::uint64_t> coming);
  /// Gives a new sample empty samples of the joined datasets, which later samples reuse.
  void prepare(Sample& sample) const;
  /// Releases a sample that relies on the pins of held shards, or owns its bytes.
  static void release(Sample& sample) noexcept;
  /// True if the sample, or a joined sample, owns its bytes.
  [[nodiscard]] static bool owns_bytes(const Sample& sample) noexcept;
  /// Calls add(address) for each cache line of the first `max_bytes` of each field of a mapped
  /// sample.
  template <class Add>
  static void each_line(const Sample& sample, std::uint64_t max_bytes, const Add& add) noexcept;
  /// Prefetches the records of samples whose shards are held or open. Numbers that are out of range
  /// are ignored.
  void prefetch_records(std::span<const std::uint64_t> indices) noexcept;

 private:
  struct Held {
    ShardHandle<OpenShard> shard;
    std::uint64_t number = 0;
  };

  [[nodiscard]] std::uint64_t number_of(std::uint64_t index) const noexcept;
  /// Returns the slot for a shard, even if the slot does not hold the shard.
  [[nodiscard]] Held& place_of(std::uint64_t shard) noexcept {
    return held_[shard & (held_.size() - 1)];
  }
  [[nodiscard]] const Held* find_held(std::uint64_t number) noexcept;
  [[nodiscard]] bool try_borrow_joined(Sample& sample, std::uint64_t number) noexcept;
  void borrow_own(Sample& sample, std::span<const std::uint64_t> coming, std::uint64_t number);
  void set(Sample& sample, const Held& held, std::uint64_t index, std::uint64_t number) noexcept;

  const Dataset& data_;
  const std::uint64_t size_;  // number of samples in data_
  const std::vector<std::string> in_parts_;
  const ShardFinder finder_;
  std::vector<Held> held_;
  Held* from_cache_ = nullptr;  // element of held_ with the one shard from a cache; may be null
  std::unique_ptr<RangeAhead> ahead_;  // null until a sample of an unmapped shard is read
  std::vector<HeldShards> joined_;     // of the datasets that are joined to data_
};

/// Reads many samples of a dataset in runs, and pins their shards. Only the first sample of each
/// shard needs a lookup in the pool and an atomic count, for which threads would contend. While the
/// caller uses one run, the CPU prefetches the bytes of the next run and the records of later runs.
/// Samples that are fetched by ranges are fetched together with coming samples, see RangeAhead.
///
/// Lifetime: destroy it after at most one batch, because the shards that it holds cannot be
///   evicted. Room in a ShardCache is scarce, so the cursor holds only one cached shard at a time.
/// Threads: one.
class SHARDWISE_EXPORT SampleCursor {
 public:
  /// Default for the maximum number of shards held.
  static constexpr std::size_t kMaxShards = 64;
  /// Maximum number of samples in a run.
  static constexpr std::size_t kMaxRun = 32;
  /// Default for the number of bytes of each field to prefetch.
  static constexpr std::uint64_t kAheadBytes = 512;

  /// @param indices      numbers of the samples to read, in this order.
  /// @param max_shards   maximum number of shards held; a power of two.
  /// @param ahead_bytes  number of bytes of each field to prefetch.
  /// @param in_parts     names of fields that the caller reads by SampleAccess::open_field() if
  ///   their shard is not mapped.
  /// REQUIRES: `data` and `indices` outlive this object.
  SampleCursor(const Dataset& data, std::span<const std::uint64_t> indices,
               std::size_t max_shards = kMaxShards, std::uint64_t ahead_bytes = kAheadBytes,
               std::span<const std::string> in_parts = {});
  ~SampleCursor();
  SampleCursor(const SampleCursor&) = delete;
  SampleCursor& operator=(const SampleCursor&) = delete;

  /// Returns the next samples, as many as can be held at once; empty at the end. The samples are
  /// valid until the next call; a copy of a Sample stays valid.
  /// Errors: as Dataset::operator[] for the next sample. That sample is skipped by the next call.
  std::span<const Sample> next_run();

 private:
  /// Samples that have no pins, and rely on the pins of the held shards.
  struct Run {
    std::unique_ptr<Sample[]> samples;
    std::size_t size = 0;
  };

  void open_into(Run& run);
  void fill(Run& run) noexcept;
  void clear(Run& run) noexcept;
  void prefetch_records() noexcept;
  void prefetch_bytes(const Run& run) noexcept;

  const std::span<const std::uint64_t> indices_;
  const std::uint64_t size_;  // number of samples of the dataset
  const std::uint64_t ahead_bytes_;
  std::size_t at_ = 0;        // position of the first sample that is in no run yet
  std::size_t expected_ = 0;  // position of the first sample whose records are not yet prefetched
  HeldShards shards_;
  Run now_;   // run that the caller uses
  Run next_;  // the run after now_; contains samples whose shards are held
};

}  // namespace shardwise::detail
