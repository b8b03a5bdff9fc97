#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/open_shard.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/sample.h"
#include "storage/shard_handle.h"

namespace shardwise::detail {

/// Reads many samples of a dataset, holding their shards: after the first of a shard, a sample
/// costs no look into the pool and counts no holder, which threads would do in turns.
///
/// One thread. For as long as a batch: shards that it holds are not evicted. Of those in a
/// ShardCache, whose room is scarce, it holds only the one that is read.
class SHARDWISE_EXPORT SampleCursor {
 public:
  /// Shards held at most, if nothing else is said.
  static constexpr std::size_t kMaxShards = 64;

  /// @param max_shards  held at most; a power of two.
  /// REQUIRES: `data` outlives it.
  explicit SampleCursor(const Dataset& data, std::size_t max_shards = kMaxShards)
      : data_(data), held_(max_shards) {}
  ~SampleCursor() { release(); }
  SampleCursor(const SampleCursor&) = delete;
  SampleCursor& operator=(const SampleCursor&) = delete;

  /// The sample at `index`; valid until the next call. A copy of it is a Sample of its own.
  /// Errors: as Dataset::operator[].
  const Sample& at(std::uint64_t index);
  /// Asks the CPU for what at() will need of a sample's records, and, if they have come, of its
  /// bytes. Nothing, if its shard is not open.
  void prefetch_records(std::uint64_t index) noexcept;
  void prefetch_bytes(std::uint64_t index) noexcept;
  /// The same for several samples at once.
  void prefetch_records(std::span<const std::uint64_t> indices) noexcept;
  void prefetch_bytes(std::span<const std::uint64_t> indices) noexcept;

 private:
  struct Held {
    ShardHandle<OpenShard> shard;
    std::uint64_t number = 0;
  };

  /// Where a shard is held, if it is.
  [[nodiscard]] Held& place_of(std::uint64_t shard) noexcept {
    return held_[shard & (held_.size() - 1)];
  }
  [[nodiscard]] const OpenShard* open_shard_of(std::uint64_t number) noexcept;
  const Sample& borrow(const Held& held, std::uint64_t index, std::uint64_t number);
  const Sample& open(std::uint64_t index, std::uint64_t number, std::uint64_t shard);
  void release() noexcept;

  const Dataset& data_;
  std::optional<Sample> sample_;  // its pin is one of those held, and not counted again
  bool is_borrowed_ = false;      // the pin of sample_
  std::vector<Held> held_;
  Held* from_cache_ = nullptr;  // of held_: the one shard that lies in a cache
};

}  // namespace shardwise::detail
