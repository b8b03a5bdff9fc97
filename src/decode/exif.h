#pragma once

#include <string>
#include <string_view>

namespace shardwise::detail {

/// The orientation, 1 to 8, that an image's metadata asks for, as ImageOps.exif_transpose of Pillow
/// 13 reads it; 1 if they ask for none or are damaged: pixels do not depend on it.
/// @param exif  a block of Exif data, whose first directory counts. "Exif\0\0" may stand before the
///   TIFF header, also twice. The tag may be a whole number of any size.
/// @param xmp   a packet of XMP, which counts if the block has no such tag.
unsigned orientation_of(std::string_view exif, std::string_view xmp) noexcept;

/// The block of Exif data in the text of a PNG's "Raw profile type exif", as ImageMagick writes it:
/// three lines, and then hexadecimal digits. Empty if it is damaged.
std::string raw_profile(std::string_view text);

}  // namespace shardwise::detail
