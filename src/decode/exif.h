#pragma once

#include <string>
#include <string_view>

namespace shardwise::detail {

/// Returns the orientation (1 to 8) from an image's metadata, as ImageOps.exif_transpose of Pillow
/// 13 reads it. Returns 1 if the metadata is damaged or has no orientation.
/// @param exif  a block of Exif data. "Exif\0\0" may precede the TIFF header once or twice. Only
///   the first directory is read. The tag may be a whole number of any size.
/// @param xmp   an XMP packet; used if the Exif block has no orientation tag.
unsigned orientation_of(std::string_view exif, std::string_view xmp) noexcept;

/// Returns the block of Exif data from the text of a PNG's chunk "Raw profile type exif", which
/// ImageMagick writes: three lines, then hexadecimal digits. Returns an empty text if it is
/// damaged.
std::string raw_profile(std::string_view text);

}  // namespace shardwise::detail
