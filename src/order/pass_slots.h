#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "order/epoch_order.h"
#include "order/partition.h"
#include "order/slot_order.h"

namespace shardwise::detail {

/// Chunked, sharded and sequential orders: exact passes over the data, concatenated and divided
/// into epochs. Each pass has a separate EpochOrder. Slot x of epoch e is slot e * epoch_size + x
/// of the concatenated passes. Without an epoch_size, each epoch is one pass.
class PassSlots final : public SlotOrder {
 public:
  using Kind = std::variant<Chunked, Sharded, Sequential>;

  PassSlots(std::uint64_t n, ShardOffsets starts, const Kind& kind, const Order& order);
  std::unique_ptr<SlotOrder> clone() const override;

  void set_epoch(std::uint64_t epoch) override;
  std::uint64_t num_slots() const override { return epoch_size_; }
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const override;
  std::vector<std::uint64_t> slots_of(std::uint64_t sample) const override;
  bool is_exact() const override { return epoch_size_ == n_; }
  std::string_view claim() const override { return "of an exact order, as ordered"; }

  /// The first slot of the current epoch, counted over all passes.
  std::uint64_t first_slot() const noexcept { return epoch_ * epoch_size_; }
  std::uint64_t pass_size() const noexcept { return n_; }
  const Streams& streams() const noexcept { return streams_; }
  /// The order of the pass in which the current epoch begins.
  const EpochOrder& current_pass() const { return pass(is_exact() ? epoch_ : first_slot() / n_); }
  /// The order of a pass. Lifetime: until a different pass of the same parity is requested.
  const EpochOrder& pass(std::uint64_t number) const;

 private:
  struct Pass {
    std::uint64_t number;
    EpochOrder order;
  };

  void fill_pass(const EpochOrder& order, std::uint64_t first, std::uint64_t stride,
                 std::span<std::uint64_t> out) const;
  EpochOrder make(std::uint64_t number) const;

  std::uint64_t n_;
  ShardOffsets starts_;
  Kind kind_;
  std::uint64_t seed_;
  std::uint64_t epoch_size_;
  Streams streams_;
  std::uint64_t epoch_ = 0;
  mutable std::array<std::optional<Pass>, 2> passes_;  ///< by number mod 2
};

}  // namespace shardwise::detail
