#pragma once

#include <string_view>

namespace shardwise::detail {

/// The orientation, 1 to 8, that a block of Exif data gives in its first directory; 1 if it gives
/// none or is damaged: pixels do not depend on it. "Exif\0\0" may stand before the TIFF header.
unsigned exif_orientation(std::string_view exif) noexcept;

}  // namespace shardwise::detail
