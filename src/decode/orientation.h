#pragma once

#include "decode/image_codec.h"
#include "decode/rgb_image.h"

namespace shardwise::detail {

/// An Exif orientation as three steps from the upright image to the stored one: swap rows with
/// columns, reverse the order of rows, reverse the order of columns. Each step is optional.
struct Orientation {
  explicit Orientation(unsigned exif) noexcept
      : swaps(exif >= 5),
        flips_rows(exif == 3 || exif == 4 || exif == 6 || exif == 7),
        flips_columns(exif == 2 || exif == 3 || exif == 7 || exif == 8) {}

  bool swaps;
  bool flips_rows;
  bool flips_columns;

  /// Converts `box` from the upright form to the stored image of height x width.
  [[nodiscard]] Box stored(const Box& box, std::size_t height, std::size_t width) const noexcept;
  /// Converts `box` from the stored image of height x width to the upright form.
  [[nodiscard]] RealBox upright(RealBox box, std::size_t height, std::size_t width) const noexcept;
  /// Writes the upright form of `stored` to `image`.
  void turn(const RgbImage& stored, RgbImage& image) const;
};

}  // namespace shardwise::detail
