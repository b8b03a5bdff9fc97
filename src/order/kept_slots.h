#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shardwise::detail {

/// The slots of one epoch without the skipped slots. The kept slots have numbers without gaps.
/// Threads: immutable; safe from any thread.
/// Cost: O(log gaps) per call.
class KeptSlots {
 public:
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  struct Gap {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t skipped;  ///< number of slots skipped up to the end of this gap
    /// The number of the first kept slot after the gap.
    std::uint64_t kept_begin() const noexcept { return end - skipped; }
  };

  explicit KeptSlots(std::uint64_t num_slots = 0) : num_slots_(num_slots) {}
  /// @param skipped  ranges in any order; they may overlap and exceed num_slots.
  KeptSlots(std::uint64_t num_slots, std::vector<Range> skipped);

  std::uint64_t size() const noexcept { return num_slots_ - num_skipped(); }
  std::uint64_t num_skipped() const noexcept { return gaps_.empty() ? 0 : gaps_.back().skipped; }

  /// Returns the slot that has number `kept` among the kept slots. Beyond the last kept slot, the
  /// numbering continues without gaps.
  std::uint64_t slot(std::uint64_t kept) const noexcept;
  /// Returns the number of kept slots, from `kept` on, whose slots are consecutive.
  std::uint64_t run_length(std::uint64_t kept) const noexcept;
  /// Returns the number of kept slots before `slot`. If `slot` is kept, this is its number among
  /// the kept slots.
  std::uint64_t kept_before(std::uint64_t slot) const noexcept;
  bool is_kept(std::uint64_t slot) const noexcept;
  /// Ascending, and not adjacent.
  std::span<const Gap> gaps() const noexcept { return gaps_; }

 private:
  std::uint64_t num_slots_;
  std::vector<Gap> gaps_;
};

}  // namespace shardwise::detail
