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
  EXPECT_EQ(failure(test::encode_jpeg(picture)), "JPEG: this Shardwise was built without libjpeg");
  EXPECT_EQ(failure(test::encode_png(picture)), "PNG: this Shardwise was built without libpng");
  EXPECT_EQ(failure(test::encode_webp(picture, true)),
            "WebP: this Shardwise was built without libwebp");
  EXPECT_EQ(failure(test::encode_ppm(picture)), "decoded");
  EXPECT_EQ(detail::read_image_header(test::encode_jpeg(picture)).width, 5U);
}

}  // namespace
}  // namespace shardwise
