#include "decode/rgb_image.h"

namespace shardwise::detail {

void RgbImage::reshape(std::size_t height, std::size_t width) {
  const std::size_t size = height * width * 3;
  if (size > capacity_) {
    pixels_.reset();
    capacity_ = 0;  // if there is no memory, the next smaller image must not find any
    pixels_ = std::make_unique_for_overwrite<std::uint8_t[]>(size);
    capacity_ = size;
  }
  height_ = height;
  width_ = width;
}

}  // namespace shardwise::detail
