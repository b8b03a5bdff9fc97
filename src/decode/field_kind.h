#pragma once

#include <cstdint>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The kind of a field's content, according to WebDataset's naming convention.
enum class FieldKind : std::uint8_t {
  kBytes,    ///< all other fields, including pickles; returned unchanged
  kImage,    ///< jpg jpeg png webp ppm pgm pnm
  kInteger,  ///< cls cls2 class count index inx id
  kText,     ///< txt text transcript
  kJson,     ///< json jsn
  kNpy       ///< npy
};
/// Judges by the part after the last dot: "png", "seg.png" and "left.PNG" are images.
SHARDWISE_EXPORT FieldKind field_kind(std::string_view field) noexcept;

}  // namespace shardwise::detail
