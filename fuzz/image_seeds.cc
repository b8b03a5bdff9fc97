#include "support/images.h"
#include "targets.h"

namespace shardwise::fuzz {

std::vector<std::string> image_seeds() {
  const test::Rgb picture = test::test_picture(21, 14);
  std::vector<std::string> files = {
      test::encode_jpeg(picture),          test::encode_jpeg(picture, 80, true),
      test::encode_gray_jpeg(picture),     test::encode_cmyk_jpeg(picture),
      test::encode_png(picture),           test::encode_ppm(picture),
      test::encode_webp(picture, true),    test::encode_webp(picture, false),
      test::png_bomb(1'000'000, 1'000'000)};
  for (const int restart_interval : {0, 1}) {
    files.push_back(test::encode_jpeg_as(
        picture, {.quality = 60, .chroma_down = 1, .restart_interval = restart_interval}));
  }
  for (const bool interlaced : {false, true}) {
    files.push_back(test::make_odd_png(3, 4, interlaced, true).bytes);
    files.push_back(test::make_odd_png(6, 16, interlaced, false).bytes);
  }
  // An Exif block whose orientation is a rotation by 90 degrees.
  const std::string jpeg = files[0];
  files.push_back(jpeg.substr(0, 2) +
                  std::string("\xFF\xE1\0\x22"
                              "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0",
                              36) +
                  jpeg.substr(2));
  std::vector<std::string> seeds;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const std::size_t control : {i % 4, (i + 2) % 4 + 12}) {  // at full size and at half size
      seeds.push_back(
          std::string{static_cast<char>(control + 16 * (i % 2)), static_cast<char>(i * 37 % 128)} +
          files[i]);
    }
  }
  return seeds;
}

}  // namespace shardwise::fuzz
