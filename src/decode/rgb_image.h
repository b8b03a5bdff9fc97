#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shardwise/base/export.h"

// The form of pixels between decoding and a batch's memory: interleaved RGB with 8 bits per
// channel, or with 16 bits per channel as stored, in the machine's byte order.

namespace shardwise::detail {

/// Decides whether to keep memory of `size` bytes for the next image, which needs `wanted` bytes.
/// One huge image must not occupy a thread's memory for the rest of a run.
constexpr bool is_kept(std::size_t size, std::size_t wanted) noexcept {
  constexpr std::size_t kAlways = std::size_t{64} << 20;
  return size <= kAlways || wanted >= size / 4;
}

/// A rectangle of an image: rows [top, top + height) and columns [left, left + width).
struct Box {
  std::size_t top = 0;
  std::size_t left = 0;
  std::size_t height = 0;
  std::size_t width = 0;

  friend bool operator==(const Box&, const Box&) = default;
};

/// Pixels in memory that another object owns. Row y begins at data + y * stride.
struct RgbView {
  const std::uint8_t* data = nullptr;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t stride = 0;  ///< bytes from one row to the next; at least pixel_bytes * width
  std::size_t pixel_bytes = 3;

  [[nodiscard]] const std::uint8_t* row(std::size_t y) const noexcept { return data + y * stride; }
  /// Returns the part in `box`. REQUIRES: `box` is inside this view.
  [[nodiscard]] RgbView cropped(const Box& box) const noexcept {
    return {data + box.top * stride + box.left * pixel_bytes, box.height, box.width, stride,
            pixel_bytes};
  }
};

/// An image that owns its memory and reuses it for the next image; see is_kept().
class SHARDWISE_EXPORT RgbImage {
 public:
  RgbImage() = default;
  /// Uses `lent` for an image of exactly this size, and its own memory for all other images.
  explicit RgbImage(std::span<std::uint8_t> lent) noexcept : lent_(lent) {}
  RgbImage(const RgbImage&) = delete;
  RgbImage& operator=(const RgbImage&) = delete;

  std::size_t height() const noexcept { return height_; }
  std::size_t width() const noexcept { return width_; }
  std::uint8_t* data() noexcept { return pixels_; }
  const std::uint8_t* data() const noexcept { return pixels_; }
  std::size_t pixel_bytes() const noexcept { return pixel_bytes_; }
  std::uint8_t* row(std::size_t y) noexcept { return pixels_ + y * width_ * pixel_bytes_; }
  RgbView view() const noexcept {
    return {pixels_, height_, width_, width_ * pixel_bytes_, pixel_bytes_};
  }
  /// Sets the size. Afterwards the pixels are undefined.
  /// @param pixel_bytes  3, or 6 for 16-bit channels.
  void reshape(std::size_t height, std::size_t width, std::size_t pixel_bytes = 3);

 private:
  std::uint8_t* pixels_ = nullptr;  // points to lent_ or own_
  std::span<std::uint8_t> lent_{};
  std::unique_ptr<std::uint8_t[]> own_;
  std::size_t capacity_ = 0;
  std::size_t height_ = 0;
  std::size_t width_ = 0;
  std::size_t pixel_bytes_ = 3;
};

}  // namespace shardwise::detail
