#include "decode/colour.h"

#include <hwy/targets.h>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "support/support.h"

namespace shardwise {
namespace {

using detail::RgbImage;

/// The image that tests/decode/golden/make_colour.py makes, too.
struct Noise : RgbImage {
  Noise(std::size_t height, std::size_t width) {
    reshape(height, width);
    for (std::uint64_t i = 0; i < height * width * 3; ++i) {
      data()[i] = static_cast<std::uint8_t>((i * i * 2654435761U + i * 97) >> 24);
    }
  }
};

void adjust(RgbImage& image, const std::string& operation, float parameter) {
  if (operation == "brightness") return detail::adjust_brightness(image, parameter);
  if (operation == "contrast") return detail::adjust_contrast(image, parameter);
  if (operation == "saturation") return detail::adjust_saturation(image, parameter);
  if (operation == "hue") return detail::adjust_hue(image, parameter);
  ASSERT_EQ(operation, "gray");
  detail::make_gray(image);
}

TEST(ColourTest, ItIsTorchvisionsWithinOneOf255) {
  std::istringstream golden(
      test::read_file(test::source_dir() + "/tests/decode/golden/colour.txt"));
  std::string operation;
  std::string hex;
  float parameter = 0;
  int num_cases = 0;
  while (golden >> operation >> parameter >> hex) {
    SCOPED_TRACE(operation + " " + std::to_string(parameter));
    Noise image(8, 8);
    adjust(image, operation, parameter);
    ASSERT_EQ(hex.size(), 8U * 8 * 3 * 2);
    int num_equal = 0;
    for (std::size_t i = 0; i < hex.size() / 2; ++i) {
      const int expected = std::stoi(hex.substr(2 * i, 2), nullptr, 16);
      ASSERT_LE(std::abs(image.data()[i] - expected), 1) << i;
      num_equal += image.data()[i] == expected ? 1 : 0;
    }
    EXPECT_GE(num_equal, 180) << "of 192";
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 19);
}

TEST(ColourTest, EveryInstructionSetTurnsHuesAlike) {
  const auto turned = [](float turns) {
    Noise image(33, 47);
    detail::adjust_hue(image, turns);
    return std::vector<int>(image.data(), image.data() + 33 * 47 * 3);
  };
  for (const float turns : {-0.5F, -0.171F, 0.0F, 0.3F, 0.5F}) {
    const std::vector<int> expected = turned(turns);
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      EXPECT_EQ(turned(turns), expected) << hwy::TargetName(target);
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

TEST(ColourTest, AFactorOfOneAndAHueOfNothingChangeNothing) {
  for (const char* operation : {"brightness", "contrast", "saturation"}) {
    Noise image(50, 40);
    adjust(image, operation, 1);
    EXPECT_TRUE(std::equal(image.data(), image.data() + 6000, Noise(50, 40).data())) << operation;
  }
  Noise image(50, 40);
  detail::adjust_hue(image, 0);
  const Noise before(50, 40);
  for (std::size_t i = 0; i < 6000; ++i) ASSERT_NEAR(image.data()[i], before.data()[i], 1) << i;
}

TEST(ColourTest, AThirdOfTheCircleExchangesTheChannels) {
  RgbImage image;
  image.reshape(1, 2);
  const std::uint8_t pixels[] = {200, 10, 10, 90, 90, 90};
  std::copy_n(pixels, 6, image.data());
  detail::adjust_hue(image, 1.0F / 3);
  EXPECT_EQ(std::vector<int>(image.data(), image.data() + 6),
            (std::vector<int>{10, 200, 10, 90, 90, 90}));
}

}  // namespace
}  // namespace shardwise
