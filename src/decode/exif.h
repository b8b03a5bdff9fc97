#pragma once

#include <string>
#include <string_view>

namespace shardwise::detail {

/// Returns the orientation, 1 to 8, in an image's metadata, read like ImageOps.exif_transpose of
/// Pillow 13. Returns 1 if the metadata is damaged, or has no orientation.
/// @param exif  a block of Exif data, whose first directory counts. "Exif\0\0" may precede the TIFF
///   header, once or twice. The tag may be a whole number of any size.
/// @param xmp   an XMP packet, used if the block has no such tag.
unsigned orientation_of(std::string_view exif, std::string_view xmp) noexcept;

/// Returns the block of Exif data in a PNG's text "Raw profile type exif", as ImageMagick writes
/// it: three lines, then hexadecimal digits. Returns an empty text if it is damaged.
std::string raw_profile(std::string_view text);

}  // namespace shardwise::detail
