#include <algorithm>
#include <cmath>
#include <vector>

#include "libtorch/image_codec.h"

// Inner loops over pixels: written so that the compiler turns them into vector code at -O3.

namespace shardwise::libtorch::detail {
namespace {

/// For one output pixel: input pixels [first, first + count) and their weights, which sum to 1.
struct Tap {
  std::size_t first;
  std::size_t count;
  const float* weights;
};

/// The taps of a triangle filter from `in` pixels to `out`, `support` input pixels to either side.
class Taps {
 public:
  Taps(std::size_t in, std::size_t out) {
    const double scale = static_cast<double>(in) / static_cast<double>(out);
    const double support = std::max(scale, 1.0);
    const auto most = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
    weights_.resize(most * out);
    taps_.reserve(out);
    for (std::size_t i = 0; i < out; ++i) {
      const double centre = (static_cast<double>(i) + 0.5) * scale;
      const auto first = static_cast<std::size_t>(std::max(0.0, centre - support + 0.5));
      const auto last = std::min(in, static_cast<std::size_t>(centre + support + 0.5));
      float* weights = weights_.data() + i * most;
      double sum = 0;
      for (std::size_t j = first; j < last; ++j) {
        const double distance = std::abs(static_cast<double>(j) + 0.5 - centre) / support;
        const double weight = std::max(0.0, 1.0 - distance);
        weights[j - first] = static_cast<float>(weight);
        sum += weight;
      }
      for (std::size_t j = first; j < last; ++j) weights[j - first] /= static_cast<float>(sum);
      taps_.push_back({first, last - first, weights});
    }
  }

  const Tap& operator[](std::size_t i) const { return taps_[i]; }

 private:
  std::vector<float> weights_;
  std::vector<Tap> taps_;
};

void split_planes(const std::uint8_t* rgb, std::size_t num_pixels, std::uint8_t* planes) {
  std::uint8_t* __restrict red = planes;
  std::uint8_t* __restrict green = planes + num_pixels;
  std::uint8_t* __restrict blue = planes + 2 * num_pixels;
  for (std::size_t i = 0; i < num_pixels; ++i) {
    red[i] = rgb[3 * i];
    green[i] = rgb[3 * i + 1];
    blue[i] = rgb[3 * i + 2];
  }
}

std::uint8_t to_byte(float value) {
  return static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
}

/// sums[i] += weight * row[i].
void add_row(const std::uint8_t* __restrict row, float weight, std::size_t size,
             float* __restrict sums) {
  for (std::size_t i = 0; i < size; ++i) sums[i] += weight * static_cast<float>(row[i]);
}

void resize_to_planes(const RgbImage& image, std::size_t height, std::size_t width,
                      std::uint8_t* planes) {
  const Taps down(image.height(), height);
  const Taps across(image.width(), width);
  const std::size_t stride = image.width() * 3;
  std::vector<float> row(stride);
  for (std::size_t y = 0; y < height; ++y) {
    std::fill(row.begin(), row.end(), 0.0f);
    for (std::size_t j = 0; j < down[y].count; ++j) {
      add_row(image.data() + (down[y].first + j) * stride, down[y].weights[j], stride, row.data());
    }
    std::uint8_t* out = planes + y * width;
    for (std::size_t x = 0; x < width; ++x) {
      const Tap& tap = across[x];
      const float* from = row.data() + tap.first * 3;
      float red = 0;
      float green = 0;
      float blue = 0;
      for (std::size_t j = 0; j < tap.count; ++j, from += 3) {
        red += tap.weights[j] * from[0];
        green += tap.weights[j] * from[1];
        blue += tap.weights[j] * from[2];
      }
      out[x] = to_byte(red);
      out[x + height * width] = to_byte(green);
      out[x + 2 * height * width] = to_byte(blue);
    }
  }
}

}  // namespace

void write_planes(const RgbImage& image, std::size_t height, std::size_t width,
                  std::uint8_t* planes) {
  if (height == image.height() && width == image.width()) {
    split_planes(image.data(), height * width, planes);
  } else {
    resize_to_planes(image, height, width, planes);
  }
}

}  // namespace shardwise::libtorch::detail
