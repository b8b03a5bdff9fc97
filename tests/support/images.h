#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::test {

/// Interleaved RGB.
struct Rgb {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> pixels;

  const std::uint8_t* at(int x, int y) const {
    return pixels.data() + (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                            static_cast<std::size_t>(x)) *
                               3;
  }
};

/// Returns a smooth picture with some detail. Different seeds give different pictures.
Rgb test_picture(int width, int height, unsigned seed = 1);

std::string encode_png(const Rgb& image);
std::string encode_ppm(const Rgb& image);
std::string encode_jpeg(const Rgb& image, int quality = 95, bool progressive = false);

struct JpegKind {
  int quality = 90;
  bool progressive = false;
  int chroma_across = 2;  ///< pixels per chroma sample
  int chroma_down = 2;
  int restart_interval = 0;  ///< in MCUs (blocks of all components); 0 means none
};
std::string encode_jpeg_as(const Rgb& image, const JpegKind& kind);

/// Returns a PNG whose values are all `level`.
std::string solid_png(int width, int height, int level);

/// A PNG with a random palette and random pixels, and the RGB that it decodes to.
struct OddPng {
  std::string bytes;
  Rgb expected;
};
/// Makes an OddPng.
/// @param color_type  as in the PNG header.
/// @param bit_depth   as in the PNG header.
OddPng make_odd_png(int color_type, int bit_depth, bool interlaced, bool with_transparency);

/// A JPEG of gray values (the picture's red channel), or of CMYK inks in Adobe's inverted form.
std::string encode_gray_jpeg(const Rgb& image);
std::string encode_cmyk_jpeg(const Rgb& image);

std::string encode_webp(const Rgb& image, bool lossless);

/// Returns a black gray-scale PNG of about one byte per thousand pixels.
std::string black_png(std::uint32_t width, std::uint32_t height);

/// Returns the header of a PNG of width x height pixels, without any data.
std::string png_bomb(std::uint32_t width, std::uint32_t height);

}  // namespace shardwise::test
