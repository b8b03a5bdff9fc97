#pragma once

#include <cstdint>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The kind of content that a field's name stands for, by WebDataset's convention.
enum class FieldKind : std::uint8_t {
  kBytes,    ///< anything else, pickles among them: handed out as they are
  kImage,    ///< jpg jpeg png webp ppm pgm pnm
  kInteger,  ///< cls cls2 class count index inx id
  kText,     ///< txt text transcript
  kJson,     ///< json jsn
  kNpy       ///< npy
};
/// Told by what follows the last dot: "png", "seg.png" and "left.PNG" are images.
SHARDWISE_EXPORT FieldKind field_kind(std::string_view field) noexcept;

}  // namespace shardwise::detail
