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

void Orientation::turn(const RgbImage& stored, RgbImage& image) const {
  const std::size_t height = stored.height();
  const std::size_t width = stored.width();
  const RgbView from = stored.view();
  image.reshape(swaps ? width : height, swaps ? height : width);
  // Tiles, so that with rows and columns swapped both sides stay in the cache.
  constexpr std::size_t kTile = 32;
  for (std::size_t top = 0; top < image.height(); top += kTile) {
    const std::size_t bottom = std::min(top + kTile, image.height());
    for (std::size_t left = 0; left < image.width(); left += kTile) {
      const std::size_t right = std::min(left + kTile, image.width());
      for (std::size_t y = top; y < bottom; ++y) {
        std::uint8_t* to = image.row(y) + left * 3;
        for (std::size_t x = left; x < right; ++x, to += 3) {
          const std::size_t row = swaps ? x : y;
          const std::size_t column = swaps ? y : x;
          std::memcpy(to,
                      from.row(flips_rows ? height - 1 - row : row) +
                          (flips_columns ? width - 1 - column : column) * 3,
                      3);
        }
      }
    }
  }
}

}  // namespace shardwise::detail
