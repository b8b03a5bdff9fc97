#pragma once

#include <cstdint>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The kind of content of a field, by WebDataset's naming convention.
enum class FieldKind : std::uint8_t {
  kBytes,    ///< anything else, including pickles; returned unchanged
  kImage,    ///< jpg jpeg png webp ppm pgm pnm
  kInteger,  ///< cls cls2 class count index inx id
  kText,     ///< txt text transcript
  kJson,     ///< json jsn
  kNpy       ///< npy
};
/// Uses the part after the last dot: "png", "seg.png" and "left.PNG" are images.
SHARDWISE_EXPORT FieldKind field_kind(std::string_view field) noexcept;

}  // namespace shardwise::detail
