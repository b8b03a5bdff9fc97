#pragma once

#include <cstddef>
#include <string_view>

#include <torch/types.h>

namespace shardwise::libtorch {

/// Returns the bytes of a contiguous CPU tensor, without a copy.
inline std::string_view view_of(const torch::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

}  // namespace shardwise::libtorch
