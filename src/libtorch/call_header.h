#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <torch/types.h>

#include "libtorch/stop_state.h"

namespace shardwise::libtorch::detail {

/// What the ranks exchange before each collective. It has the same size on all ranks whatever they
/// call, so the exchange succeeds also where they disagree. A small tensor goes along as payload
/// and needs no collective of its own.
struct CallHeader {
  static constexpr std::size_t kRoom = 200;
  static constexpr std::size_t kMaxReason = 4000;  ///< bytes
  /// The call of a rank that gives up the one that the other ranks are at.
  static constexpr std::string_view kGivenUp = "given up";

  CallHeader() = default;
  /// @param call  its name; the first 12 bytes count.
  explicit CallHeader(std::string_view call);
  CallHeader(std::string_view call, const torch::Tensor& tensor);

  /// True if the tensor goes along.
  [[nodiscard]] static bool fits(const torch::Tensor& tensor);
  /// The tensor that went along.
  [[nodiscard]] torch::Tensor payload_like(const torch::Tensor& tensor) const;

  /// Sets what this rank says about stopping.
  void set_stop(const StopWord& word, bool saves);

  [[nodiscard]] bool is_given_up() const { return name.data() == kGivenUp; }
  [[nodiscard]] bool is_same_call(const CallHeader& other) const;

  std::uint64_t number = 0;
  std::int64_t num_elements = 0;
  std::int64_t count = 0;  ///< goes along; may differ
  std::int32_t root = 0;
  std::uint8_t op = 0;
  std::int8_t type = 0;
  std::array<char, 13> name{};
  bool saves = false;  ///< a checkpoint is due; rank 0's counts
  // Why this rank wants to stop; the reason's text follows if it is news to all.
  StopLevel stop = StopLevel::kGoOn;
  std::uint8_t exit_code = 0;
  std::uint16_t reason_size = 0;
  std::array<char, kRoom> payload{};
};
static_assert(std::is_trivially_copyable_v<CallHeader> && sizeof(CallHeader) == 248);

/// "7, all_reduce(max) of 3 Long".
std::string describe(const CallHeader& call);

}  // namespace shardwise::libtorch::detail
