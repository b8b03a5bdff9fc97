#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
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
  /// Returns OrderSpec::layout: a hash of the shard lengths or weights that the order uses. 0 means
  /// that it uses neither.
  virtual std::uint64_t layout() const { return 0; }
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

/// The passes over one data set. Each pass has a separate EpochOrder.
/// Threads: one.
class Passes {
 public:
  using Kind = std::variant<Chunked, Sharded, Sequential>;

  /// @param starts  the shards, for sharded orders; otherwise null.
  Passes(std::uint64_t n, ShardOffsets starts, const Kind& kind, std::uint64_t seed)
      : n_(n), starts_(std::move(starts)), kind_(kind), seed_(seed) {}

  /// Number of samples in a pass.
  std::uint64_t size() const noexcept { return n_; }
  const ShardOffsets& starts() const noexcept { return starts_; }
  /// The order of a pass. Lifetime: until a different pass of the same parity is requested.
  /// Errors: InvalidArgument if an option of the kind is not valid.
  const EpochOrder& operator[](std::uint64_t number) const {
    std::optional<Pass>& kept = kept_[number % kept_.size()];
    if (!kept || kept->number != number) kept = Pass{number, make(number)};
    return kept->order;
  }

 private:
  struct Pass {
    std::uint64_t number;
    EpochOrder order;
  };

  EpochOrder make(std::uint64_t number) const {
    if (const auto* chunked = std::get_if<Chunked>(&kind_)) {
      return EpochOrder::chunked(n_, chunked->chunk_size,
                                 {seed_, number, chunked->window, chunked->phase});
    }
    if (const auto* sharded = std::get_if<Sharded>(&kind_)) {
      return EpochOrder::sharded(starts_, {seed_, number, sharded->window});
    }
    return EpochOrder::sequential(n_);
  }

  std::uint64_t n_;
  ShardOffsets starts_;
  Kind kind_;
  std::uint64_t seed_;
  mutable std::array<std::optional<Pass>, 2> kept_;  ///< by number mod 2
};

}  // namespace shardwise::detail
