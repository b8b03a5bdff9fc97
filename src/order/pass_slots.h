#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "order/epoch_order.h"
#include "order/partition.h"
#include "order/slot_order.h"

namespace shardwise::detail {

/// Chunked, sharded and sequential orders: exact passes over the data, concatenated and divided
/// into epochs. Slot x of epoch e is slot e * epoch_size + x of the concatenated passes. Without an
/// epoch_size, each epoch is one pass.
class PassSlots final : public SlotOrder {
 public:
  PassSlots(std::uint64_t n, ShardOffsets starts, const Passes::Kind& kind, const Order& order);
  std::unique_ptr<SlotOrder> clone() const override;

  void set_epoch(std::uint64_t epoch) override;
  std::uint64_t num_slots() const override { return epoch_size_; }
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const override;
  std::vector<std::uint64_t> slots_of(std::uint64_t sample) const override;
  std::uint64_t layout() const override;
  bool is_exact() const override { return epoch_size_ == passes_.size(); }
  std::string_view claim() const override { return "of an exact order, as ordered"; }

  /// The first slot of the current epoch, counted over all passes.
  std::uint64_t first_slot() const noexcept { return epoch_ * epoch_size_; }
  const Streams& streams() const noexcept { return streams_; }
  const Passes& passes() const noexcept { return passes_; }
  std::uint64_t epoch() const noexcept { return epoch_; }

 private:
  void fill_pass(const EpochOrder& order, std::uint64_t first, std::uint64_t stride,
                 std::span<std::uint64_t> out) const;

  Passes passes_;
  std::uint64_t epoch_size_;
  Streams streams_;
  std::uint64_t epoch_ = 0;
};

}  // namespace shardwise::detail
