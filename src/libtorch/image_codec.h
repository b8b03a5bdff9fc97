#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>

/// Image bytes to pixels. Neither LibTorch nor the image libraries show in this header.
namespace shardwise::libtorch::detail {

/// Says why bytes could not be decoded. Users get a BadField, which also says where.
class DecodeFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Interleaved RGB, 8 bits; reused from image to image, so that memory is taken once.
class RgbImage {
 public:
  std::size_t height() const noexcept { return height_; }
  std::size_t width() const noexcept { return width_; }
  std::uint8_t* data() noexcept { return pixels_.get(); }
  const std::uint8_t* data() const noexcept { return pixels_.get(); }
  std::uint8_t* row(std::size_t y) noexcept { return pixels_.get() + y * width_ * 3; }
  void reshape(std::size_t height, std::size_t width);

 private:
  std::unique_ptr<std::uint8_t[]> pixels_;
  std::size_t capacity_ = 0;
  std::size_t height_ = 0;
  std::size_t width_ = 0;
};

/// Decodes PNG, JPEG or binary PNM into `image`. Throws DecodeFailure; images of more than
/// `max_pixels` are refused before memory is taken.
void decode_rgb(std::string_view bytes, std::uint64_t max_pixels, RgbImage& image);

/// Writes `image` as three planes of height x width bytes each, one after the other, to `planes`;
/// resized first, antialiased bilinear, if the size differs.
void write_planes(const RgbImage& image, std::size_t height, std::size_t width,
                  std::uint8_t* planes);

}  // namespace shardwise::libtorch::detail
