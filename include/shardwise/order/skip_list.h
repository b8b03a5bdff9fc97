#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise {

/// What a run leaves out on purpose: samples (in every epoch), and global slots of one epoch, as
/// the steps round a loss spike. One thread while it is filled; then immutable.
///
/// What is left out closes up: the slots after it move forward, so rank sizes still differ by at
/// most one, and every other sample still comes exactly once. Entries may be added in the middle of
/// an epoch: a resume token counts slots as they are numbered without any list, so what was
/// consumed stays consumed. With more than one stream, a rank moves to the next stream at each slot
/// left out, which costs locality, not exactness.
class SHARDWISE_EXPORT SkipList {
 public:
  /// Global slots [begin, end) of `epoch`, numbered as if nothing were left out.
  struct Slots {
    std::uint64_t epoch = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    friend auto operator<=>(const Slots&, const Slots&) = default;
  };

  void add_sample(std::uint64_t sample);
  /// Errors: InvalidArgument if begin > end.
  void add_slots(std::uint64_t epoch, std::uint64_t begin, std::uint64_t end);
  /// Leaves out the global steps [first, last) of `epoch`, as counted by a run of `world_size`
  /// ranks with `batch_size` samples each that left nothing out in that epoch before.
  void add_steps(std::uint64_t epoch, std::uint64_t first, std::uint64_t last,
                 std::uint64_t world_size, std::uint64_t batch_size);

  /// Adds all entries of `other`.
  void merge(const SkipList& other);

  bool empty() const noexcept { return samples_.empty() && slots_.empty(); }
  /// Ascending, each once.
  std::span<const std::uint64_t> samples() const noexcept { return samples_; }
  /// Ascending, disjoint within an epoch.
  std::span<const Slots> slots() const noexcept { return slots_; }

  friend bool operator==(const SkipList&, const SkipList&) = default;

 private:
  std::vector<std::uint64_t> samples_;
  std::vector<Slots> slots_;
};

/// The slots of one epoch with those of a skip list taken out: kept slots are numbered again
/// without gaps. Immutable; safe from any thread. Lookups O(log entries); nothing skipped costs
/// nothing.
class SHARDWISE_EXPORT KeptSlots {
 public:
  explicit KeptSlots(std::uint64_t num_slots) : num_slots_(num_slots) {}
  /// `skipped`: slot ranges in any order, which may overlap and reach beyond num_slots.
  KeptSlots(std::uint64_t num_slots, std::vector<SkipList::Slots> skipped);

  std::uint64_t size() const noexcept { return num_slots_ - num_skipped(); }
  std::uint64_t num_skipped() const noexcept { return gaps_.empty() ? 0 : gaps_.back().skipped; }

  /// The slot of kept slot `kept`; slots beyond the last follow without gaps.
  std::uint64_t slot(std::uint64_t kept) const noexcept;
  /// How many kept slots from `kept` on lie in one piece.
  std::uint64_t run_length(std::uint64_t kept) const noexcept;
  /// How many kept slots lie before `slot`: its own number, if it is kept.
  std::uint64_t kept_before(std::uint64_t slot) const noexcept;
  bool is_kept(std::uint64_t slot) const noexcept;

 private:
  struct Gap {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t skipped;  ///< up to and with this gap
    std::uint64_t kept_begin() const noexcept {
      return end - skipped;
    }  ///< first kept slot after it
  };

  std::uint64_t num_slots_;
  std::vector<Gap> gaps_;  ///< ascending, apart from one another
};

}  // namespace shardwise
