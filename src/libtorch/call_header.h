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

/// The header that ranks exchange before each collective. Its size is the same for all calls, so
/// the exchange succeeds even if ranks make different calls. A small tensor travels in the header
/// and needs no collective.
struct CallHeader {
  static constexpr std::size_t kRoom = 200;
  static constexpr std::size_t kMaxReason = 4000;  ///< bytes
  /// Name of the call by which a rank gives up the call that the other ranks are at.
  static constexpr std::string_view kGivenUp = "given up";

  CallHeader() = default;
  /// @param call  name of the call; the first 12 bytes count.
  explicit CallHeader(std::string_view call);
  CallHeader(std::string_view call, const torch::Tensor& tensor);

  /// Returns true if a header can carry the tensor.
  [[nodiscard]] static bool fits(const torch::Tensor& tensor);
  /// Returns the tensor that the header carries. Type and shape are those of `tensor`.
  [[nodiscard]] torch::Tensor payload_like(const torch::Tensor& tensor) const;

  /// Sets this rank's word about stopping.
  void set_stop(const StopWord& word, bool saves);

  [[nodiscard]] bool is_given_up() const { return name.data() == kGivenUp; }
  [[nodiscard]] bool is_same_call(const CallHeader& other) const;

  std::uint64_t number = 0;
  std::int64_t num_elements = 0;
  std::int64_t count = 0;  ///< for reduce(), gather(), give_up(); may differ between ranks
  std::int32_t root = 0;
  std::uint8_t op = 0;
  std::int8_t type = 0;
  std::array<char, 13> name{};
  bool saves = false;  ///< a checkpoint is due; only rank 0's value is used
  // Why this rank wants to stop. If the reason is new to the ranks, they exchange its text next.
  StopLevel stop = StopLevel::kGoOn;
  std::uint8_t exit_code = 0;
  std::uint16_t reason_size = 0;
  std::array<char, kRoom> payload{};
};
static_assert(std::is_trivially_copyable_v<CallHeader> && sizeof(CallHeader) == 248);

/// Describes a call, e.g. "7, all_reduce(max) of 3 Long".
std::string describe(const CallHeader& call);

}  // namespace shardwise::libtorch::detail
