#include "decode/image_codec.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "decode/decode_failure.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise {
namespace {

using detail::Box;
using detail::choose_scale;
using detail::decode_rgb;
using detail::DecodeFailure;
using detail::DecodeReport;
using detail::DecodeRequest;
using detail::read_image_header;
using detail::RgbImage;
using detail::ScaleRule;
using testing::HasSubstr;
using testing::IsEmpty;

struct Decoded {
  test::Rgb image;
  DecodeReport report;
};

Decoded decode(std::string_view bytes, const DecodeRequest& request = {}) {
  RgbImage image;
  Decoded decoded;
  decoded.report = decode_rgb(bytes, request, image);
  decoded.image = {static_cast<int>(image.width()),
                   static_cast<int>(image.height()),
                   {image.data(), image.data() + image.height() * image.width() * 3}};
  return decoded;
}

test::Rgb pixels(std::string_view bytes, const DecodeRequest& request = {}) {
  return decode(bytes, request).image;
}

std::string failure(std::string_view bytes, const DecodeRequest& request = {}) {
  try {
    pixels(bytes, request);
  } catch (const DecodeFailure& e) {
    return e.what();
  }
  return "decoded";
}

TEST(RgbImageTest, AHugeImageDoesNotKeepItsMemory) {
  RgbImage image;
  image.reshape(6000, 6000);  // 103 MiB
  const std::uint8_t* const huge = image.data();
  image.reshape(5000, 4000);
  EXPECT_EQ(image.data(), huge) << "of much the same size: used again";
  image.reshape(10, 10);
  EXPECT_NE(image.data(), huge);
  image.reshape(4000, 4000);  // 46 MiB
  const std::uint8_t* const large = image.data();
  image.reshape(1, 1);
  EXPECT_EQ(image.data(), large) << "usual images keep theirs";
}

bool same(const test::Rgb& a, const test::Rgb& b) {
  return a.width == b.width && a.height == b.height && a.pixels == b.pixels;
}

int largest_difference(const test::Rgb& a, const test::Rgb& b) {
  if (a.width != b.width || a.height != b.height) return 256;
  int most = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    most = std::max(most, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  }
  return most;
}

test::Rgb cropped(const test::Rgb& image, const Box& box) {
  test::Rgb part{static_cast<int>(box.width), static_cast<int>(box.height), {}};
  for (std::size_t y = box.top; y < box.top + box.height; ++y) {
    const auto* row = image.at(static_cast<int>(box.left), static_cast<int>(y));
    part.pixels.insert(part.pixels.end(), row, row + box.width * 3);
  }
  return part;
}

/// Returns random, independent pixels. A result that wrongly depends on neighbouring pixels is then
/// clearly different.
test::Rgb noise(int width, int height) {
  std::mt19937 random(7);
  test::Rgb image{width, height,
                  std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3))};
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random());
  return image;
}

/// Returns the upright form of `stored`, from the definition of the eight Exif orientations: where
/// row 0 and column 0 of the stored image must appear.
test::Rgb turned(const test::Rgb& stored, unsigned orientation) {
  const bool swaps = orientation >= 5;
  test::Rgb image{swaps ? stored.height : stored.width, swaps ? stored.width : stored.height, {}};
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const int right = image.width - 1 - x;
      const int below = image.height - 1 - y;
      const std::pair<int, int> places[] = {{y, x}, {y, right}, {below, right}, {below, x},
                                            {x, y}, {right, y}, {right, below}, {x, below}};
      const auto [row, column] = places[orientation - 1];
      const auto* from = stored.at(column, row);
      image.pixels.insert(image.pixels.end(), from, from + 3);
    }
  }
  return image;
}

std::string exif_block(unsigned orientation, bool big_endian) {
  std::string block = big_endian
                          ? std::string("MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0?\0\0\0\0\0\0", 26)
                          : std::string("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0?\0\0\0\0\0\0\0", 26);
  block[big_endian ? 19 : 18] = static_cast<char>(orientation);
  return block;
}

std::string with_exif(const std::string& jpeg, unsigned orientation, bool big_endian = false) {
  const std::string payload = std::string("Exif\0\0", 6) + exif_block(orientation, big_endian);
  const auto size = static_cast<char>(payload.size() + 2);
  return jpeg.substr(0, 2) + std::string("\xFF\xE1\0", 3) + size + payload + jpeg.substr(2);
}

/// Formats "ok WIDTHxHEIGHT ADLER32", as golden/make_image_defects.py does.
std::string verdict_of(const test::Rgb& image) {
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const std::uint8_t value : image.pixels) {
    a = (a + value) % 65521;
    b = (b + a) % 65521;
  }
  char text[64];
  std::snprintf(text, sizeof text, "ok %dx%d %08x", image.width, image.height, b << 16 | a);
  return text;
}

// --------------------------------------------------------------------------------- kinds of files

TEST(ImageCodecTest, EveryKindOfPngBecomesRgb) {
  struct Kind {
    int color_type;
    std::vector<int> depths;
  };
  for (const auto& kind : {Kind{0, {1, 2, 4, 8, 16}}, Kind{2, {8, 16}}, Kind{3, {1, 2, 4, 8}},
                           Kind{4, {8, 16}}, Kind{6, {8, 16}}}) {
    for (const int depth : kind.depths) {
      for (const bool interlaced : {false, true}) {
        for (const bool transparent : {false, true}) {
          if (transparent && kind.color_type >= 4) continue;
          const auto odd = test::make_odd_png(kind.color_type, depth, interlaced, transparent);
          SCOPED_TRACE("colour type " + std::to_string(kind.color_type) + ", depth " +
                       std::to_string(depth) + (interlaced ? ", interlaced" : "") +
                       (transparent ? ", transparency" : ""));
          const Decoded decoded = decode(odd.bytes, {.strict = true});
          EXPECT_TRUE(same(decoded.image, odd.expected));
          const Box box{3, 2, 5, 7};
          EXPECT_TRUE(same(pixels(odd.bytes, {.crop = box}), cropped(odd.expected, box)));
        }
      }
    }
  }
}

TEST(ImageCodecTest, JpegsOfEveryColourSpaceComeCloseToThePicture) {
  const auto picture = test::test_picture(67, 45);
  EXPECT_LE(largest_difference(pixels(test::encode_jpeg(picture)), picture), 8);
  EXPECT_LE(largest_difference(pixels(test::encode_jpeg(picture, 95, true)), picture), 8);
  EXPECT_LE(largest_difference(pixels(test::encode_cmyk_jpeg(picture)), picture), 8);
  test::Rgb gray = picture;
  for (std::size_t i = 0; i < gray.pixels.size(); ++i) gray.pixels[i] = gray.pixels[i / 3 * 3];
  EXPECT_LE(largest_difference(pixels(test::encode_gray_jpeg(picture)), gray), 6);
}

TEST(ImageCodecTest, ProgressiveAndBaselineOfOnePictureGiveTheSamePixels) {
  const auto picture = test::test_picture(67, 45);
  EXPECT_TRUE(same(pixels(test::encode_jpeg(picture, 90, false)),
                   pixels(test::encode_jpeg(picture, 90, true))));
}

TEST(ImageCodecTest, WebpIsReadLosslesslyAndLossily) {
  const auto picture = test::test_picture(67, 45);
  EXPECT_TRUE(same(pixels(test::encode_webp(picture, true)), picture));
  EXPECT_LE(largest_difference(pixels(test::encode_webp(picture, false)), picture), 40);
}

TEST(ImageCodecTest, PnmIsReadWithCommentsAndDepths) {
  const auto picture = test::test_picture(9, 5);
  EXPECT_TRUE(same(pixels(test::encode_ppm(picture)), picture));
  const auto values = [](std::string_view bytes) { return pixels(bytes).pixels; };
  EXPECT_THAT(values(std::string_view("P5 2 1 255\n\x10\x80", 13)),
              testing::ElementsAre(16, 16, 16, 128, 128, 128));
  EXPECT_THAT(values(std::string_view("P5 2 1 65535\n\x80\x00\xFF\xFF", 17)),
              testing::ElementsAre(128, 128, 128, 255, 255, 255));
  const Decoded above = decode("P5 2 1 15\n\x01\xFF");
  EXPECT_THAT(above.image.pixels, testing::ElementsAre(17, 17, 17, 255, 255, 255));
  EXPECT_THAT(above.report.warnings, testing::ElementsAre(testing::AllOf(
                                         HasSubstr("PNM: "), HasSubstr("exceeds the maximum"))));
  EXPECT_THAT(failure("P5 2 1 15\n\x01\xFF", {.strict = true}),
              testing::AllOf(HasSubstr("PNM: "), HasSubstr("exceeds the maximum")));
}

std::vector<std::uint16_t> values_of_16_bits(std::string_view bytes, DecodeRequest request = {}) {
  request.keep_16_bits = true;
  RgbImage image;
  decode_rgb(bytes, request, image);
  EXPECT_EQ(image.pixel_bytes(), 6U);
  std::vector<std::uint16_t> values(image.height() * image.width() * 3);
  std::memcpy(values.data(), image.data(), values.size() * 2);
  return values;
}

TEST(ImageCodecTest, SixteenBitsAreKeptWhereTheyAreAskedFor) {
  for (const int color_type : {0, 2, 4, 6}) {
    for (const bool interlaced : {false, true}) {
      const auto odd = test::make_odd_png(color_type, 16, interlaced, color_type < 4);
      SCOPED_TRACE("colour type " + std::to_string(color_type));
      const auto whole = values_of_16_bits(odd.bytes);
      ASSERT_EQ(whole.size(), odd.expected.pixels.size());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        // The formula of libpng for scaling to 8 bits.
        ASSERT_EQ((whole[i] * 255U + 32895U) >> 16, odd.expected.pixels[i]);
      }
      const Box box{3, 2, 5, 7};
      const auto part = values_of_16_bits(odd.bytes, {.crop = box});
      for (std::size_t y = 0; y < 5; ++y) {
        for (std::size_t x = 0; x < 21; ++x) {
          ASSERT_EQ(part[y * 21 + x], whole[(y + 3) * odd.expected.width * 3 + 6 + x]);
        }
      }
    }
  }
  using testing::ElementsAre;
  const std::string_view pgm("P5 2 1 4095\n\x01\x00\x0F\xFF", 16);  // not scaled to 65535
  EXPECT_THAT(values_of_16_bits(pgm), ElementsAre(256, 256, 256, 4095, 4095, 4095));
  const std::string_view ppm("P6 1 1 65535\n\x01\x02\x03\x04\xFF\xFE", 19);
  EXPECT_THAT(values_of_16_bits(ppm), ElementsAre(0x102, 0x304, 0xFFFE));
  const std::string_view above("P5 1 1 300\n\x01\xFF", 13);
  EXPECT_THAT(values_of_16_bits(above), ElementsAre(300, 300, 300));
  EXPECT_THAT(failure(above, {.strict = true, .keep_16_bits = true}),
              testing::AllOf(HasSubstr("PNM: "), HasSubstr("exceeds the maximum")));
}

TEST(ImageCodecTest, ImagesOfFewerBitsAreNotTakenForSixteen) {
  const auto picture = test::test_picture(9, 5);
  const DecodeRequest kept{.keep_16_bits = true};
  const auto why = testing::AllOf(HasSubstr("8 bits"), HasSubstr("uint16 needs 16"));
  EXPECT_THAT(failure(test::encode_png(picture), kept), testing::AllOf(HasSubstr("PNG: "), why));
  EXPECT_THAT(failure(test::encode_jpeg(picture), kept), testing::AllOf(HasSubstr("JPEG: "), why));
  EXPECT_THAT(failure(test::encode_webp(picture, true), kept),
              testing::AllOf(HasSubstr("WebP: "), why));
  EXPECT_THAT(failure(test::encode_ppm(picture), kept), testing::AllOf(HasSubstr("PNM: "), why));
  EXPECT_THAT(
      failure(test::make_odd_png(3, 4, false, false).bytes, kept),
      testing::AllOf(HasSubstr("PNG: "), HasSubstr("4 bits"), HasSubstr("uint16 needs 16")));
}

TEST(ImageCodecTest, PicturesOfOthersHaveTheirGoldenPixels) {
  const auto corpus = test::corpus_dir();
  if (!corpus)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  const auto media = *corpus / "corpus" / "media";
  const auto ppm = pixels(test::read_file(media / "testorig.ppm"));
  EXPECT_EQ(ppm.height, 149);
  EXPECT_EQ(ppm.width, 227);
  const auto jpg = pixels(test::read_file(media / "testorig.jpg"), {.strict = true});
  // The slow exact DCT gives the same pixels as Pillow. The pixels in the PPM file were made with
  // another upsampling, which all of libjpeg-turbo's methods reproduce only within 3.
  EXPECT_EQ(verdict_of(jpg), "ok 227x149 66426620");
  EXPECT_LE(largest_difference(jpg, ppm), 3);
  // The arithmetically coded file contains another picture, which is similar.
  EXPECT_LE(largest_difference(pixels(test::read_file(media / "testimgari.jpg")), ppm), 20);
  // Sums of the pixels that Pillow reads: the sum of all values, and the sum of the values weighted
  // by their position in [3, H, W], modulo 251.
  const auto png = pixels(test::read_file(media / "testorig.png"));
  const std::size_t num_pixels = png.pixels.size() / 3;
  std::uint64_t sum = 0;
  std::uint64_t weighted = 0;
  for (std::size_t i = 0; i < png.pixels.size(); ++i) {
    sum += png.pixels[i];
    weighted += png.pixels[i] * ((i % 3 * num_pixels + i / 3) % 251);
  }
  EXPECT_EQ(sum, 10334415U);
  EXPECT_EQ(weighted, 1289659642U);
}

// ----------------------------------------------------------------------------------------- headers

TEST(ImageHeaderTest, EachFormatSaysItsSize) {
  const auto picture = test::test_picture(31, 17);
  const std::string files[] = {
      test::encode_jpeg(picture),       test::encode_jpeg(picture, 90, true),
      test::encode_cmyk_jpeg(picture),  test::encode_png(picture),
      test::encode_webp(picture, true), test::encode_webp(picture, false),
      test::encode_ppm(picture)};
  for (const std::string& bytes : files) {
    const auto header = read_image_header(bytes);
    EXPECT_EQ(header.height, 17U);
    EXPECT_EQ(header.width, 31U);
    EXPECT_EQ(header.orientation, 1U);
    // Any prefix of the file gives a header with this size, or an error.
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<char> part(bytes.begin(),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(size));
      try {
        EXPECT_EQ(read_image_header({part.data(), size}).height, 17U);
      } catch (const DecodeFailure&) {
        continue;
      }
    }
  }
}

TEST(ImageHeaderTest, TheOrientationIsReadInBothByteOrders) {
  const auto jpeg = test::encode_jpeg(test::test_picture(9, 7));
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big_endian : {false, true}) {
      EXPECT_EQ(read_image_header(with_exif(jpeg, orientation, big_endian)).orientation,
                orientation);
    }
  }
}

TEST(ImageHeaderTest, ExifThatIsDamagedIsUpright) {
  const auto jpeg = test::encode_jpeg(test::test_picture(9, 7));
  const std::string good = with_exif(jpeg, 6);
  for (std::size_t i = 12; i < 38; ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bad = good;
      bad[i] = static_cast<char>(value);
      const unsigned orientation = read_image_header(bad).orientation;
      EXPECT_TRUE(orientation >= 1 && orientation <= 8);
    }
  }
}

TEST(ImageHeaderTest, WhatIsNoImageIsRefused) {
  const auto text = [](std::string_view bytes) {
    try {
      read_image_header(bytes);
    } catch (const DecodeFailure& e) {
      return std::string(e.what());
    }
    return std::string("read");
  };
  EXPECT_THAT(text(""), HasSubstr("is empty"));
  EXPECT_THAT(text("GIF89a"), HasSubstr("JPEG, PNG, WebP or binary PNM"));
  EXPECT_THAT(text("\xFF\xD8\xFF\xD9"),
              testing::AllOf(HasSubstr("JPEG: "), HasSubstr("no frame header")));
  EXPECT_EQ(text("\x89PNG\r\n\x1A\n"), "PNG: the data ends early");
  EXPECT_EQ(text("RIFF....WEBP"), "WebP: the data ends early");
  EXPECT_EQ(text("P6 0 1 255\n"), "the image has no pixels");
}

// ------------------------------------------------------------------------------------------- crops

/// Compares crops of several sizes at every offset with parts of the whole image.
void expect_crops_equal(const std::string& bytes, unsigned scale = 8) {
  const test::Rgb whole = pixels(bytes, {.scale = scale});
  const auto header = read_image_header(bytes);
  const std::size_t sizes[] = {1, 2, 7, 16, 33};
  for (std::size_t i = 0; i < std::max(header.height, header.width); ++i) {
    const std::size_t height = std::min(header.height, sizes[i % 5]);
    const std::size_t width = std::min(header.width, sizes[i / 5 % 5]);
    const Box box{i * 5 % (header.height - height + 1), i % (header.width - width + 1), height,
                  width};
    const Decoded part = decode(bytes, {.crop = box, .scale = scale});
    const std::size_t top = box.top * scale / 8;
    const std::size_t left = box.left * scale / 8;
    const Box expected{top, left, ((box.top + height) * scale + 7) / 8 - top,
                       ((box.left + width) * scale + 7) / 8 - left};
    ASSERT_TRUE(same(part.image, cropped(whole, expected)))
        << "rows " << box.top << " + " << height << ", columns " << box.left << " + " << width
        << ", scale " << scale;
    EXPECT_EQ(part.report.box.height * 8, static_cast<double>(height * scale));
    EXPECT_EQ((part.report.box.left + static_cast<double>(left)) * 8,
              static_cast<double>(box.left * scale));
  }
}

TEST(ImageCropTest, TheCropOfAJpegIsThatPartOfTheWhole) {
  const test::Rgb picture = noise(101, 75);
  for (const auto& [across, down] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2), std::pair(4, 1),
        std::pair(4, 2), std::pair(1, 4)}) {
    for (const bool progressive : {false, true}) {
      for (const int restarts : {0, 3}) {
        SCOPED_TRACE(std::to_string(across) + "x" + std::to_string(down) +
                     (progressive ? ", progressive" : "") + (restarts != 0 ? ", restarts" : ""));
        expect_crops_equal(test::encode_jpeg_as(picture, {.progressive = progressive,
                                                          .chroma_across = across,
                                                          .chroma_down = down,
                                                          .restart_interval = restarts}));
      }
    }
  }
  expect_crops_equal(test::encode_gray_jpeg(picture));
  expect_crops_equal(test::encode_cmyk_jpeg(picture));
}

TEST(ImageCropTest, TheCropOfASmallJpegIsThatPartOfTheWhole) {
  for (const auto& [width, height] : {std::pair(1, 1), std::pair(3, 40), std::pair(40, 3),
                                      std::pair(16, 16), std::pair(17, 33), std::pair(31, 48)}) {
    expect_crops_equal(test::encode_jpeg(noise(width, height)));
  }
}

TEST(ImageCropTest, TheCropOfAScaledJpegIsThatPartOfTheScaledOne) {
  const test::Rgb picture = noise(101, 75);
  for (const unsigned scale : {1u, 2u, 3u, 4u, 5u, 6u, 7u}) {
    for (const auto& [across, down] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
      SCOPED_TRACE(std::to_string(across) + "x" + std::to_string(down));
      for (const bool progressive : {false, true}) {
        expect_crops_equal(test::encode_jpeg_as(picture, {.progressive = progressive,
                                                          .chroma_across = across,
                                                          .chroma_down = down}),
                           scale);
      }
    }
  }
}

TEST(ImageCropTest, TheCropOfAProgressiveJpegThatIsNotAllThereIsThatPartOfTheWhole) {
  std::string bytes = test::encode_jpeg(noise(101, 75), 90, true);
  const std::size_t scan = bytes.find("\xFF\xDA", bytes.find("\xFF\xDA") + 2);
  // Truncated after the first scan.
  bytes = bytes.substr(0, bytes.rfind("\xFF\xC4", scan)) + "\xFF\xD9";
  expect_crops_equal(bytes);
}

TEST(ImageCropTest, TheCropOfOtherFormatsIsThatPartOfTheWhole) {
  const test::Rgb picture = noise(61, 45);
  expect_crops_equal(test::encode_png(picture));
  expect_crops_equal(test::encode_ppm(picture));
  expect_crops_equal(test::encode_webp(picture, true));
  expect_crops_equal(test::encode_webp(picture, false));
  expect_crops_equal(test::encode_webp(noise(64, 64), false));
}

TEST(ImageCropTest, ACropOutsideTheImageIsRefused) {
  for (const std::string& bytes :
       {test::encode_jpeg(noise(20, 10)), test::encode_png(noise(20, 10)),
        test::encode_webp(noise(20, 10), true), test::encode_ppm(noise(20, 10))}) {
    for (const Box& box : {Box{0, 0, 11, 1}, Box{0, 0, 1, 21}, Box{10, 0, 1, 1}, Box{0, 0, 0, 1},
                           Box{0, 5, 1, SIZE_MAX}, Box{SIZE_MAX, 0, 2, 1}}) {
      EXPECT_THAT(failure(bytes, {.crop = box}),
                  testing::AllOf(HasSubstr("crop exceeds the image"), HasSubstr("10x20 (HxW)")));
    }
  }
}

TEST(ImageCropTest, DamageBehindACropGoesUnnoticed) {
  const std::string jpeg = test::encode_jpeg(noise(200, 200));
  const std::string png = test::encode_png(noise(200, 200));
  const Box box{0, 0, 8, 200};
  for (const std::string& bytes : {jpeg, png}) {
    const std::string_view half = std::string_view(bytes).substr(0, bytes.size() / 2);
    EXPECT_THAT(failure(half), HasSubstr("the data ends early"));
    EXPECT_TRUE(same(pixels(half, {.crop = box}), cropped(pixels(bytes), box)));
  }
}

// ---------------------------------------------------------------------------- orientation, scales

TEST(ImageOrientationTest, EachIsTurnedUpright) {
  const auto jpeg = test::encode_jpeg(noise(21, 13));
  const test::Rgb stored = pixels(jpeg);
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    SCOPED_TRACE("orientation " + std::to_string(orientation));
    const std::string bytes = with_exif(jpeg, orientation);
    EXPECT_TRUE(same(pixels(bytes), stored)) << "only on request";
    const test::Rgb upright = turned(stored, orientation);
    EXPECT_TRUE(same(pixels(bytes, {.apply_orientation = true}), upright));
    const Box box{2, 3, 5, 9};
    EXPECT_TRUE(
        same(pixels(bytes, {.apply_orientation = true, .crop = box}), cropped(upright, box)));
    const Box outside{0, 0, static_cast<std::size_t>(upright.height) + 1, 1};
    EXPECT_THAT(failure(bytes, {.apply_orientation = true, .crop = outside}),
                HasSubstr("exceeds the image"));
  }
}

TEST(ImageOrientationTest, PixelsOfSixteenBitsAreTurnedAsOthersAre) {
  const auto odd = test::make_odd_png(2, 16, false, false);
  const std::string exif = std::string(
                               "\0\0\0\x1A"
                               "eXIf",
                               8) +
                           exif_block(6, true) + "crc.";
  constexpr std::size_t kHeaderEnd = 33;
  const std::string bytes = odd.bytes.substr(0, kHeaderEnd) + exif + odd.bytes.substr(kHeaderEnd);
  const auto stored = values_of_16_bits(bytes);
  const auto upright = values_of_16_bits(bytes, {.apply_orientation = true});
  const auto height = static_cast<std::size_t>(odd.expected.height);
  const auto width = static_cast<std::size_t>(odd.expected.width);
  for (std::size_t y = 0; y < width; ++y) {
    // After a quarter turn, row y is column y of the stored image, read upwards.
    for (std::size_t i = 0; i < height * 3; ++i) {
      ASSERT_EQ(upright[y * height * 3 + i],
                stored[((height - 1 - i / 3) * width + y) * 3 + i % 3]);
    }
  }
}

TEST(ImageOrientationTest, TheBoxOfAScaledCropIsTurnedToo) {
  const auto jpeg = test::encode_jpeg(noise(45, 37));
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    const std::string bytes = with_exif(jpeg, orientation);
    const Box box{5, 11, 17, 13};
    const Decoded part = decode(bytes, {.apply_orientation = true, .crop = box, .scale = 4});
    const test::Rgb whole = pixels(bytes, {.apply_orientation = true, .scale = 4});
    EXPECT_EQ(part.report.box.height, 8.5);
    EXPECT_EQ(part.report.box.width, 6.5);
    // A flipped image begins with the last stored pixel. After scaling, the image may cover only a
    // part of this pixel.
    const bool swaps = orientation >= 5;
    const bool from_below =
        orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    const bool from_right =
        orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    const double above = from_below ? whole.height - (swaps ? 45 : 37) / 2.0 : 0;
    const double before = from_right ? whole.width - (swaps ? 37 : 45) / 2.0 : 0;
    const double top = above + 2.5;
    const double left = before + 5.5;
    const auto first_row = static_cast<std::size_t>(std::floor(top));
    const auto first_column = static_cast<std::size_t>(std::floor(left));
    EXPECT_EQ(part.report.box.top, top - static_cast<double>(first_row));
    EXPECT_EQ(part.report.box.left, left - static_cast<double>(first_column));
    EXPECT_TRUE(same(part.image, cropped(whole, {first_row, first_column,
                                                 static_cast<std::size_t>(part.image.height),
                                                 static_cast<std::size_t>(part.image.width)})))
        << "orientation " << orientation;
  }
}

TEST(ImageScaleTest, AScaledJpegIsTheMeanOfItsPixels) {
  const auto picture = test::test_picture(160, 96);
  const std::string bytes = test::encode_jpeg(picture);
  for (const unsigned scale : {1u, 2u, 4u}) {
    const test::Rgb scaled = pixels(bytes, {.scale = scale});
    const int side = static_cast<int>(8 / scale);
    ASSERT_EQ(scaled.width, 160 / side);
    ASSERT_EQ(scaled.height, 96 / side);
    int most = 0;
    for (int y = 0; y < scaled.height; ++y) {
      for (int x = 0; x < scaled.width * 3; ++x) {
        int sum = 0;
        for (int j = 0; j < side * side; ++j) {
          sum += picture.at(x / 3 * side + j % side, y * side + j / side)[x % 3];
        }
        most = std::max(most, std::abs(sum / (side * side) - int{scaled.at(0, y)[x]}));
      }
    }
    EXPECT_LE(most, 8) << "scale " << scale;
  }
}

TEST(ImageScaleTest, OtherFormatsStayWhole) {
  const auto picture = test::test_picture(20, 10);
  for (const std::string& bytes :
       {test::encode_png(picture), test::encode_ppm(picture), test::encode_webp(picture, true)}) {
    const Decoded decoded = decode(bytes, {.scale = 2});
    EXPECT_TRUE(same(decoded.image, picture));
    EXPECT_EQ(decoded.report.box.width, 20);
  }
}

TEST(ImageScaleTest, TheSmallestQuickScaleThatSufficesIsChosen) {
  EXPECT_EQ(choose_scale(375, 500, 224, 224), 8u);  // 4/8 would give only 187.5 rows
  EXPECT_EQ(choose_scale(375, 500, 224, 224, ScaleRule::kThreeQuarters), 4u);
  EXPECT_EQ(choose_scale(448, 448, 224, 224), 4u);
  EXPECT_EQ(choose_scale(447, 448, 224, 224), 8u);
  EXPECT_EQ(choose_scale(1792, 1792, 224, 224), 1u);
  EXPECT_EQ(choose_scale(896, 1792, 224, 224), 2u);
  EXPECT_EQ(choose_scale(100, 100, 224, 224), 8u);
  EXPECT_EQ(choose_scale(336, 336, 224, 224, ScaleRule::kThreeQuarters), 4u);
  EXPECT_EQ(choose_scale(335, 336, 224, 224, ScaleRule::kThreeQuarters), 8u);
}

// ----------------------------------------------------------------------------------------- defects

/// Checks that every proper prefix of `bytes` is rejected. Exception: a prefix that lacks at most
/// `at_most` bytes after the pixels gives all pixels and a warning.
void expect_truncations_refused(const std::string& bytes, std::size_t at_most) {
  const test::Rgb whole = pixels(bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // Use a copy, so that sanitizers detect reads past the end.
    const std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const std::string_view view(part.data(), part.size());
    SCOPED_TRACE(std::to_string(size) + " of " + std::to_string(bytes.size()) + " bytes");
    EXPECT_NE(failure(view, {.strict = true}), "decoded");
    try {
      const Decoded decoded = decode(view);
      EXPECT_TRUE(same(decoded.image, whole));
      EXPECT_EQ(decoded.report.warnings.size(), 1u);
      EXPECT_LE(bytes.size() - size, at_most);
    } catch (const DecodeFailure&) {
      continue;
    }
  }
}

TEST(ImageDefectTest, ATruncationIsRefusedUnlessAllPixelsAreThere) {
  const auto picture = test::test_picture(12, 9);
  // The bytes after the pixels: the end chunk, zlib's checksum, and the chunk's checksum.
  expect_truncations_refused(test::encode_png(picture), 12 + 4 + 4);
  expect_truncations_refused(test::make_odd_png(2, 8, true, false).bytes, 12 + 4 + 4);
  expect_truncations_refused(test::encode_ppm(picture), 0);
  expect_truncations_refused(test::encode_webp(picture, true), 0);
  expect_truncations_refused(test::encode_webp(picture, false), 0);
  expect_truncations_refused(test::encode_jpeg(picture), 2);
  expect_truncations_refused(test::encode_jpeg(noise(70, 50)), 2);
  expect_truncations_refused(test::encode_jpeg(picture, 95, true), 2);
  expect_truncations_refused(test::encode_gray_jpeg(picture), 2);
  expect_truncations_refused(test::encode_cmyk_jpeg(picture), 2);
}

TEST(ImageDefectTest, WhatIsForgivenIsWarnedOfAndRefusedWhenStrict) {
  const std::string jpeg = test::encode_jpeg(test::test_picture(40, 30));
  const std::string early = jpeg.substr(0, jpeg.size() - 40) + "\xFF\xD9";
  const Decoded decoded = decode(early);
  EXPECT_EQ(decoded.image.height, 30);
  EXPECT_THAT(
      decoded.report.warnings,
      testing::ElementsAre(testing::AllOf(HasSubstr("JPEG: Corrupt"), HasSubstr("premature end"))));
  EXPECT_THAT(failure(early, {.strict = true}),
              testing::AllOf(HasSubstr("JPEG: Corrupt"), HasSubstr("premature end")));
  EXPECT_EQ(failure(jpeg.substr(0, jpeg.size() - 40)), "JPEG: the data ends early");
  EXPECT_THAT(decode(jpeg, {.strict = true}).report.warnings, IsEmpty());
}

TEST(ImageDefectTest, OneWarningOfAKindIsKept) {
  std::string jpeg = test::encode_jpeg_as(noise(200, 200), {.restart_interval = 1});
  const std::size_t scan = jpeg.find("\xFF\xDA");
  for (std::size_t at = scan; at + 1 < jpeg.size(); ++at) {
    if (jpeg[at] == '\xFF' && jpeg[at + 1] == '\xD1') jpeg[at + 1] = '\xD5';
  }
  const DecodeReport report = decode(jpeg).report;
  EXPECT_LE(report.warnings.size(), 8u);
  EXPECT_GE(report.warnings.size(), 1u);
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  unsigned bits = 0;
  unsigned num_bits = 0;
  for (const char c : text) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<unsigned>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits);
  }
  return bytes;
}

TEST(ImageDefectTest, PillowsVerdictsAreOursButForThoseWithAReason) {
  std::ifstream lines(test::source_dir() + "/tests/decode/golden/image_defects.tsv");
  std::string line;
  int num_lines = 0;
  for (; std::getline(lines, line); ++num_lines) {
    std::istringstream columns(line);
    std::string name;
    std::string pillow;
    std::string ours;
    std::string base64;
    std::getline(columns, name, '\t');
    std::getline(columns, pillow, '\t');
    std::getline(columns, ours, '\t');
    std::getline(columns, base64, '\t');
    const std::string bytes = from_base64(base64);
    std::string verdict = "refused";
    std::string text;
    try {
      verdict = verdict_of(pixels(bytes, {.apply_orientation = name.ends_with("turned")}));
    } catch (const DecodeFailure& e) {
      text = e.what();
    }
    if (ours.empty()) {
      EXPECT_EQ(verdict, pillow) << name << "; " << text;
    } else {
      EXPECT_EQ(verdict.substr(0, 2), ours.substr(0, 2)) << name << "; " << text;
      EXPECT_NE(verdict.substr(0, 2), pillow.substr(0, 2)) << name << " needs no reason";
    }
  }
  EXPECT_GT(num_lines, 250);
}

TEST(ImageDefectTest, NoFlippedByteDoesWorseThanAFailure) {
  for (const std::string& good :
       {test::encode_png(test::test_picture(12, 9)), test::encode_jpeg(test::test_picture(12, 9)),
        test::encode_jpeg(test::test_picture(12, 9), 90, true),
        test::encode_cmyk_jpeg(test::test_picture(12, 9)),
        test::encode_webp(test::test_picture(12, 9), true),
        test::encode_webp(test::test_picture(12, 9), false),
        test::make_odd_png(3, 4, true, true).bytes}) {
    int refused = 0;
    for (std::size_t i = 0; i < good.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xFF}) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ flip);
        refused += failure(bad, {.max_pixels = 1 << 20}) != "decoded" ? 1 : 0;
        failure(bad, {.max_pixels = 1 << 20, .crop = Box{2, 3, 4, 5}, .scale = 4});
      }
    }
    EXPECT_GT(refused, 0);
  }
}

TEST(ImageDefectTest, AnImageBombIsRefusedBeforeMemoryIsTaken) {
  EXPECT_THAT(
      failure(test::png_bomb(1'000'000, 1'000'000)),
      testing::AllOf(HasSubstr("1000000x1000000 (HxW)"), HasSubstr("limit of 268,435,456 pixels")));
  const auto picture = test::test_picture(40, 40);
  for (const std::string& bytes : {test::encode_jpeg(picture), test::encode_png(picture),
                                   test::encode_webp(picture, false), test::encode_ppm(picture)}) {
    EXPECT_THAT(failure(bytes, {.max_pixels = 1599}),
                testing::AllOf(HasSubstr("40x40 (HxW)"), HasSubstr("limit of 1,599 pixels")));
    EXPECT_THAT(failure(bytes, {.max_pixels = 1599, .crop = Box{0, 0, 1, 1}, .scale = 1}),
                testing::AllOf(HasSubstr("40x40 (HxW)"), HasSubstr("limit of 1,599 pixels")));
    EXPECT_EQ(failure(bytes, {.max_pixels = 1600}), "decoded");
  }
}

TEST(ImageDefectTest, NoSideIsLongerThanAMillionWhateverTheOtherOne) {
  const std::uint32_t most = 1U << 20;
  for (const auto& [width, height] : {std::pair{most + 1, 1U}, {1U, most + 1}, {1U << 26, 1U}}) {
    const auto text =
        testing::AllOf(HasSubstr(std::to_string(height) + "x" + std::to_string(width) + " (HxW)"),
                       HasSubstr("more than 1,048,576 pixels"));
    EXPECT_THAT(failure(test::png_bomb(width, height)), text);
    const std::string pgm = "P5 " + std::to_string(width) + " " + std::to_string(height) +
                            " 255\n" + std::string(std::size_t{width} * height, 'x');
    for (const std::uint64_t max_pixels : {std::uint64_t{1} << 28, ~std::uint64_t{0}}) {
      EXPECT_THAT(failure(pgm, {.max_pixels = max_pixels, .crop = Box{0, 0, 1, 1}}), text);
    }
  }
  EXPECT_EQ(failure("P5 1048576 1 255\n" + std::string(most, 'x')), "decoded");
}

TEST(ImageDefectTest, VeryManyScansAreRefused) {
  const std::string jpeg = test::encode_jpeg(test::test_picture(16, 16), 90, true);
  const std::size_t second = jpeg.find("\xFF\xDA", jpeg.find("\xFF\xDA") + 2);
  const std::size_t third = jpeg.find("\xFF\xDA", second + 2);
  const std::size_t begin = jpeg.rfind("\xFF\xC4", second);
  const std::size_t end = jpeg.rfind("\xFF\xC4", third);
  std::string many = jpeg.substr(0, end);
  for (int i = 0; i < 600; ++i) many += jpeg.substr(begin, end - begin);
  EXPECT_EQ(failure(many + jpeg.substr(end)), "JPEG: more than 500 scans");
}

TEST(ImageDefectTest, NothingIsPrinted) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  auto png = test::encode_png(test::test_picture(12, 9));
  png[50] = static_cast<char>(png[50] ^ 0x55);
  EXPECT_NE(failure(png), "decoded");
  const auto jpeg = test::encode_jpeg(test::test_picture(12, 9));
  EXPECT_NE(failure(jpeg.substr(0, jpeg.size() - 10)), "decoded");
  EXPECT_EQ(failure(jpeg.substr(0, jpeg.size() - 2)), "decoded");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace shardwise
