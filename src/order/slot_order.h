#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "order/epoch_order.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// Maps each slot of an epoch to a sample, before samples are left out or distributed to ranks. The
/// public headers call slot numbers "positions of an epoch".
/// Threads: one.
class SlotOrder {
 public:
  virtual ~SlotOrder() = default;
  virtual std::unique_ptr<SlotOrder> clone() const = 0;

  /// If it throws, the object is unchanged. Errors: InvalidArgument if the epoch does not exist.
  virtual void set_epoch(std::uint64_t epoch) = 0;
  /// Takes over the weights of a mixture. If it throws, the object is unchanged.
  /// REQUIRES: `order` is that of this object, with other weights.
  virtual void set_weights(const Order& /*order*/) {}
  /// Number of slots of an epoch.
  virtual std::uint64_t num_slots() const = 0;
  /// Sets out[i] to the sample in slot first + i * stride.
  /// REQUIRES: all slots are below num_slots(). `stride` divides the order's number of streams, or
  /// is a multiple of it.
  virtual void fill(std::uint64_t first, std::uint64_t stride,
                    std::span<std::uint64_t> out) const = 0;
  /// True if fill() accepts `count` slots from `first` on, with this stride.
  bool in_epoch(std::uint64_t first, std::uint64_t stride, std::size_t count) const {
    return count == 0 || (first < num_slots() && (num_slots() - 1 - first) / stride >= count - 1);
  }
  /// True if slots_of() works. Otherwise every slot of the epoch must be searched.
  virtual bool can_find() const { return true; }
  /// Returns the slots of the epoch that contain `sample`, ascending. REQUIRES: the sample exists.
  /// Errors: InvalidArgument if can_find() is false.
  virtual std::vector<std::uint64_t> slots_of(std::uint64_t sample) const = 0;
  /// True if each sample is in exactly one slot.
  virtual bool is_exact() const = 0;
  /// The claim of a proof for an epoch that is not exact, e.g. "drawn with replacement, as
  /// ordered".
  virtual std::string_view claim() const = 0;

 protected:
  SlotOrder() = default;
  SlotOrder(const SlotOrder&) = default;
  SlotOrder& operator=(const SlotOrder&) = default;
};

/// Errors: InvalidArgument.
std::unique_ptr<SlotOrder> make_slot_order(const SampleSet& samples, const Order& order);

/// Returns the order of one pass over n samples. `kind` is Chunked, Sharded or Sequential.
template <class Kind>
EpochOrder make_pass(const Kind& kind, std::uint64_t n, const ShardOffsets& starts,
                     std::uint64_t seed, std::uint64_t pass) {
  if constexpr (std::is_same_v<Kind, Chunked>) {
    return EpochOrder::chunked(n, kind.chunk_size, {seed, pass, kind.window, kind.phase});
  } else if constexpr (std::is_same_v<Kind, Sharded>) {
    return EpochOrder::sharded(starts, {seed, pass, kind.window});
  } else {
    return EpochOrder::sequential(n);
  }
}

}  // namespace shardwise::detail
