#include <cmath>
#include <map>

#include "shardwise/loader/loader.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

Dataset make_pictures(const test::TempDir& dir, int count) {
  std::vector<test::Fields> samples;
  for (int i = 0; i < count; ++i) {
    const auto picture = test::test_picture(40 + 7 * (i % 5), 30 + 5 * (i % 4), 1u + unsigned(i));
    samples.push_back({{i % 3 == 0 ? "png" : "jpg",
                        i % 3 == 0 ? test::encode_png(picture) : test::encode_jpeg(picture)}});
  }
  return test::make_dataset(dir, "pictures", samples, 8);
}

const ImageTransform kTraining{
    .random_resized_crop = {{.size = {24, 20}}},
    .horizontal_flip = 0.5,
    .colour_jitter = {{.brightness = {0.6, 1.4}, .contrast = {0.6, 1.4}, .hue = {-0.1, 0.1}}},
    .grayscale = 0.2,
    .normalize = ImageTransform::Normalize{},
    .random_erasing = ImageTransform::RandomErasing{},
    .type = ImageTransform::Type::kFloat32};

/// Returns the bytes of each sample's row, by sample.
std::map<std::int64_t, std::string> rows(const Dataset& data, const ImageTransform& transform,
                                         unsigned threads, std::uint64_t batch_size,
                                         std::uint64_t epoch = 0) {
  std::map<std::int64_t, std::string> found;
  Loader loader(data, {.columns = {columns::image("jpg;png", transform)},
                       .order = {.seed = 11},
                       .batch_size = batch_size,
                       .threads = threads});
  loader.set_epoch(epoch);
  while (const auto batch = loader.next()) {
    for (std::size_t i = 0; i < batch->size(); ++i) {
      found.emplace(batch->samples()[i], (*batch)["jpg"].text(i));
    }
  }
  EXPECT_THAT(loader.prove(), HasSubstr("proven"));
  return found;
}

TEST(ImageColumnTest, WholeImagesAreTheSameWithChannelsFirstAndLast) {
  const test::TempDir dir;
  const Dataset data = make_pictures(dir, 12);
  const auto last = rows(data, {.layout = ImageTransform::Layout::kChannelsLast}, 1, 1);
  for (const auto& [sample, first] : rows(data, {}, 1, 1)) {
    const std::size_t pixels = first.size() / 3;
    const std::string& other = last.at(sample);
    ASSERT_EQ(other.size(), first.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      ASSERT_EQ(other[i], first[i % 3 * pixels + i / 3]) << "sample " << sample;
    }
  }
}

TEST(ImageColumnTest, WhatIsCutOutIsDecodedAsFromTheWhole) {
  const test::TempDir dir;
  const Dataset data = make_pictures(dir, 12);
  const auto crops = rows(data, {.centre_crop = {20, 16}}, 1, 1);
  for (const auto& [sample, whole] : rows(data, {}, 1, 1)) {
    const auto s = static_cast<std::size_t>(sample);
    const std::size_t width = 40 + 7 * (s % 5);
    const std::size_t height = 30 + 5 * (s % 4);
    ASSERT_EQ(whole.size(), height * width * 3);
    const auto top = static_cast<std::size_t>(std::nearbyint((double(height) - 20) / 2));
    const auto left = static_cast<std::size_t>(std::nearbyint((double(width) - 16) / 2));
    std::string expected;
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t y = 0; y < 20; ++y) {
        expected += whole.substr((c * height + top + y) * width + left, 16);
      }
    }
    const bool is_the_crop = crops.at(sample) == expected;
    EXPECT_TRUE(is_the_crop) << sample << ": " << height << " x " << width;
  }
}

TEST(ImageColumnTest, LayoutAndTypeAreThoseOfTheTransform) {
  const test::TempDir dir;
  const Dataset data = make_pictures(dir, 6);
  const auto array = [&](const ImageTransform& transform) {
    Loader loader(data, {.columns = {columns::image("jpg;png", transform)}, .batch_size = 6});
    return loader.next()->arrays()[0];
  };
  const auto first = array({.resize = {10, 12}});
  EXPECT_THAT(first.shape(), ElementsAre(6, 3, 10, 12));
  EXPECT_EQ(first.dtype(), DType::kUInt8);
  const auto last = array({.resize = {10, 12}, .layout = ImageTransform::Layout::kChannelsLast});
  EXPECT_THAT(last.shape(), ElementsAre(6, 10, 12, 3));
  const auto planes = first.values<std::uint8_t>();
  const auto pixels = last.values<std::uint8_t>();
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t p = 0; p < 120; ++p) {
      for (std::size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(planes[i * 360 + c * 120 + p], pixels[i * 360 + p * 3 + c]);
      }
    }
  }
  EXPECT_EQ(array({.resize = {4, 4}, .type = ImageTransform::Type::kFloat16}).dtype(),
            DType::kFloat16);
  EXPECT_EQ(array({.resize = {4, 4}, .type = ImageTransform::Type::kBfloat16}).dtype(),
            DType::kBFloat16);
}

TEST(ImageColumnTest, SixteenBitsAreKeptByTheTypeUint16AndScaledByOthers) {
  const test::TempDir dir;
  // 3 x 2 values: 0, 1, 2, and below them 1000, 1001, 1002.
  const std::string pgm("P5 3 2 65535\n\0\0\0\1\0\2\x03\xE8\x03\xE9\x03\xEA", 25);
  const Dataset data = test::make_dataset(dir, "depth", {{{"pgm", pgm}}});
  const auto row = [&](ImageTransform transform) {
    transform.type = ImageTransform::Type::kUint16;
    Loader loader(data, {.columns = {columns::image("pgm", transform)}});
    const auto batch = loader.next();
    EXPECT_EQ((*batch)["pgm"].dtype(), DType::kUInt16);
    const auto values = (*batch)["pgm"].values<std::uint16_t>();
    return std::vector<std::uint16_t>(values.begin(), values.end());
  };
  const std::vector<std::uint16_t> plane = {0, 1, 2, 1000, 1001, 1002};
  std::vector<std::uint16_t> planes;
  for (int c = 0; c < 3; ++c) planes.insert(planes.end(), plane.begin(), plane.end());
  EXPECT_EQ(row({}), planes);
  const auto last = row({.layout = ImageTransform::Layout::kChannelsLast});
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_EQ(last[i], plane[i / 3]);
  const auto first_plane = [&](const ImageTransform& transform) {
    auto values = row(transform);
    values.resize(values.size() / 3);
    return values;
  };
  EXPECT_THAT(first_plane({.horizontal_flip = 1}), ElementsAre(2, 1, 0, 1002, 1001, 1000));
  EXPECT_THAT(first_plane({.vertical_flip = 1}), ElementsAre(1000, 1001, 1002, 0, 1, 2));
  EXPECT_THAT(first_plane({.centre_crop = {2, 1}, .fill = {7, 7, 7}}), ElementsAre(1, 1001));
  EXPECT_THAT(
      first_plane({.padding = {.top = 1, .left = 1}, .horizontal_flip = 1, .fill = {7, 8, 9}}),
      ElementsAre(7, 7, 7, 7, 2, 1, 0, 7, 1002, 1001, 1000, 7));
  EXPECT_THAT(row({.padding = {.bottom = 2}, .centre_crop = {1, 1}, .fill = {7, 8, 9}}),
              ElementsAre(7, 8, 9));  // the result is padding only
  EXPECT_THAT(first_plane({.random_erasing = {{.probability = 1,
                                               .scale = {0.16, 0.17},
                                               .ratio = {1, 1},
                                               .value = {60000, 1, 2}}}}),
              testing::Contains(60000));
  Loader scaled(data, {.columns = {columns::image("pgm")}});
  const auto bytes_of_8_bits = scaled.next();
  EXPECT_EQ((*bytes_of_8_bits)["pgm"].values<std::uint8_t>()[3], 4) << "1000 of 65535 in 8 bits";
  const auto refusal = [&](const ImageTransform& transform) {
    return test::error_text([&] { row(transform); });
  };
  EXPECT_THAT(refusal({.resize = {2, 2}}), AllOf(HasSubstr("resize"), HasSubstr("type uint16"),
                                                 HasSubstr("leave out this step")));
  EXPECT_THAT(refusal({.random_resized_crop = {{.size = {2, 2}}}}),
              HasSubstr("random_resized_crop is given, but type uint16"));
  EXPECT_THAT(refusal({.resize_shorter_side = 2}),
              HasSubstr("resize_shorter_side is given, but type uint16"));
  EXPECT_THAT(refusal({.colour_jitter = {{}}}),
              HasSubstr("colour_jitter is given, but type uint16"));
  EXPECT_THAT(refusal({.grayscale = 0.5}), HasSubstr("grayscale is given, but type uint16"));
  EXPECT_THAT(refusal({.normalize = ImageTransform::Normalize{}}), HasSubstr("type is uint16"));
  EXPECT_THAT(refusal({.random_erasing = {{.value = {65536, 0, 0}}}}),
              HasSubstr("a number from 0 to 65535"));
  const Dataset bytes = test::make_dataset(dir, "bytes", {{{"pgm", "P5 1 1 255\nx"}}});
  const ImageTransform kept{.type = ImageTransform::Type::kUint16};
  EXPECT_THAT(
      test::error_text([&] { Loader(bytes, {.columns = {columns::image("pgm", kept)}}).next(); }),
      AllOf(HasSubstr("values have 8 bits"), HasSubstr("'pgm'"), HasSubstr("s00000")));
}

TEST(ImageColumnTest, ImagesOfSeveralSizesNeedOne) {
  const test::TempDir dir;
  const Dataset data = make_pictures(dir, 12);
  const auto text = [&](const ImageTransform& transform, const ImageDecoding& decoding = {}) {
    return test::error_text([&] {
      Loader loader(
          data, {.columns = {columns::image("jpg;png", transform, decoding)}, .batch_size = 12});
      loader.next();
    });
  };
  EXPECT_THAT(text({}), AllOf(HasSubstr("differ in size"), HasSubstr("set resize, or a crop"),
                              HasSubstr("pictures-")));
  EXPECT_THAT(text({.resize_shorter_side = 10}), HasSubstr("differ in size"));
  EXPECT_EQ(rows(data, {.resize = {9, 9}}, 2, 12).size(), 12u);
  EXPECT_THAT(text({.resize = {9, 9}}, {.max_pixels = 100}), HasSubstr("limit of 100"));
}

TEST(ImageColumnTest, ASampleOfSeveralImagesIsABadOneWhereTheOneIsMeant) {
  const test::TempDir dir;
  const std::string png = test::solid_png(4, 4, 7);
  const Dataset data = test::make_dataset(
      dir, "d", {{{"png", png}}, {{"png", png}, {"mask.png", png}, {"cls", "1"}}, {{"png", png}}});
  Loader strict(data, {.columns = {columns::image("")}, .order = {.kind = Sequential{}}});
  EXPECT_EQ(test::error_code([&] { strict.next(); }), ErrorCode::kBadField);
  Loader loader(data,
                {.columns = {columns::image("")}, .order = {.kind = Sequential{}}, .max_bad = 1});
  EXPECT_THAT(loader.next()->samples(), ElementsAre(0, 2));
  EXPECT_THAT(loader.prove(), HasSubstr("1 excluded on purpose: proven"));
  EXPECT_THAT(loader.bad_samples().samples().at(1).reason,
              AllOf(HasSubstr("several images"), EndsWith("(image_field), one of: png, mask.png")));
}

TEST(ImageColumnTest, AStrangeImageDoesNotMakeAHugeResult) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "thin", {{{"png", test::solid_png(60000, 1, 7)}}});
  const auto batch_of = [&](const ImageTransform& transform) {
    Loader loader(data, {.columns = {columns::image("png", transform)}, .batch_size = 1});
    return *loader.next();
  };
  EXPECT_THAT(test::error_text([&] { batch_of({.resize_shorter_side = 256}); }),
              AllOf(HasSubstr("cannot decode field 'png'"), HasSubstr("256x15360000 (HxW)"),
                    HasSubstr(" 1x60000 (HxW)"), HasSubstr("limit of 268,435,456")));
  const Batch small = batch_of({.resize_shorter_side = 4});
  EXPECT_THAT(small["png"].shape(), ElementsAre(1, 3, 4, 240000));
  const Batch cut = batch_of({.resize_shorter_side = 256, .centre_crop = {32, 32}});
  EXPECT_THAT(cut["png"].shape(), ElementsAre(1, 3, 32, 32));
}

TEST(ImageColumnTest, ScaledDecodingComesCloseToTheExactOne) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (unsigned i = 0; i < 4; ++i) {
    samples.push_back({{"jpg", test::encode_jpeg(test::test_picture(400, 300, i + 1))}});
  }
  const Dataset data = test::make_dataset(dir, "large", samples);
  const auto values = [&](ImageDecoding::Scaling scaling) {
    Loader loader(data,
                  {.columns = {columns::image("jpg", {.resize = {64, 64}}, {.scaling = scaling})},
                   .order = {.kind = Sequential{}},
                   .batch_size = 4});
    const auto batch = loader.next();
    const auto all = (*batch)["jpg"].values<std::uint8_t>();
    return std::vector<std::uint8_t>(all.begin(), all.end());
  };
  const auto exact = values(ImageDecoding::Scaling::kExact);
  for (const auto scaling : {ImageDecoding::Scaling::kNotSmaller, ImageDecoding::Scaling::kFast}) {
    const auto scaled = values(scaling);
    EXPECT_NE(scaled, exact);
    double sum = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) sum += std::abs(exact[i] - scaled[i]);
    EXPECT_LT(sum / static_cast<double>(exact.size()), 4.0);
  }
}

}  // namespace
}  // namespace shardwise
