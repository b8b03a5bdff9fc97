#include "decode/colour.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "decode/pixel_kernels.h"

// This file is compiled without fused multiply-add, so that results are the same on every machine.

namespace shardwise::detail {
namespace {

std::size_t num_pixels(const RgbImage& image) { return image.height() * image.width(); }

/// Returns the integer part of 0.2989 r + 0.587 g + 0.114 b.
std::uint32_t gray_of(const std::uint8_t* pixel) {
  return (2989U * pixel[0] + 5870U * pixel[1] + 1140U * pixel[2]) / 10000U;
}

std::uint8_t truncated(float value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

using ByteTable = std::array<std::uint8_t, 256>;

void look_up(RgbImage& image, const ByteTable& table) {
  std::uint8_t* values = image.data();
  const std::size_t size = num_pixels(image) * 3;
  for (std::size_t i = 0; i < size; ++i) values[i] = table[values[i]];
}

}  // namespace

void adjust_brightness(RgbImage& image, float factor) {
  ByteTable table;
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = truncated(static_cast<float>(i) * factor);
  }
  look_up(image, table);
}

void adjust_contrast(RgbImage& image, float factor) {
  std::uint64_t sum = 0;
  const std::size_t count = num_pixels(image);
  for (std::size_t i = 0; i < count; ++i) sum += gray_of(image.data() + 3 * i);
  const auto mean = static_cast<float>(static_cast<double>(sum) / static_cast<double>(count));
  const float offset = mean * (1.0F - factor);
  ByteTable table;
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = truncated(static_cast<float>(i) * factor + offset);
  }
  look_up(image, table);
}

void adjust_saturation(RgbImage& image, float factor) {
  std::array<float, 256> colours;
  std::array<float, 256> grays;
  for (std::size_t i = 0; i < 256; ++i) {
    colours[i] = static_cast<float>(i) * factor;
    grays[i] = static_cast<float>(i) * (1.0F - factor);
  }
  std::uint8_t* pixel = image.data();
  for (std::size_t i = 0; i < num_pixels(image); ++i, pixel += 3) {
    const float gray = grays[gray_of(pixel)];
    for (int c = 0; c < 3; ++c) pixel[c] = truncated(colours[pixel[c]] + gray);
  }
}

void adjust_hue(RgbImage& image, float turns) {
  HueBlock block{};
  const std::size_t count = num_pixels(image);
  for (std::size_t begin = 0; begin < count; begin += HueBlock::kPixels) {
    const std::size_t size = std::min(HueBlock::kPixels, count - begin);
    std::uint8_t* pixels = image.data() + 3 * begin;
    for (std::size_t i = 0; i < size; ++i) {
      block.red[i] = pixels[3 * i];
      block.green[i] = pixels[3 * i + 1];
      block.blue[i] = pixels[3 * i + 2];
    }
    turn_hues(block, turns);
    for (std::size_t i = 0; i < size; ++i) {
      pixels[3 * i] = static_cast<std::uint8_t>(block.red[i]);
      pixels[3 * i + 1] = static_cast<std::uint8_t>(block.green[i]);
      pixels[3 * i + 2] = static_cast<std::uint8_t>(block.blue[i]);
    }
  }
}

void make_gray(RgbImage& image) {
  std::uint8_t* pixel = image.data();
  for (std::size_t i = 0; i < num_pixels(image); ++i, pixel += 3) {
    std::fill_n(pixel, 3, static_cast<std::uint8_t>(gray_of(pixel)));
  }
}

}  // namespace shardwise::detail
