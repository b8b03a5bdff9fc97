#pragma once

#include "decode/image_codec.h"
#include "decode/rgb_image.h"

namespace shardwise::detail {

/// An Exif orientation as three optional steps from the upright image to the stored image: swap
/// rows with columns, reverse the order of rows, reverse the order of columns.
struct Orientation {
  explicit Orientation(unsigned exif) noexcept
      : swaps(exif >= 5),
        flips_rows(exif == 3 || exif == 4 || exif == 6 || exif == 7),
        flips_columns(exif == 2 || exif == 3 || exif == 7 || exif == 8) {}

  bool swaps;
  bool flips_rows;
  bool flips_columns;

  /// Converts `box` from upright coordinates to coordinates of the stored image of height x width.
  [[nodiscard]] Box stored(const Box& box, std::size_t height, std::size_t width) const noexcept;
  /// Converts `box` from coordinates of the stored image of height x width to upright coordinates.
  [[nodiscard]] RealBox upright(RealBox box, std::size_t height, std::size_t width) const noexcept;
  /// Writes `stored` to `image`, turned upright.
  void turn(const RgbImage& stored, RgbImage& image) const;
};

}  // namespace shardwise::detail
