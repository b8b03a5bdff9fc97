#include "loader/rank_agreement.h"

#include <bit>

#include "base/error_types.h"
#include "base/hasher.h"

namespace shardwise::detail {
namespace {

/// Hashes a text to a number below 2^24, so that the squares of 256 ranks do not overflow.
std::uint64_t number_of(const std::string& text) { return hash128(text).low >> 40; }

}  // namespace

std::vector<std::int64_t> RankAgreement::words() const {
  std::vector<std::int64_t> words;
  for (const auto& [name, value] : items_) {
    const std::uint64_t number = number_of(value);
    words.push_back(static_cast<std::int64_t>(number));
    words.push_back(static_cast<std::int64_t>(number * number));
  }
  return words;
}

void RankAgreement::require(std::span<const std::int64_t> sums, std::uint64_t num_ranks,
                            std::size_t num_left_out) const {
  std::string differing;
  for (std::size_t i = 0; i < items_.size() - num_left_out; ++i) {
    const auto sum = std::bit_cast<std::uint64_t>(sums[2 * i]);
    const auto squares = std::bit_cast<std::uint64_t>(sums[2 * i + 1]);
    if (num_ranks * squares == sum * sum) continue;  // equality modulo 2^64
    differing += (differing.empty() ? "" : ", ") + items_[i].first;
  }
  if (differing.empty()) return;
  throw Mismatch(
      "the loaders of the ranks differ", differing,
      "give all ranks the same data, options and state, and take the same number of steps on each");
}

}  // namespace shardwise::detail
