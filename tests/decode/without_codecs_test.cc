// The image decoding code, compiled as in a build without any image library.
#include "decode/decode_failure.h"
#include "decode/image_codec.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise {
namespace {

std::string failure(const std::string& bytes) {
  detail::RgbImage image;
  try {
    detail::decode_rgb(bytes, detail::DecodeRequest{}, image);
  } catch (const detail::DecodeFailure& e) {
    return e.what();
  }
  return "decoded";
}

TEST(WithoutCodecsTest, WhatIsMissingSaysSo) {
  const auto picture = test::test_picture(5, 4);
  EXPECT_THAT(failure(test::encode_jpeg(picture)),
              testing::AllOf(testing::HasSubstr("JPEG: "), testing::HasSubstr("without libjpeg")));
  EXPECT_THAT(failure(test::encode_png(picture)),
              testing::AllOf(testing::HasSubstr("PNG: "), testing::HasSubstr("without libpng")));
  EXPECT_THAT(failure(test::encode_webp(picture, true)),
              testing::AllOf(testing::HasSubstr("WebP: "), testing::HasSubstr("without libwebp")));
  EXPECT_EQ(failure(test::encode_ppm(picture)), "decoded");
  EXPECT_EQ(detail::read_image_header(test::encode_jpeg(picture)).width, 5U);
}

}  // namespace
}  // namespace shardwise
