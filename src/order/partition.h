#pragma once

#include <cstdint>

#include "base/assert.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// Maps the n positions of an epoch to n global slots. The positions are divided into `streams`
/// contiguous runs, and the slots take positions from the runs in turn; see docs/formats/order.md
/// (Slots).
/// Threads: immutable; safe from any thread.
///
/// Rank r of W delivers the slots j with j mod W == r (see Partition). The first t slots are
/// therefore the same set for any W, so a run may continue at any slot with another number of
/// ranks. `streams` determines which shards are read at the same time. With 1 stream, all ranks
/// read the same chunks together. With one stream per node, each node reads its own chunks, if
/// consecutive ranks are on different nodes.
class Streams {
 public:
  explicit Streams(std::uint64_t num_positions, std::uint64_t streams = 1);

  std::uint64_t count() const noexcept { return streams_; }

  /// REQUIRES: slot < num_positions.
  std::uint64_t position_of_slot(std::uint64_t slot) const noexcept;
  /// REQUIRES: position < num_positions.
  std::uint64_t slot_of_position(std::uint64_t position) const noexcept;

  /// The first position of the run of `stream`.
  std::uint64_t run_begin(std::uint64_t stream) const noexcept {
    return stream * run_length_ + (stream < longer_runs_ ? stream : longer_runs_);
  }

 private:
  std::uint64_t streams_;
  std::uint64_t run_length_;   ///< length of the shorter runs
  std::uint64_t longer_runs_;  ///< number of runs at the beginning that are longer by one
};

/// The global slots of an epoch that one rank delivers: all slots with slot mod world_size == rank.
/// The numbers of slots of two ranks differ by at most one, and size() is the exact number of
/// deliveries.
/// Threads: immutable; safe from any thread.
/// Errors of the constructor: InvalidArgument, listing the valid values, if world_size is 0 or
/// above 2^31, rank is not below world_size, or neither of streams and world_size divides the
/// other.
class Partition {
 public:
  Partition(std::uint64_t num_slots, std::uint64_t world_size = 1, std::uint64_t rank = 0,
            Order::Tail tail = Order::Tail::kExact, std::uint64_t streams = 1);

  /// Number of slots before the tail policy is applied.
  std::uint64_t num_slots() const noexcept { return num_slots_; }
  /// Number of slots that all ranks deliver together: num_slots rounded by the tail policy. Slots
  /// from num_slots on are padding; Walk::slot() states which slots they repeat.
  std::uint64_t delivered_slots() const noexcept { return delivered_slots_; }

  /// The number of slots that this rank delivers.
  std::uint64_t size() const noexcept { return index_at(delivered_slots_); }

  /// Returns the slot of this rank's sample `index`, including padding. REQUIRES: index < size().
  std::uint64_t slot(std::uint64_t index) const noexcept {
    SHARDWISE_ASSERT_HOT(index < size());
    return index * world_size_ + rank_;
  }
  /// Returns the number of this rank's slots before `slot`, i.e. the index of its first sample at
  /// or after `slot`.
  std::uint64_t index_at(std::uint64_t slot) const noexcept {
    return slot / world_size_ + (slot % world_size_ > rank_ ? 1 : 0);
  }

 private:
  std::uint64_t num_slots_;
  std::uint64_t world_size_;
  std::uint64_t rank_;
  std::uint64_t delivered_slots_;
};

}  // namespace shardwise::detail
