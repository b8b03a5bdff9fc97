#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Says why bytes could not be decoded. Users get a BadField, which also says where.
class SHARDWISE_EXPORT DecodeFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "480x640 (HxW)": the size of an image in every text, in the order of options and shapes.
inline std::string size_text(std::uint64_t height, std::uint64_t width) {
  return std::to_string(height) + "x" + std::to_string(width) + " (HxW)";
}

}  // namespace shardwise::detail
