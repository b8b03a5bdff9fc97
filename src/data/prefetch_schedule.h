#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "order/shard_use.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Decides which shard to fetch next, and which uses have ended. Inputs are the uses of this epoch
/// and the next, as half-open ranges of slots, and the slot that the reader has reached. Contains
/// no code for caches or threads.
/// Threads: the owner must guard all calls.
///
/// The uses are in two sorted lists, indexed by three counters:
///
///   uses, by begin    u0 u1 u2 | u3 u4 u5 | u6 u7 u8 ...
///                              begun      decided          next() is u6 while it is less than
///   ends, by end      e1 e0 | e2 e4 e3 ...                 max_ahead uses after `begun`
///                           ended
///
///   begun    the uses u0 to u(begun - 1) have begun        advanced by reach()
///   ended    the first `ended` uses in `ends` have ended   advanced by reach()
///   decided  the uses u0 to u(decided - 1) are decided     advanced by decide()
///
/// `decided` may be less than `begun`; the reader then fetches those shards itself.
class SHARDWISE_EXPORT PrefetchSchedule {
 public:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  PrefetchSchedule() = default;
  /// @param uses  sorted by begin.
  PrefetchSchedule(std::vector<UseInterval> uses, std::uint64_t max_ahead);

  /// Reports that all slots before `slot` have been read. Returns the shards whose uses have ended
  /// since the previous call.
  std::vector<std::uint64_t> reach(std::uint64_t slot);
  /// Returns the slot where the next use begins or ends; kNever if no use is left.
  std::uint64_t next_change() const noexcept;
  /// Returns the next use to decide on; null if no use may be fetched ahead now.
  const UseInterval* next() const noexcept;
  void decide() noexcept { ++decided_; }
  /// True if an upcoming use of the shard is close enough to be fetched ahead.
  bool is_ahead(std::uint64_t shard) const noexcept;
  /// True if some use ends at a slot in (after, slot].
  bool has_end(std::uint64_t after, std::uint64_t slot) const noexcept;

 private:
  std::vector<UseInterval> uses_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ends_;  // end slot and shard of each use
  std::uint64_t max_ahead_ = 0;
  std::size_t begun_ = 0, ended_ = 0, decided_ = 0;
};

}  // namespace shardwise::detail
