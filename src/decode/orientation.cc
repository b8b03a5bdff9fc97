#include "decode/orientation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shardwise::detail {

Box Orientation::stored(const Box& box, std::size_t height, std::size_t width) const noexcept {
  Box stored = box;
  if (swaps) stored = {box.left, box.top, box.width, box.height};
  if (flips_rows) stored.top = height - stored.top - stored.height;
  if (flips_columns) stored.left = width - stored.left - stored.width;
  return stored;
}

RealBox Orientation::upright(RealBox box, std::size_t height, std::size_t width) const noexcept {
  if (flips_rows) box.top = static_cast<double>(height) - box.top - box.height;
  if (flips_columns) box.left = static_cast<double>(width) - box.left - box.width;
  return swaps ? RealBox{box.left, box.top, box.width, box.height} : box;
}

namespace {

/// REQUIRES: `image` has the size of the upright form and kPixelBytes per pixel.
template <std::size_t kPixelBytes>
void turn_pixels(const RgbView& from, const Orientation& by, RgbImage& image) {
  const std::size_t height = from.height;
  const std::size_t width = from.width;
  // Work in tiles, so that source and destination stay in the CPU cache even if rows and columns
  // are swapped.
  constexpr std::size_t kTile = 32;
  for (std::size_t top = 0; top < image.height(); top += kTile) {
    const std::size_t bottom = std::min(top + kTile, image.height());
    for (std::size_t left = 0; left < image.width(); left += kTile) {
      const std::size_t right = std::min(left + kTile, image.width());
      for (std::size_t y = top; y < bottom; ++y) {
        std::uint8_t* to = image.row(y) + left * kPixelBytes;
        for (std::size_t x = left; x < right; ++x, to += kPixelBytes) {
          const std::size_t row = by.swaps ? x : y;
          const std::size_t column = by.swaps ? y : x;
          std::memcpy(to,
                      from.row(by.flips_rows ? height - 1 - row : row) +
                          (by.flips_columns ? width - 1 - column : column) * kPixelBytes,
                      kPixelBytes);
        }
      }
    }
  }
}

}  // namespace

void Orientation::turn(const RgbImage& stored, RgbImage& image) const {
  image.reshape(swaps ? stored.width() : stored.height(), swaps ? stored.height() : stored.width(),
                stored.pixel_bytes());
  if (stored.pixel_bytes() == 3) {
    turn_pixels<3>(stored.view(), *this, image);
  } else {
    turn_pixels<6>(stored.view(), *this, image);
  }
}

}  // namespace shardwise::detail
