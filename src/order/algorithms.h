#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "shardwise/base/export.h"
#include "shardwise/order/resume.h"

namespace shardwise {
namespace detail {

/// The algorithms that determine an order. Each has its own version, which changes when the
/// algorithm's results change. A token states the versions of the algorithms that its order uses.
enum class Algorithm : std::uint8_t {
  kPermutation,  ///< Permutation::kVersion
  kEpochOrder,   ///< EpochOrder::kVersion
  kBalance,      ///< Dealer::kVersion
  kMixture,
  kResampled,
  kWids,
  kSkip,  ///< SkipList::kVersion
};
inline constexpr std::size_t kNumAlgorithms =
    std::tuple_size_v<decltype(ResumeToken::OrderSpec::versions)>;
static_assert(kNumAlgorithms == static_cast<std::size_t>(Algorithm::kSkip) + 1);

/// Returns "permutation", "epoch order", "balance", "mixture", "resampled", "wids" or "skip".
SHARDWISE_EXPORT std::string_view algorithm_name(Algorithm algorithm) noexcept;
/// The version that this library implements.
SHARDWISE_EXPORT unsigned algorithm_version(Algorithm algorithm) noexcept;

}  // namespace detail

using detail::Algorithm;
using detail::algorithm_name;
using detail::algorithm_version;
using detail::kNumAlgorithms;

}  // namespace shardwise
