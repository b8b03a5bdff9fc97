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

/// The header that ranks exchange before each collective. All headers have the same size, so the
/// exchange succeeds even if ranks make different calls. A small tensor is sent in the header and
/// needs no collective.
struct CallHeader {
  static constexpr std::size_t kRoom = 200;
  static constexpr std::size_t kMaxReason = 4000;  ///< limit for a reason's text, in bytes
  /// The name in the header that a rank sends when it gives up. It sends this header instead of the
  /// header of the call in which the other ranks wait.
  static constexpr std::string_view kGivenUp = "given up";

  CallHeader() = default;
  /// @param call  name of the call; only the first 12 bytes are compared.
  explicit CallHeader(std::string_view call);
  CallHeader(std::string_view call, const torch::Tensor& tensor);

  /// Returns true if the tensor fits into a header.
  [[nodiscard]] static bool fits(const torch::Tensor& tensor);
  /// Returns the tensor in the header. `tensor` gives its type and shape.
  [[nodiscard]] torch::Tensor payload_like(const torch::Tensor& tensor) const;

  /// Sets this rank's StopWord, and whether it wants a checkpoint.
  void set_stop(const StopWord& word, bool saves);

  [[nodiscard]] bool is_given_up() const { return name.data() == kGivenUp; }
  [[nodiscard]] bool is_same_call(const CallHeader& other) const;

  std::uint64_t number = 0;
  std::int64_t num_elements = 0;
  /// An argument of reduce() or gather(), or in give_up() whether parameters were being changed. It
  /// may differ between ranks.
  std::int64_t count = 0;
  std::int32_t root = 0;
  std::uint8_t op = 0;
  std::int8_t type = 0;
  std::array<char, 13> name{};
  bool saves = false;  ///< a checkpoint is due; all ranks use the value of rank 0
  // Why this rank wants to stop. If the reason is new to the ranks, they exchange its text next.
  StopLevel stop = StopLevel::kGoOn;
  std::uint8_t exit_code = 0;
  std::uint16_t reason_size = 0;
  std::array<char, kRoom> payload{};
};
static_assert(std::is_trivially_copyable_v<CallHeader> && sizeof(CallHeader) == 248);

/// Describes a call for errors, e.g. "7, all_reduce(max) of 3 Long".
std::string describe(const CallHeader& call);

}  // namespace shardwise::libtorch::detail
