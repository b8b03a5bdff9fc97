#include "decode/pixels.h"

#include <hwy/targets.h>
#include <bit>
#include <cmath>
#include <limits>

#include "support/support.h"

namespace shardwise {
namespace {

using detail::PixelLayout;
using detail::PixelTarget;
using detail::RgbView;

std::vector<std::uint8_t> counted(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  return bytes;
}

TEST(PixelsTest, PlanesHoldEachChannelInOrder) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    for (std::size_t width = 1; width < 200; width += width < 70 ? 1 : 13) {
      const auto rgb = counted(2 * width * 3);
      std::vector<std::uint8_t> planes(rgb.size());
      detail::write_pixels({rgb.data(), 2, width, width * 3}, {.height = 2, .width = width},
                           planes.data());
      for (std::size_t i = 0; i < rgb.size(); ++i) {
        ASSERT_EQ(planes[i % 3 * 2 * width + i / 3], rgb[i]) << width;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(PixelsTest, NormalizingDividesSubtractsAndDividesInFloat32) {
  const auto table = detail::normalizing_table({0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F});
  EXPECT_EQ(table[0][0], -0.485F / 0.229F);
  EXPECT_EQ(table[2][255], (1.0F - 0.406F) / 0.225F);
  // The result of NumPy: (numpy.float32(100) / numpy.float32(255) - numpy.float32(.456)) /
  // numpy.float32(.224)
  EXPECT_EQ(std::bit_cast<std::uint32_t>(table[1][100]), 0xbe91ed5aU);
}

TEST(PixelsTest, BothLayoutsHoldTheSameFloats) {
  const auto rgb = counted(5 * 7 * 3);
  const RgbView image{rgb.data(), 5, 7, 21};
  const auto table = detail::normalizing_table({0.5F, 0.25F, 0}, {1, 2, 0.5F});
  std::vector<float> planes(rgb.size());
  std::vector<float> interleaved(rgb.size());
  PixelTarget target{.height = 5, .width = 7};
  detail::write_pixels(image, target, table, planes.data());
  target.layout = PixelLayout::kChannelsLast;
  detail::write_pixels(image, target, table, interleaved.data());
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    EXPECT_EQ(interleaved[i], table[i % 3][rgb[i]]);
    EXPECT_EQ(planes[i % 3 * 35 + i / 3], interleaved[i]);
  }
}

TEST(PixelsTest, WhatThePartLeavesOfTheFrameHasTheFillColour) {
  const auto rgb = counted(2 * 3 * 3);
  const RgbView image{rgb.data(), 2, 3, 9};
  PixelTarget target{.height = 5,
                     .width = 6,
                     .part = detail::ResizedPart::whole(2, 3),
                     .top = 1,
                     .left = 2,
                     .fill = {7, 8, 9}};
  const auto table = detail::normalizing_table({0.5F, 0.5F, 0.5F}, {1, 2, 3});
  std::vector<std::uint8_t> bytes(target.height * target.width * 3);
  std::vector<float> floats(target.height * target.width * 3);
  for (const PixelLayout layout : {PixelLayout::kChannelsFirst, PixelLayout::kChannelsLast}) {
    target.layout = layout;
    detail::write_pixels(image, target, bytes.data());
    detail::write_pixels(image, target, table, floats.data());
    for (std::size_t y = 0; y < 5; ++y) {
      for (std::size_t x = 0; x < 6; ++x) {
        for (std::size_t c = 0; c < 3; ++c) {
          const bool is_inside = y >= 1 && y < 3 && x >= 2 && x < 5;
          const std::uint8_t expected =
              is_inside ? rgb[((y - 1) * 3 + x - 2) * 3 + c] : target.fill[c];
          const std::size_t at =
              layout == PixelLayout::kChannelsLast ? (y * 6 + x) * 3 + c : (c * 5 + y) * 6 + x;
          EXPECT_EQ(bytes[at], expected) << y << ' ' << x << ' ' << c;
          EXPECT_EQ(floats[at], table[c][expected]) << y << ' ' << x << ' ' << c;
        }
      }
    }
  }
}

/// Returns the value of a binary16, as IEEE 754 defines it.
double value_of_float16(unsigned bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const unsigned exponent = bits >> 10 & 31U;
  const unsigned fraction = bits & 1023U;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
}

TEST(PixelsTest, EveryFloat16IsItself) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double value = value_of_float16(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(detail::to_float16(static_cast<float>(value)), bits) << value;
  }
}

TEST(PixelsTest, BetweenTwoFloat16sTheNearerOneIsTakenAndOfEquallyNearOnesTheEven) {
  for (unsigned bits = 0; bits < 0x7BFF; ++bits) {
    const double below = value_of_float16(bits);
    const double above = value_of_float16(bits + 1);
    const auto middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(detail::to_float16(middle), bits + bits % 2) << middle;
    ASSERT_EQ(detail::to_float16(std::nextafter(middle, 0.0F)), bits) << middle;
    ASSERT_EQ(detail::to_float16(std::nextafter(middle, 1e9F)), bits + 1) << middle;
  }
  EXPECT_EQ(detail::to_float16(65519.996F), 0x7BFF);
  EXPECT_EQ(detail::to_float16(65520.0F), 0x7C00);
  EXPECT_EQ(detail::to_float16(-1e30F), 0xFC00);
  EXPECT_TRUE(
      std::isnan(value_of_float16(detail::to_float16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(PixelsTest, ABfloat16IsTheUpperHalfOfAFloat32Rounded) {
  for (const auto& [bits, expected] : {std::pair<std::uint32_t, unsigned>{0x3F800000, 0x3F80},
                                       {0x3F808000, 0x3F80},
                                       {0x3F808001, 0x3F81},
                                       {0x3F818000, 0x3F82},
                                       {0x7F7FFFFF, 0x7F80},
                                       {0xFF800000, 0xFF80},
                                       {0x7F800001, 0x7FC0}}) {
    EXPECT_EQ(detail::to_bfloat16(std::bit_cast<float>(bits)), expected) << std::hex << bits;
  }
}

}  // namespace
}  // namespace shardwise
