#include "support/images.h"

#include <png.h>
#include <webp/encode.h>

#include <cstdio>
// libjpeg's header needs stdio.h to be included before it.
#include <jpeglib.h>

#include <cmath>
#include <cstdlib>
#include <random>

namespace shardwise::test {
namespace {

class PngWriter {
 public:
  PngWriter() {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, fail, nullptr);
    info_ = png_create_info_struct(png_);
    png_set_write_fn(png_, &bytes_, append, nullptr);
  }
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  png_structp png() { return png_; }
  png_infop info() { return info_; }
  const std::string& bytes() const { return bytes_; }

 private:
  [[noreturn]] static void fail(png_structp, png_const_charp text) {
    std::fprintf(stderr, "test picture: %s\n", text);
    std::abort();
  }
  static void append(png_structp png, png_bytep data, png_size_t size) {
    static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(data), size);
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::string bytes_;
};

/// @param data  `components` bytes per pixel.
std::string encode_components(const std::vector<std::uint8_t>& data, int width, int height,
                              int components, J_COLOR_SPACE colours, const JpegKind& kind) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &buffer, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = components;
  jpeg.in_color_space = colours;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, kind.quality, TRUE);
  if (colours == JCS_RGB) {
    jpeg.comp_info[0].h_samp_factor = kind.chroma_across;
    jpeg.comp_info[0].v_samp_factor = kind.chroma_down;
  }
  jpeg.restart_interval = static_cast<unsigned>(kind.restart_interval);
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row =
        const_cast<JSAMPROW>(data.data()) +
        static_cast<std::size_t>(jpeg.next_scanline) * static_cast<std::size_t>(width * components);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  jpeg_destroy_compress(&jpeg);
  return bytes;
}

}  // namespace

Rgb test_picture(int width, int height, unsigned seed) {
  Rgb image{width, height, {}};
  const double phase = seed * 0.7;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto wave = [&](double fx, double fy) {
        return static_cast<std::uint8_t>(128 + 100 * std::sin(fx * x + fy * y + phase));
      };
      image.pixels.push_back(wave(0.11, 0.05));
      image.pixels.push_back(wave(0.02, 0.13));
      image.pixels.push_back(wave(0.07, -0.06));
    }
  }
  return image;
}

std::string encode_png(const Rgb& image) {
  PngWriter writer;
  png_set_IHDR(writer.png(), writer.info(), static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(writer.png(), writer.info());
  for (int y = 0; y < image.height; ++y) png_write_row(writer.png(), image.at(0, y));
  png_write_end(writer.png(), nullptr);
  return writer.bytes();
}

std::string encode_ppm(const Rgb& image) {
  return "P6\n# a comment\n" + std::to_string(image.width) + " " + std::to_string(image.height) +
         "\n255\n" + std::string(image.pixels.begin(), image.pixels.end());
}

std::string encode_jpeg(const Rgb& image, int quality, bool progressive) {
  return encode_jpeg_as(image, {.quality = quality, .progressive = progressive});
}

std::string encode_jpeg_as(const Rgb& image, const JpegKind& kind) {
  return encode_components(image.pixels, image.width, image.height, 3, JCS_RGB, kind);
}

std::string encode_gray_jpeg(const Rgb& image) {
  std::vector<std::uint8_t> gray;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) gray.push_back(image.pixels[i]);
  return encode_components(gray, image.width, image.height, 1, JCS_GRAYSCALE, {.quality = 95});
}

std::string encode_cmyk_jpeg(const Rgb& image) {
  // Without black ink, inverted cyan, magenta and yellow (Adobe's convention) equal red, green and
  // blue.
  std::vector<std::uint8_t> inks;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    inks.insert(inks.end(), {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2], 255});
  }
  return encode_components(inks, image.width, image.height, 4, JCS_CMYK, {.quality = 95});
}

std::string encode_webp(const Rgb& image, bool lossless) {
  std::uint8_t* buffer = nullptr;
  const int stride = image.width * 3;
  const std::size_t size =
      lossless
          ? WebPEncodeLosslessRGB(image.pixels.data(), image.width, image.height, stride, &buffer)
          : WebPEncodeRGB(image.pixels.data(), image.width, image.height, stride, 90, &buffer);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  WebPFree(buffer);
  return bytes;
}

std::string solid_png(int width, int height, int level) {
  const auto value = static_cast<std::uint8_t>(level);
  return encode_png(
      {width, height,
       std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3), value)});
}

OddPng make_odd_png(int color_type, int bit_depth, bool interlaced, bool with_transparency) {
  constexpr int kWidth = 13;
  constexpr int kHeight = 11;
  std::mt19937 random(static_cast<unsigned>(color_type * 100 + bit_depth));
  const int channels = color_type == PNG_COLOR_TYPE_RGB          ? 3
                       : color_type == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                       : color_type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                                 : 1;
  const unsigned most = (1u << bit_depth) - 1;

  PngWriter writer;
  png_set_IHDR(writer.png(), writer.info(), kWidth, kHeight, bit_depth, color_type,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette(std::size_t{1} << std::min(bit_depth, 8));
  for (auto& entry : palette) {
    entry = {static_cast<png_byte>(random()), static_cast<png_byte>(random()),
             static_cast<png_byte>(random())};
  }
  if (color_type == PNG_COLOR_TYPE_PALETTE) {
    png_set_PLTE(writer.png(), writer.info(), palette.data(), static_cast<int>(palette.size()));
    const png_byte alphas[] = {0, 128};
    if (with_transparency) png_set_tRNS(writer.png(), writer.info(), alphas, 2, nullptr);
  } else if (with_transparency) {
    png_color_16 transparent{};
    png_set_tRNS(writer.png(), writer.info(), nullptr, 0, &transparent);
  }
  png_write_info(writer.png(), writer.info());

  OddPng odd{{}, {kWidth, kHeight, {}}};
  std::vector<std::vector<png_byte>> rows;
  for (int y = 0; y < kHeight; ++y) {
    std::vector<png_byte> row(static_cast<std::size_t>((kWidth * channels * bit_depth + 7) / 8));
    for (int x = 0; x < kWidth; ++x) {
      unsigned values[4] = {};
      for (int c = 0; c < channels; ++c) {
        values[c] = static_cast<unsigned>(random()) & most;
        const int bit = (x * channels + c) * bit_depth;
        const auto byte = static_cast<std::size_t>(bit / 8);
        if (bit_depth == 16) {
          row[byte] = static_cast<png_byte>(values[c] >> 8);
          row[byte + 1] = static_cast<png_byte>(values[c]);
        } else {
          row[byte] = static_cast<png_byte>(row[byte] | values[c] << (8 - bit_depth - bit % 8));
        }
      }
      for (int c = 0; c < 3; ++c) {
        if (color_type == PNG_COLOR_TYPE_PALETTE) {
          const png_color& p = palette[values[0]];
          odd.expected.pixels.push_back(c == 0 ? p.red : (c == 1 ? p.green : p.blue));
        } else {
          const unsigned value = values[channels >= 3 ? c : 0];
          odd.expected.pixels.push_back(static_cast<std::uint8_t>((value * 255 + most / 2) / most));
        }
      }
    }
    rows.push_back(std::move(row));
  }
  std::vector<png_bytep> pointers;
  for (auto& row : rows) pointers.push_back(row.data());
  png_write_image(writer.png(), pointers.data());
  png_write_end(writer.png(), nullptr);
  odd.bytes = writer.bytes();
  return odd;
}

std::string black_png(std::uint32_t width, std::uint32_t height) {
  PngWriter writer;
  png_set_user_limits(writer.png(), 0x7FFFFFFF, 0x7FFFFFFF);
  png_set_IHDR(writer.png(), writer.info(), width, height, 8, PNG_COLOR_TYPE_GRAY,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_filter(writer.png(), 0, PNG_FILTER_NONE);
  png_write_info(writer.png(), writer.info());
  const std::vector<std::uint8_t> row(width);
  for (std::uint32_t y = 0; y < height; ++y) png_write_row(writer.png(), row.data());
  png_write_end(writer.png(), nullptr);
  return writer.bytes();
}

std::string png_bomb(std::uint32_t width, std::uint32_t height) {
  PngWriter writer;
  png_set_user_limits(writer.png(), 0x7FFFFFFF, 0x7FFFFFFF);
  png_set_IHDR(writer.png(), writer.info(), width, height, 8, PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(writer.png(), writer.info());
  // The header is complete only if an IDAT chunk follows, which may be empty.
  png_write_chunk(writer.png(), reinterpret_cast<png_const_bytep>("IDAT"), nullptr, 0);
  return writer.bytes();
}

}  // namespace shardwise::test
