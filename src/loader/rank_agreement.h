#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/agreement.h"

namespace shardwise::detail {

/// Checks that all ranks of a run have equal items, with one sum over the ranks. Each text is
/// hashed to a number, and the ranks add up the numbers and their squares. All numbers are equal if
/// and only if the sum of the squares, times the number of ranks, is the square of the sum. With
/// more than 256 ranks these values wrap modulo 2^64: unequal numbers might then pass, very rarely.
class RankAgreement {
 public:
  explicit RankAgreement(Record items) : items_(std::move(items)) {}

  /// Returns two words per item. The caller adds them up over all ranks.
  [[nodiscard]] std::vector<std::int64_t> words() const;
  /// Checks the sums.
  /// @param sums  sums of words() over all ranks; further words may follow.
  /// @param num_left_out  number of items at the end that are not checked.
  /// Errors: Mismatch, on all ranks, with the names of the items that differ.
  void require(std::span<const std::int64_t> sums, std::uint64_t num_ranks,
               std::size_t num_left_out) const;

 private:
  Record items_;
};

}  // namespace shardwise::detail
