#pragma once

#include <cstdint>
#include <span>

#include "base/assert.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// How the n positions of an epoch become n global slots: they form `streams` contiguous runs,
/// which are dealt side by side, see docs/formats/order.md (Slots). Immutable; safe from any
/// thread.
///
/// Rank r of W takes the slots j with j mod W == r (see Partition). So the first t slots are the
/// same set whatever W is, and a run may go on at any slot with another number of ranks. `streams`
/// decides only which shards meet: with 1 the ranks walk through the same chunks together; with as
/// many as there are nodes each node has its own chunks, if the ranks are numbered round the nodes.
class Streams {
 public:
  explicit Streams(std::uint64_t num_positions, std::uint64_t streams = 1);

  std::uint64_t count() const noexcept { return streams_; }

  /// REQUIRES: slot < num_positions.
  std::uint64_t position_of_slot(std::uint64_t slot) const noexcept;
  /// REQUIRES: position < num_positions.
  std::uint64_t slot_of_position(std::uint64_t position) const noexcept;

  /// Where the run of `stream` begins.
  std::uint64_t run_begin(std::uint64_t stream) const noexcept {
    return stream * run_length_ + (stream < longer_runs_ ? stream : longer_runs_);
  }

 private:
  std::uint64_t streams_;
  std::uint64_t run_length_;   ///< of the shorter runs
  std::uint64_t longer_runs_;  ///< the first runs, which are one longer
};

/// Which of an epoch's global slots one rank delivers: those with slot mod world_size == rank.
/// Immutable; safe from any thread. Exact: rank sizes differ by at most one, and size() is what is
/// delivered, never an estimate.
///
/// Errors of the constructor: InvalidArgument if world_size is 0 or above 2^31, rank is not below
/// world_size, or neither of streams and world_size divides the other; the text lists what is
/// valid.
class Partition {
 public:
  Partition(std::uint64_t num_slots, std::uint64_t world_size = 1, std::uint64_t rank = 0,
            Order::Tail tail = Order::Tail::kExact, std::uint64_t streams = 1);

  std::uint64_t world_size() const noexcept { return world_size_; }
  std::uint64_t rank() const noexcept { return rank_; }
  Order::Tail tail() const noexcept { return tail_; }

  /// Slots that exist, before the tail policy.
  std::uint64_t num_slots() const noexcept { return num_slots_; }
  /// Slots that all ranks deliver together: num_slots rounded by the tail policy. Walk::slot() says
  /// what the slots from num_slots on, the pads, hold.
  std::uint64_t delivered_slots() const noexcept { return delivered_slots_; }

  /// The number of slots that this rank delivers.
  std::uint64_t size() const noexcept { return size_of(rank_); }
  std::uint64_t size_of(std::uint64_t rank) const noexcept {
    return index_at(delivered_slots_, rank);
  }
  /// The number that the rank with the most slots delivers.
  std::uint64_t max_size() const noexcept { return size_of(0); }

  /// The slot of this rank's sample `index`, padded slots included. REQUIRES: index < size().
  std::uint64_t slot(std::uint64_t index) const noexcept {
    SHARDWISE_ASSERT_HOT(index < size());
    return index * world_size_ + rank_;
  }
  /// How many of this rank's slots lie before `slot`: where it goes on if `slot` were consumed.
  std::uint64_t index_at(std::uint64_t slot) const noexcept { return index_at(slot, rank_); }

 private:
  std::uint64_t index_at(std::uint64_t slot, std::uint64_t rank) const noexcept {
    return slot / world_size_ + (slot % world_size_ > rank ? 1 : 0);
  }

  std::uint64_t num_slots_;
  std::uint64_t world_size_;
  std::uint64_t rank_;
  Order::Tail tail_;
  std::uint64_t delivered_slots_;
};

}  // namespace shardwise::detail
