#include "decode/resize.h"

#include <zlib.h>

#include <hwy/targets.h>
#include <cmath>
#include <random>
#include <sstream>
#include <thread>

#include "decode/pixel_kernels.h"
#include "decode/pixels.h"
#include "support/support.h"

namespace shardwise {
namespace {

using detail::Filter;
using detail::Flips;
using detail::PixelLayout;
using detail::RgbView;

using Pixels = std::vector<std::uint8_t>;

struct Picture {
  std::size_t height;
  std::size_t width;
  Pixels pixels;

  RgbView view() const { return {pixels.data(), height, width, width * 3}; }
};

/// Returns the image that tests/decode/golden/make_resize.py makes, too.
Picture noise(std::size_t height, std::size_t width) {
  Picture picture{height, width, Pixels(height * width * 3)};
  for (std::uint64_t i = 0; i < picture.pixels.size(); ++i) {
    picture.pixels[i] = static_cast<std::uint8_t>((i * i * 2654435761U + i * 97) >> 24);
  }
  return picture;
}

Pixels resized(const RgbView& image, std::size_t height, std::size_t width,
               Filter filter = Filter::kBilinear, Flips flips = {}) {
  Pixels out(height * width * 3);
  detail::write_pixels(image,
                       {.height = height,
                        .width = width,
                        .layout = PixelLayout::kChannelsLast,
                        .filter = filter,
                        .flips = flips},
                       out.data());
  return out;
}

double weigh(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::kBilinear) return std::max(0.0, 1 - x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

/// Returns value `i` of the output of a resize in one direction, by its definition in real numbers.
/// The value is clamped to [0, 255], but not rounded.
/// @param step  number of bytes from one input pixel to the next.
double weighted(const std::uint8_t* from, std::size_t in, std::size_t out, std::size_t step,
                std::size_t i, Filter filter) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double width = std::max(scale, 1.0);
  const double centre = (static_cast<double>(i) + 0.5) * scale;
  double sum = 0;
  double weights = 0;
  for (std::size_t j = 0; j < in; ++j) {
    const double weight = weigh(filter, (static_cast<double>(j) + 0.5 - centre) / width);
    sum += weight * from[j * step];
    weights += weight;
  }
  return std::clamp(sum / weights, 0.0, 255.0);
}

/// Resizes horizontally, rounds to 8 bits, then resizes vertically. Both steps use real numbers.
std::vector<double> modelled(const Picture& picture, std::size_t height, std::size_t width,
                             Filter filter) {
  Pixels between(picture.height * width * 3);
  for (std::size_t y = 0; y < picture.height; ++y) {
    for (std::size_t i = 0; i < width * 3; ++i) {
      const std::uint8_t* row = picture.pixels.data() + y * picture.width * 3 + i % 3;
      between[y * width * 3 + i] = static_cast<std::uint8_t>(
          std::floor(weighted(row, picture.width, width, 3, i / 3, filter) + 0.5));
    }
  }
  std::vector<double> out;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t i = 0; i < width * 3; ++i) {
      out.push_back(weighted(between.data() + i, picture.height, height, width * 3, y, filter));
    }
  }
  return out;
}

/// Runs a test with each instruction set that this machine supports and that was compiled.
template <class Body>
void on_every_target(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
    if (target > HWY_AVX3) continue;  // better instruction sets have lower numbers
    SCOPED_TRACE("without products of bytes");
    detail::byte_dots_are_used() = false;
    body();
    detail::byte_dots_are_used() = true;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// The golden file is tests/decode/golden/resize.txt.
TEST(ResizeTest, EveryByteIsPillows) {
  std::istringstream golden(
      test::read_file(test::source_dir() + "/tests/decode/golden/resize.txt"));
  std::string line;
  int num_cases = 0;
  while (std::getline(golden, line)) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string filter;
    std::size_t in_height = 0;
    std::size_t in_width = 0;
    std::size_t height = 0;
    std::size_t width = 0;
    std::uint32_t crc = 0;
    ASSERT_TRUE(words >> filter >> in_height >> in_width >> height >> width >> crc) << line;
    const Picture picture = noise(in_height, in_width);
    on_every_target([&] {
      const Pixels out = resized(picture.view(), height, width,
                                 filter == "bicubic" ? Filter::kBicubic : Filter::kBilinear);
      EXPECT_EQ(crc32(0, out.data(), static_cast<uInt>(out.size())), crc) << line;
    });
    ++num_cases;
  }
  EXPECT_GE(num_cases, 30);
}

TEST(ResizeTest, ItIsTheWeightedMeanOfItsNeighbourhood) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const auto side = [&](unsigned most) { return std::size_t{1} + random() % most; };
    const Picture picture = noise(side(60), side(60));
    const std::size_t height = side(70);
    const std::size_t width = side(70);
    const Filter filter = round % 2 == 0 ? Filter::kBilinear : Filter::kBicubic;
    SCOPED_TRACE(std::to_string(picture.height) + " x " + std::to_string(picture.width) + " to " +
                 std::to_string(height) + " x " + std::to_string(width));
    const std::vector<double> model = modelled(picture, height, width, filter);
    const Pixels out = resized(picture.view(), height, width, filter);
    for (std::size_t i = 0; i < out.size(); ++i) {
      // The tolerance is half a step for rounding the vertical result, plus the effect of
      // horizontal values that were rounded differently.
      ASSERT_NEAR(out[i], model[i], filter == Filter::kBilinear ? 1.6 : 2.6) << i;
    }
  }
}

TEST(ResizeTest, EveryInstructionSetGivesTheSameBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    const auto side = [&] { return std::size_t{1} + random() % (round % 3 == 0 ? 9 : 200); };
    const Picture picture = noise(side(), side());
    const std::size_t height = side();
    const std::size_t width = side();
    const Flips flips{.horizontal = random() % 2 == 0, .vertical = random() % 2 == 0};
    const Filter filter = round % 4 == 0 ? Filter::kBicubic : Filter::kBilinear;
    SCOPED_TRACE(std::to_string(picture.height) + " x " + std::to_string(picture.width) + " to " +
                 std::to_string(height) + " x " + std::to_string(width));
    const Pixels expected = resized(picture.view(), height, width, filter, flips);
    on_every_target(
        [&] { ASSERT_EQ(resized(picture.view(), height, width, filter, flips), expected); });
  }
}

TEST(ResizeTest, MoreThanOneInstructionSetIsTried) {
  int num_targets = 0;
  on_every_target([&] { ++num_targets; });
  EXPECT_GE(num_targets, 1);
#ifdef __x86_64__
  EXPECT_GE(num_targets, 3) << "SSSE3, SSE4 and AVX2 are on every machine of these ten years";
#endif
}

/// Returns the pixels of an image of this width, mirrored.
Pixels mirrored(const Pixels& pixels, std::size_t height, std::size_t width, Flips flips) {
  Pixels out(pixels.size());
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      const std::size_t from_y = flips.vertical ? height - 1 - y : y;
      const std::size_t from_x = flips.horizontal ? width - 1 - x : x;
      std::copy_n(pixels.data() + (from_y * width + from_x) * 3, 3,
                  out.data() + (y * width + x) * 3);
    }
  }
  return out;
}

TEST(ResizeTest, FlipsComeAfterTheResize) {
  const Picture picture = noise(37, 53);
  for (const std::size_t height : {std::size_t{37}, std::size_t{20}, std::size_t{61}}) {
    for (const std::size_t width : {std::size_t{53}, std::size_t{17}, std::size_t{99}}) {
      const Pixels plain = resized(picture.view(), height, width);
      for (const Flips flips : {Flips{true, false}, Flips{false, true}, Flips{true, true}}) {
        EXPECT_EQ(resized(picture.view(), height, width, Filter::kBilinear, flips),
                  mirrored(plain, height, width, flips));
      }
    }
  }
}

TEST(ResizeTest, AnImageOfTheRightSizeIsCopied) {
  const Picture picture = noise(20, 30);
  EXPECT_EQ(resized(picture.view(), 20, 30), picture.pixels);
}

TEST(ResizeTest, WeightsFitIntoThreeSignedBytes) {
  constexpr std::int32_t kMost = (1 << 23) - (1 << 16);
  detail::ResizeTaps taps;
  for (std::size_t in = 1; in < 60; ++in) {
    for (std::size_t out = 1; out < 200; ++out) {
      for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
        taps.compute(in, out, 0, out, filter);
        const std::span<const std::int32_t> weights(taps.weights(0), out * taps.stride());
        const auto [least, most] = std::ranges::minmax(weights);
        ASSERT_LT(std::max(-least, most), kMost) << in << " to " << out;
      }
    }
  }
}

// AddressSanitizer detects reads and writes outside these buffers.
TEST(ResizeTest, NothingBeyondTheImageIsTouched) {
  for (std::size_t in = 1; in < 40; ++in) {
    for (const std::size_t out : std::vector<std::size_t>{1, 2, 3, 5, 21, 22, 64}) {
      const Picture picture = noise(in, in);
      on_every_target([&] { EXPECT_EQ(resized(picture.view(), out, out).size(), out * out * 3); });
    }
  }
}

// Each thread keeps the taps of the last size.
TEST(ResizeTest, WhatWasComputedForOneSizeIsNotUsedForAnother) {
  std::mt19937 random(11);
  const std::vector<Picture> pictures = {noise(40, 50), noise(40, 51), noise(50, 40), noise(40, 9)};
  for (int round = 0; round < 200; ++round) {
    const Picture& picture = pictures[random() % pictures.size()];
    const std::size_t height = random() % 2 == 0 ? 20 : 60;
    const std::size_t width = random() % 2 == 0 ? 22 : 60;
    const Filter filter = random() % 4 == 0 ? Filter::kBicubic : Filter::kBilinear;
    const Flips flips{.horizontal = random() % 2 == 0};
    detail::byte_dots_are_used() = random() % 4 != 0;
    Pixels expected;
    std::thread([&] { expected = resized(picture.view(), height, width, filter, flips); }).join();
    ASSERT_EQ(resized(picture.view(), height, width, filter, flips), expected) << round;
  }
  detail::byte_dots_are_used() = true;
}

TEST(ResizeTest, AWindowIsAPartOfTheWhole) {
  const Picture picture = noise(41, 59);
  for (const auto& [height, width] :
       {std::pair<std::size_t, std::size_t>{41, 59}, {41, 30}, {70, 59}, {25, 33}, {80, 90}}) {
    const Pixels whole = resized(picture.view(), height, width);
    const detail::Box window{.top = 3, .left = 5, .height = height - 9, .width = width - 14};
    for (const Flips flips : {Flips{}, Flips{true, true}}) {
      Pixels part(window.height * window.width * 3);
      detail::write_pixels(picture.view(),
                           {.height = window.height,
                            .width = window.width,
                            .part = {height, width, window},
                            .layout = PixelLayout::kChannelsLast,
                            .flips = flips},
                           part.data());
      Pixels expected;
      for (std::size_t y = 0; y < window.height; ++y) {
        const auto row = whole.begin() +
                         static_cast<std::ptrdiff_t>(((window.top + y) * width + window.left) * 3);
        expected.insert(expected.end(), row, row + static_cast<std::ptrdiff_t>(window.width * 3));
      }
      EXPECT_EQ(part, mirrored(expected, window.height, window.width, flips));
    }
  }
}

TEST(ResizeTest, ACropIsResizedAsAnImageOfItsOwn) {
  const Picture picture = noise(60, 80);
  const detail::Box box{.top = 7, .left = 11, .height = 40, .width = 33};
  const RgbView crop = picture.view().cropped(box);
  Picture alone{box.height, box.width, {}};
  for (std::size_t y = 0; y < box.height; ++y) {
    alone.pixels.insert(alone.pixels.end(), crop.row(y), crop.row(y) + box.width * 3);
  }
  EXPECT_EQ(resized(crop, 24, 24), resized(alone.view(), 24, 24));
}

}  // namespace
}  // namespace shardwise
