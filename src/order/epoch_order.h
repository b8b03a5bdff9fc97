#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "order/permutation.h"
#include "shardwise/base/export.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// Errors: InvalidArgument if the sum exceeds kMaxSamples.
SHARDWISE_EXPORT ShardOffsets shard_offsets_from_lengths(std::span<const std::uint64_t> lengths);

/// One epoch's order of n samples: a bijection between positions [0, n) and sample numbers [0, n).
///
/// The samples are divided into chunks of consecutive numbers: chunk_size samples each, or one
/// chunk per shard. The chunks are concatenated in a permuted order, every `window` chunks form a
/// group, and the samples of each group are permuted. A sample's position is therefore within its
/// group, and a group touches `window` chunks. A window of 1 shuffles inside each chunk. If
/// chunk_size >= n, or the window has all chunks, all samples are shuffled together. With `phase`
/// the borders of chunks move in each epoch, so that no two neighbours are always in different
/// chunks.
///
/// Threads: immutable; safe from any thread; copies are cheap.
/// Source: docs/formats/order.md (A pass, version 1). kVersion is the version there, and tokens
///   contain it.
class SHARDWISE_EXPORT EpochOrder {
 public:
  static constexpr unsigned kVersion = 1;

  struct Shuffle {
    std::uint64_t seed = 0;
    std::uint64_t epoch = 0;
    std::uint64_t window = 1;  ///< chunks shuffled together
    bool phase = false;        ///< the borders of chunks move in each epoch
  };

  /// Errors of sequential(), chunked() and sharded(): InvalidArgument if n > kMaxSamples, or
  /// chunk_size or window is 0.
  [[nodiscard]] static EpochOrder sequential(std::uint64_t n);
  /// Cost: O(1) memory and time.
  [[nodiscard]] static EpochOrder chunked(std::uint64_t n, std::uint64_t chunk_size,
                                          const Shuffle& shuffle);
  /// Whole shards as chunks. Cost: O(shards) time, 16 bytes per shard.
  /// Errors: InvalidArgument also if `offsets` is not a valid list, or with `phase`.
  [[nodiscard]] static EpochOrder sharded(ShardOffsets offsets, const Shuffle& shuffle);

  std::uint64_t size() const noexcept { return n_; }

  /// The sample at `position`. Cost: O(1); sharded O(log shards).
  /// Errors: OutOfRange.
  std::uint64_t at(std::uint64_t position) const;
  std::uint64_t operator[](std::uint64_t position) const { return at(position); }

  /// Returns the position of `sample`: the inverse of at(). Cost: that of at(). Errors: OutOfRange.
  std::uint64_t position_of(std::uint64_t sample) const;

  /// Sets out[i] to the sample at position first + i * stride.
  /// REQUIRES: all these positions < size(), stride > 0.
  /// Cost: O(1) per position; less if many of them are in one group.
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;

  /// Replaces each position by its sample. Positions may be unsorted and repeated.
  /// REQUIRES: every position < size().
  /// Cost: O(1) per position; less if consecutive elements are in one group, e.g. if positions
  ///   ascend.
  void map(std::span<std::uint64_t> positions) const;

  /// True for the order 0, 1, 2 ..., which has no groups.
  bool is_sequential() const noexcept { return kind_ == Kind::kSequential; }
  std::uint64_t num_groups() const noexcept;
  /// A half-open range of sample numbers.
  using SampleRange = std::pair<std::uint64_t, std::uint64_t>;
  /// Puts the samples of group `number` into `samples`: one range per chunk, in the order of the
  /// layout. A chunk that continues from sample n - 1 to sample 0 (see `phase`) becomes two ranges.
  /// Group g + 1 has the positions directly after those of group g.
  /// REQUIRES: number < num_groups(). Cost: O(chunks of the group).
  void list_group(std::uint64_t number, std::vector<SampleRange>& samples) const;

 private:
  enum class Kind : std::uint8_t { kSequential, kChunked, kSharded };
  struct ShardTable;
  struct Group {
    std::uint64_t number;
    std::uint64_t begin;  ///< the group's positions are [begin, end)
    std::uint64_t end;
  };

  EpochOrder(Kind kind, std::uint64_t n, std::uint64_t num_chunks, const Shuffle& shuffle,
             std::uint64_t chunk_size);

  Group group_at(std::uint64_t position) const noexcept;
  Group chunked_group(std::uint64_t number) const noexcept;
  Group sharded_group(std::uint64_t number) const noexcept;
  Permutation permutation_of(const Group& group) const;
  void lay_out(const Group& group, std::span<std::uint64_t> layout_positions) const;
  void lay_out_chunked(const Group& group, std::span<std::uint64_t> layout_positions) const;
  void lay_out_sharded(const Group& group, std::span<std::uint64_t> layout_positions) const;

  Kind kind_;
  std::uint64_t n_;
  std::uint64_t seed_;
  std::uint64_t epoch_;
  std::uint64_t window_;
  Permutation chunks_;  ///< place -> chunk

  // Chunked:
  std::uint64_t chunk_size_ = 1;
  std::uint64_t chunk_reciprocal_ = 0;
  std::uint64_t exact_reciprocal_ = 0;  ///< for offsets in a group; 0 means that it is not
                                        ///< available
  std::uint64_t phase_ = 0;             ///< distance by which the borders of chunks move
  std::uint64_t group_size_ = 1;        ///< number of samples in a group of full chunks
  std::uint64_t missing_ = 0;           ///< number of samples that the short chunk lacks
  std::uint64_t short_place_ = 0;       ///< place of the short chunk
  std::uint64_t short_end_ = 0;         ///< layout position of the short chunk's end
  PermutationDomain full_group_{0};

  std::shared_ptr<const ShardTable> shards_;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::EpochOrder;
using detail::shard_offsets_from_lengths;
}  // namespace shardwise
