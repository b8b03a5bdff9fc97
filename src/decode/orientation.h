#pragma once

#include "decode/image_codec.h"
#include "decode/rgb_image.h"

namespace shardwise::detail {

/// What an Exif orientation asks for, as three steps from an upright image to the stored one: swap
/// rows with columns, then turn the stored rows' order round, then the columns'.
struct Orientation {
  explicit Orientation(unsigned exif) noexcept
      : swaps(exif >= 5),
        flips_rows(exif == 3 || exif == 4 || exif == 6 || exif == 7),
        flips_columns(exif == 2 || exif == 3 || exif == 7 || exif == 8) {}

  bool swaps;
  bool flips_rows;
  bool flips_columns;

  /// The stored place of `box`, which lies in the upright form of a stored height x width.
  [[nodiscard]] Box stored(const Box& box, std::size_t height, std::size_t width) const noexcept;
  /// The other way: the upright place of what lies at `box` of a stored height x width.
  [[nodiscard]] RealBox upright(RealBox box, std::size_t height, std::size_t width) const noexcept;
  /// Writes the upright form of `stored` to `image`.
  void turn(const RgbImage& stored, RgbImage& image) const;
};

}  // namespace shardwise::detail
