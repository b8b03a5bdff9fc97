#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/agreement.h"

namespace shardwise::detail {

/// Checks that the ranks of a run have equal items, with one sum over all ranks. Each text is
/// hashed to a number; the numbers and their squares are added up. The sum of the squares, times
/// the number of ranks, equals the square of the sum only if all numbers are equal. From 257 ranks
/// on these values wrap modulo 2^64, so that unequal numbers might pass, but hardly ever do.
class RankAgreement {
 public:
  explicit RankAgreement(Record items) : items_(std::move(items)) {}

  /// Returns two words for each item, to be added up over all ranks.
  [[nodiscard]] std::vector<std::int64_t> words() const;
  /// @param sums  of words(); it may be longer.
  /// @param num_left_out  items at the end that may differ.
  /// Errors: Mismatch, on all ranks, with the names of the items that differ.
  void require(std::span<const std::int64_t> sums, std::uint64_t num_ranks,
               std::size_t num_left_out) const;

 private:
  Record items_;
};

}  // namespace shardwise::detail
