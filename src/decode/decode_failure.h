#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Thrown if bytes cannot be decoded. Users get a BadField instead, which also says where the bytes
/// come from.
class SHARDWISE_EXPORT DecodeFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Formats an image's size for texts, e.g. "480x640 (HxW)". Height comes first, as in options and
/// shapes.
inline std::string size_text(std::uint64_t height, std::uint64_t width) {
  return std::to_string(height) + "x" + std::to_string(width) + " (HxW)";
}

}  // namespace shardwise::detail
