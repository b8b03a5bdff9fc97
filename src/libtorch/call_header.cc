#include "libtorch/call_header.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>

namespace shardwise::libtorch::detail {

CallHeader::CallHeader(std::string_view call) { call.copy(name.data(), name.size() - 1); }

CallHeader::CallHeader(std::string_view call, const torch::Tensor& tensor) : CallHeader(call) {
  type = static_cast<std::int8_t>(tensor.scalar_type());
  num_elements = tensor.numel();
  if (fits(tensor)) std::memcpy(payload.data(), tensor.data_ptr(), tensor.nbytes());
}

bool CallHeader::fits(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.nbytes()) <= kRoom;
}

torch::Tensor CallHeader::payload_like(const torch::Tensor& tensor) const {
  auto result = torch::empty_like(tensor);
  std::memcpy(result.data_ptr(), payload.data(), result.nbytes());
  return result;
}

void CallHeader::set_stop(const StopWord& word, bool save_is_due) {
  saves = save_is_due;
  stop = word.level;
  exit_code = word.exit_code;
  reason_size = static_cast<std::uint16_t>(std::min(word.reason.size(), kMaxReason));
}

bool CallHeader::is_same_call(const CallHeader& other) const {
  return number == other.number && num_elements == other.num_elements && root == other.root &&
         op == other.op && type == other.type && name == other.name;
}

std::string describe(const CallHeader& call) {
  constexpr std::array<const char*, 4> kOps = {"sum", "min", "max", ""};
  const std::string name = call.name.data();
  std::string text = std::to_string(call.number) + ", " + name;
  if (name == "broadcast") text += " from rank " + std::to_string(call.root);
  if (name == "all_reduce") {
    text += "(" + std::string(kOps[std::min<std::size_t>(call.op, 3)]) + ")";
  }
  if (call.num_elements > 0) {
    text += " of " + std::to_string(call.num_elements) + " " +
            c10::toString(static_cast<torch::ScalarType>(call.type));
  }
  return text;
}

}  // namespace shardwise::libtorch::detail
