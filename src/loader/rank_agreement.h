#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/agreement.h"

namespace shardwise::detail {

/// What the ranks of a run must have alike, as texts, and whether they have, by one sum over all
/// ranks: of the numbers that stand for the texts, and of their squares. n times the sum of the
/// squares is the square of the sum for equal numbers only (modulo 2^64: from 257 ranks on, for
/// others hardly ever).
class RankAgreement {
 public:
  explicit RankAgreement(Record items) : items_(std::move(items)) {}

  /// Two words for each item, to be added up over all ranks.
  [[nodiscard]] std::vector<std::int64_t> words() const;
  /// @param sums  of words(), with more behind them.
  /// @param num_left_out  items at the end that may differ.
  /// Errors: Mismatch, on all ranks, with the names of what differs.
  void require(std::span<const std::int64_t> sums, std::uint64_t num_ranks,
               std::size_t num_left_out) const;

 private:
  Record items_;
};

}  // namespace shardwise::detail
