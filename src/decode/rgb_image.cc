#include "decode/rgb_image.h"

namespace shardwise::detail {

void RgbImage::reshape(std::size_t height, std::size_t width, std::size_t pixel_bytes) {
  const std::size_t size = height * width * pixel_bytes;
  const bool fits_lent = !lent_.empty() && size == lent_.size();
  if (!fits_lent && (size > capacity_ || !is_kept(capacity_, size))) {
    own_.reset();
    capacity_ = 0;  // if the allocation fails, a smaller next image must not use the old capacity
    own_ = std::make_unique_for_overwrite<std::uint8_t[]>(size);
    capacity_ = size;
  }
  pixels_ = fits_lent ? lent_.data() : own_.get();
  height_ = height;
  width_ = width;
  pixel_bytes_ = pixel_bytes;
}

}  // namespace shardwise::detail
