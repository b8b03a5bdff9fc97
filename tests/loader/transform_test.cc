#include "loader/transform.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "loader/stable_math.h"
#include "shardwise/base/error.h"
#include "shardwise/order/sample_key.h"
#include "support/python.h"
#include "support/support.h"

namespace shardwise {
namespace {

using detail::Box;
using detail::ImagePlan;
using detail::ImageTransformer;
using detail::Operation;
using detail::RgbView;
using detail::SampleRandom;
using nlohmann::json;
using testing::HasSubstr;

struct Picture {
  std::size_t height;
  std::size_t width;
  std::vector<std::uint8_t> pixels;

  RgbView view() const { return {pixels.data(), height, width, width * 3}; }
};

Picture noise(std::size_t height, std::size_t width, unsigned seed = 1) {
  Picture picture{height, width, std::vector<std::uint8_t>(height * width * 3)};
  std::mt19937 random(seed);
  for (auto& byte : picture.pixels) byte = static_cast<std::uint8_t>(random());
  return picture;
}

/// Returns the transformed picture, as values of the transform's type.
template <class Value>
std::vector<Value> transformed(const ImageTransformer& transformer, const Picture& picture,
                               const Hash128& key, ImagePlan* plan_out = nullptr) {
  const ImagePlan plan = transformer.plan({picture.height, picture.width}, key);
  EXPECT_EQ(transformer.value_bytes(), sizeof(Value));
  std::vector<Value> values(plan.height * plan.width * 3);
  transformer.apply(plan, picture.view().cropped(plan.source), values.data());
  if (plan_out != nullptr) *plan_out = plan;
  return values;
}

// ----------------------------------------------------------------------------------- specification

std::vector<double> pair_of(const ImageTransform::Range& range) {
  return {range.least, range.most};
}

std::vector<std::size_t> pair_of(const ImageTransform::Size& size) {
  return {size.height, size.width};
}

/// Draws transforms. Also gives them in the form that tests/loader/read_transform.py reads.
class RandomTransforms {
 public:
  explicit RandomTransforms(unsigned seed) : random_(seed) {}

  std::pair<ImageTransform, json> draw() {
    transform_ = {.layout = ImageTransform::Layout::kChannelsLast};
    json_ = json::object();
    draw_geometry();
    transform_.horizontal_flip = probability();
    transform_.vertical_flip = probability();
    json_["horizontal_flip"] = transform_.horizontal_flip;
    json_["vertical_flip"] = transform_.vertical_flip;
    draw_colours();
    return {transform_, json_};
  }

  std::size_t below(std::size_t n) { return random_() % n; }
  std::size_t side(std::size_t most) { return 1 + below(most); }

 private:
  bool half() { return random_() % 2 == 0; }
  double number(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random_);
  }
  double probability() { return half() ? 0.5 : 0; }
  ImageTransform::Size size() { return {side(20), side(20)}; }
  ImageTransform::Range range(double least, double most) {
    const double first = number(least, most);
    return {first, number(first, most)};
  }

  void draw_geometry() {
    switch (below(4)) {
      case 0:
        transform_.random_resized_crop = {size(), range(0.05, 1), range(0.3, 3)};
        json_["random_resized_crop"] = {{"size", pair_of(transform_.random_resized_crop->size)},
                                        {"scale", pair_of(transform_.random_resized_crop->scale)},
                                        {"ratio", pair_of(transform_.random_resized_crop->ratio)}};
        break;
      case 1:
        transform_.resize = size();
        json_["resize"] = pair_of(transform_.resize);
        break;
      case 2:
        transform_.resize_shorter_side = side(15);
        json_["resize_shorter_side"] = transform_.resize_shorter_side;
        break;
      default:
        break;
    }
    if (half()) {
      transform_.padding = {below(5), below(5), below(5), below(5)};
      const auto& pad = transform_.padding;
      json_["padding"] = std::vector<std::size_t>{pad.top, pad.left, pad.bottom, pad.right};
    }
    const std::size_t crop = below(3);
    if (crop == 1) {
      transform_.centre_crop = size();
      json_["centre_crop"] = pair_of(transform_.centre_crop);
    } else if (crop == 2) {
      transform_.random_crop = size();
      json_["random_crop"] = pair_of(transform_.random_crop);
    }
    transform_.fill = {200, 100, 7};
    json_["fill"] = {200, 100, 7};
    if (half()) {
      transform_.filter = ImageTransform::Filter::kBicubic;
      json_["filter"] = "bicubic";
    }
  }

  void draw_colours() {
    if (half()) {
      transform_.colour_jitter = {0.8, range(0, 2), range(0, 2), range(0, 2), range(-0.5, 0.5)};
      const ImageTransform::ColourJitter& jitter = *transform_.colour_jitter;
      json_["colour_jitter"] = {{"probability", jitter.probability},
                                {"brightness", pair_of(jitter.brightness)},
                                {"contrast", pair_of(jitter.contrast)},
                                {"saturation", pair_of(jitter.saturation)},
                                {"hue", pair_of(jitter.hue)}};
    }
    transform_.grayscale = probability() / 2;
    json_["grayscale"] = transform_.grayscale;
    if (half()) {
      transform_.type = ImageTransform::Type::kFloat32;
      transform_.normalize = ImageTransform::Normalize{};
      json_["normalize"] = {{"mean", transform_.normalize->mean},
                            {"std", transform_.normalize->std}};
    }
    if (half()) {
      transform_.random_erasing = {0.7, range(0.02, 0.9), range(0.2, 4), {3, 17, 9}};
      const ImageTransform::RandomErasing& erasing = *transform_.random_erasing;
      json_["random_erasing"] = {{"probability", erasing.probability},
                                 {"scale", pair_of(erasing.scale)},
                                 {"ratio", pair_of(erasing.ratio)},
                                 {"value", erasing.value}};
    }
  }

  std::mt19937 random_;
  ImageTransform transform_;
  json json_;
};

json rows_of(const Picture& picture) {
  json rows = json::array();
  for (std::size_t y = 0; y < picture.height; ++y) {
    json row = json::array();
    for (std::size_t x = 0; x < picture.width; ++x) {
      const std::uint8_t* pixel = picture.view().row(y) + 3 * x;
      row.push_back({pixel[0], pixel[1], pixel[2]});
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<json> python_answers(const std::vector<json>& requests) {
  std::string input;
  for (const json& request : requests) input += request.dump() + "\n";
  std::vector<json> found;
  for (const std::string& line : test::run_python("tests/loader/read_transform.py", {}, input)) {
    found.push_back(json::parse(line));
  }
  return found;
}

std::vector<double> values_of(const ImageTransform& transform, const Picture& picture,
                              const Hash128& key, ImagePlan& plan) {
  const ImageTransformer transformer(transform);
  if (transform.type == ImageTransform::Type::kFloat32) {
    const auto values = transformed<float>(transformer, picture, key, &plan);
    return {values.begin(), values.end()};
  }
  const auto values = transformed<std::uint8_t>(transformer, picture, key, &plan);
  return {values.begin(), values.end()};
}

TEST(TransformTest, AProgramWrittenFromThePageGetsTheSameImages) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  RandomTransforms random(11);
  std::vector<json> requests;
  std::vector<json> expected;
  for (unsigned i = 0; i < 150; ++i) {
    const auto [transform, as_json] = random.draw();
    const Picture picture = noise(random.side(24), random.side(24), i);
    ImagePlan plan;
    const auto values = values_of(transform, picture, sample_key(17, i % 4, i), plan);
    requests.push_back({{"seed", 17},
                        {"epoch", i % 4},
                        {"sample", i},
                        {"transform", as_json},
                        {"image", rows_of(picture)}});
    expected.push_back({{"values", values}, {"size", {plan.height, plan.width}}});
    if (plan.jitter) expected.back()["jitter"] = plan.jitter->amounts;
  }
  const std::vector<json> found = python_answers(requests);
  ASSERT_EQ(found.size(), requests.size());
  std::size_t num_jittered = 0;
  std::size_t num_erased = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(requests[i]["transform"].dump());
    ASSERT_EQ(found[i]["size"], expected[i]["size"]);
    ASSERT_EQ(found[i].contains("jitter"), expected[i].contains("jitter"));
    if (found[i].contains("jitter")) {
      ASSERT_EQ(found[i]["jitter"][1], expected[i]["jitter"]);
    }
    ASSERT_EQ(found[i]["values"].get<std::vector<double>>(),
              expected[i]["values"].get<std::vector<double>>());
    num_jittered += found[i].contains("jitter") ? 1 : 0;
    num_erased += found[i].contains("erased") ? 1 : 0;
  }
  EXPECT_GT(num_jittered, 20U);
  EXPECT_GT(num_erased, 20U);
}

// Version 1 of docs/formats/transforms.md.
TEST(TransformTest, TheNumbersOnThePageAreThoseOfTheLibrary) {
  const std::string page = test::read_file(test::source_dir() + "/docs/formats/transforms.md");
  EXPECT_THAT(page, testing::StartsWith("# Transforms of images, version 1\n"));
  SampleRandom random(sample_key(17, 3, 5), Operation::kRandomResizedCrop);
  std::string words;
  for (int i = 0; i < 3; ++i) words += (i > 0 ? ", " : "") + std::to_string(random.word());
  EXPECT_THAT(page, HasSubstr("operation 1 draws the words " + words + "."));
}

// Version 1 of docs/formats/transforms.md. These plans must never change.
TEST(TransformTest, PlansOfVersionOneStayAsTheyAre) {
  const ImageTransformer transformer(
      {.random_resized_crop = {{.size = {224, 224}}},
       .horizontal_flip = 0.5,
       .colour_jitter = {{1, {0.6, 1.4}, {0.6, 1.4}, {0.6, 1.4}, {-0.1, 0.1}}},
       .random_erasing = {{.probability = 1}}});
  const auto crop = [&](std::uint64_t sample) {
    return transformer.plan({375, 500}, sample_key(17, 3, sample)).source;
  };
  EXPECT_EQ(crop(0), (Box{29, 32, 346, 459}));
  EXPECT_EQ(crop(1), (Box{123, 194, 234, 291}));
  EXPECT_EQ(crop(1'000'000'000'000), (Box{45, 144, 223, 277}));
  const ImagePlan plan = transformer.plan({375, 500}, sample_key(17, 3, 5));
  EXPECT_EQ(plan.flips.horizontal, false);
  ASSERT_TRUE(plan.jitter && plan.erased);
  EXPECT_EQ(plan.jitter->amounts[0], 0x1.9f0c5ccdb8ac1p-1);
  EXPECT_EQ(plan.jitter->amounts[3], 0x1.0b659cf4f2ec4p-5);
  EXPECT_EQ(*plan.erased, (Box{4, 115, 94, 76}));
}

// -------------------------------------------------------------------------------------- randomness

TEST(TransformTest, AnotherStepDoesNotChangeWhatTheOthersDraw) {
  const ImageTransform alone{.random_resized_crop = {{.size = {64, 64}}}, .horizontal_flip = 0.5};
  ImageTransform more = alone;
  more.vertical_flip = 0.5;
  more.colour_jitter = ImageTransform::ColourJitter{.brightness = {0.5, 2}};
  more.grayscale = 0.5;
  more.random_erasing = ImageTransform::RandomErasing{};
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    const Hash128 key = sample_key(1, 2, sample);
    const ImagePlan first = ImageTransformer(alone).plan({90, 120}, key);
    const ImagePlan second = ImageTransformer(more).plan({90, 120}, key);
    EXPECT_EQ(first.source, second.source);
    EXPECT_EQ(first.flips.horizontal, second.flips.horizontal);
  }
}

TEST(TransformTest, SeedEpochAndSampleEachChangeThePlan) {
  const ImageTransformer transformer({.random_resized_crop = {{.size = {64, 64}}}});
  const auto crop = [&](std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
    return transformer.plan({375, 500}, sample_key(seed, epoch, sample)).source;
  };
  EXPECT_EQ(crop(1, 2, 3), crop(1, 2, 3));
  EXPECT_NE(crop(1, 2, 3), crop(2, 2, 3));
  EXPECT_NE(crop(1, 2, 3), crop(1, 3, 3));
  EXPECT_NE(crop(1, 2, 3), crop(1, 2, 4));
}

TEST(TransformTest, ThreadsGetTheSameImages) {
  const ImageTransformer transformer(
      {.random_resized_crop = {{.size = {32, 32}}},
       .horizontal_flip = 0.5,
       .colour_jitter = {{1, {0.6, 1.4}, {0.6, 1.4}, {0.6, 1.4}, {-0.1, 0.1}}},
       .random_erasing = ImageTransform::RandomErasing{}});
  const Picture picture = noise(60, 80);
  static constexpr std::size_t kSamples = 60;
  const auto made_by = [&](std::size_t num_threads) {
    std::vector<std::vector<std::uint8_t>> images(kSamples);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < num_threads; ++t) {
      threads.emplace_back([&images, &transformer, &picture, t, num_threads] {
        for (std::size_t i = t; i < kSamples; i += num_threads) {
          images[i] = transformed<std::uint8_t>(transformer, picture, sample_key(5, 0, i));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return images;
  };
  const auto alone = made_by(1);
  EXPECT_EQ(made_by(2), alone);
  EXPECT_EQ(made_by(7), alone);
}

TEST(TransformTest, CropsAreOfEveryAreaAndShapeInTheRange) {
  const ImageTransformer transformer({.random_resized_crop = {{.size = {8, 8}}}});
  double area = 0;
  double log_ratio = 0;
  constexpr int kDraws = 20000;
  for (std::uint64_t sample = 0; sample < kDraws; ++sample) {
    const Box box = transformer.plan({1000, 1000}, sample_key(7, 0, sample)).source;
    const auto height = static_cast<double>(box.height);
    const auto width = static_cast<double>(box.width);
    EXPECT_LE(box.top + box.height, 1000U);
    EXPECT_LE(box.left + box.width, 1000U);
    EXPECT_GE(height * width, 0.0795e6);
    EXPECT_GE(width / height, 0.745);
    EXPECT_LE(width / height, 1.345);
    area += height * width / 1e6;
    log_ratio += std::log(width / height);
  }
  // An area near 1 fits with few aspect ratios, so the mean is below that of [0.08, 1].
  EXPECT_NEAR(area / kDraws, 0.49, 0.02);
  EXPECT_NEAR(log_ratio / kDraws, 0, 0.01);
}

TEST(TransformTest, AnImageThatNoCropFitsIsCroppedInTheCentre) {
  const ImageTransformer transformer({.random_resized_crop = {{.size = {8, 8}}}});
  EXPECT_EQ(transformer.plan({1000, 10}, sample_key(0, 0, 0)).source, (Box{493, 0, 13, 10}));
  EXPECT_EQ(transformer.plan({10, 1000}, sample_key(0, 0, 0)).source, (Box{0, 493, 10, 13}));
  EXPECT_EQ(transformer.plan({1, 1}, sample_key(0, 0, 0)).source, (Box{0, 0, 1, 1}));
}

TEST(TransformTest, AFlipWithAProbabilityComesThatOften) {
  const ImageTransformer transformer({.horizontal_flip = 0.25, .vertical_flip = 1});
  int num_horizontal = 0;
  for (std::uint64_t sample = 0; sample < 10000; ++sample) {
    const ImagePlan plan = transformer.plan({4, 4}, sample_key(9, 1, sample));
    num_horizontal += plan.flips.horizontal ? 1 : 0;
    ASSERT_TRUE(plan.flips.vertical);
  }
  EXPECT_NEAR(num_horizontal, 2500, 200);
}

TEST(TransformTest, JitterComesInEveryOrder) {
  const ImageTransformer transformer({.colour_jitter = ImageTransform::ColourJitter{}});
  std::map<std::array<ImagePlan::Adjustment, 4>, int> counts;
  for (std::uint64_t sample = 0; sample < 4800; ++sample) {
    ++counts[transformer.plan({4, 4}, sample_key(3, 0, sample)).jitter->order];
  }
  EXPECT_EQ(counts.size(), 24U);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 200, 75);
}

TEST(SampleRandomTest, NumbersBelowABoundAreEquallyLikely) {
  // A bound of 3/4 of 2^64: without rejection, two thirds of the numbers would be below half of it.
  const std::uint64_t bound = std::uint64_t{3} << 62;
  int num_below_half = 0;
  int num_third = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    SampleRandom random(sample_key(1, 1, i), Operation::kRandomCrop);
    const std::uint64_t drawn = random.below(bound);
    ASSERT_LT(drawn, bound);
    num_below_half += drawn < bound / 2 ? 1 : 0;
    num_third += drawn % 3 == 0 ? 1 : 0;
  }
  EXPECT_NEAR(num_below_half, 5000, 250);
  EXPECT_NEAR(num_third, 3333, 250);
}

TEST(StableMathTest, ItIsWithinAFewUnitsOfTheLastPlace) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> exponents(-700, 700);
  for (int i = 0; i < 100000; ++i) {
    const double x = exponents(random);
    ASSERT_NEAR(detail::stable_exp(x) / std::exp(x), 1, 2e-13) << x;
    const double y = std::exp(x / 3);
    ASSERT_NEAR(detail::stable_log(y), std::log(y), 1e-15 * std::max(1.0, std::abs(x))) << y;
  }
  EXPECT_EQ(detail::stable_log(1), 0);
  EXPECT_EQ(detail::stable_exp(0), 1);
  EXPECT_EQ(detail::stable_exp(-800), 0);
  EXPECT_EQ(detail::round_to_even(0.5), 0);
  EXPECT_EQ(detail::round_to_even(1.5), 2);
  EXPECT_EQ(detail::round_to_even(2.5), 2);
  EXPECT_EQ(detail::round_to_even(2.51), 3);
}

// ------------------------------------------------------------------------------------------ pixels

TEST(TransformTest, TypesAndLayoutsHoldTheSameImage) {
  ImageTransform transform{.random_resized_crop = {{.size = {20, 30}}}, .horizontal_flip = 1};
  const Picture picture = noise(50, 60);
  const Hash128 key = sample_key(1, 0, 0);
  const auto planes = transformed<std::uint8_t>(ImageTransformer(transform), picture, key);
  transform.layout = ImageTransform::Layout::kChannelsLast;
  const auto bytes = transformed<std::uint8_t>(ImageTransformer(transform), picture, key);
  transform.type = ImageTransform::Type::kFloat32;
  const auto floats = transformed<float>(ImageTransformer(transform), picture, key);
  transform.type = ImageTransform::Type::kFloat16;
  const auto halves = transformed<std::uint16_t>(ImageTransformer(transform), picture, key);
  transform.type = ImageTransform::Type::kBfloat16;
  const auto brains = transformed<std::uint16_t>(ImageTransformer(transform), picture, key);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(planes[i % 3 * 600 + i / 3], bytes[i]);
    EXPECT_EQ(floats[i], static_cast<float>(bytes[i]) / 255);
    EXPECT_EQ(halves[i], detail::to_float16(floats[i]));
    EXPECT_EQ(brains[i], detail::to_bfloat16(floats[i]));
  }
}

TEST(TransformTest, WhatIsNotShownNeedNotBeDecoded) {
  const ImageTransformer transformer({.centre_crop = {20, 20}});
  const ImagePlan plan = transformer.plan({101, 60}, sample_key(0, 0, 0));
  EXPECT_EQ(plan.source, (Box{40, 20, 20, 20}));
}

TEST(TransformTest, ACropThatLiesInThePaddingAloneHasItsColour) {
  const ImageTransformer transformer(
      {.padding = {0, 100, 0, 0}, .random_crop = {2, 2}, .fill = {9, 8, 7}});
  const Picture picture = noise(2, 2);
  int num_empty = 0;
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    ImagePlan plan;
    const auto values =
        transformed<std::uint8_t>(transformer, picture, sample_key(0, 0, sample), &plan);
    if (plan.part.window.width > 0) continue;
    ++num_empty;
    EXPECT_EQ(values, (std::vector<std::uint8_t>{9, 9, 9, 9, 8, 8, 8, 8, 7, 7, 7, 7}));
  }
  EXPECT_GT(num_empty, 10);
}

TEST(TransformTest, TheSizeIsKnownBeforehandWhereItIsFixed) {
  using Size = ImageTransform::Size;
  const auto size = [](const ImageTransform& transform) {
    return ImageTransformer(transform).fixed_size();
  };
  EXPECT_EQ(size({}), std::nullopt);
  EXPECT_EQ(size({.resize_shorter_side = 256}), std::nullopt);
  EXPECT_EQ(size({.resize_shorter_side = 256, .centre_crop = {224, 200}}), (Size{224, 200}));
  EXPECT_EQ(size({.resize = {8, 9}, .padding = {1, 2, 3, 4}}), (Size{12, 15}));
  EXPECT_EQ(size({.random_resized_crop = {{.size = {5, 6}}}}), (Size{5, 6}));
}

// ------------------------------------------------------------------------------------------ errors

std::string refusal(const ImageTransform& transform) {
  try {
    const ImageTransformer transformer(transform);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(TransformTest, WhatCannotBeIsRefusedWithARemedy) {
  EXPECT_THAT(refusal({.resize = {224, 0}}),
              testing::AllOf(HasSubstr("cannot transform images"),
                             HasSubstr("resize is 224x0 (HxW)"), HasSubstr("from 1 to 2^24")));
  EXPECT_THAT(refusal({.random_resized_crop = ImageTransform::RandomResizedCrop{}}),
              testing::AllOf(HasSubstr("cannot transform images"),
                             HasSubstr("random_resized_crop.size is 0x0 (HxW)"),
                             HasSubstr("from 1 to 2^24")));
  EXPECT_THAT(refusal({.horizontal_flip = 1.5}),
              testing::AllOf(HasSubstr("cannot transform images"), HasSubstr("horizontal_flip"),
                             HasSubstr("is 1.500000"), HasSubstr("from 0 to 1")));
  EXPECT_THAT(refusal({.vertical_flip = std::nan("")}),
              testing::AllOf(HasSubstr("cannot transform images"), HasSubstr("vertical_flip"),
                             HasSubstr("is nan"), HasSubstr("from 0 to 1")));
  EXPECT_THAT(refusal({.resize = {2, 2}, .resize_shorter_side = 5}),
              testing::AllOf(HasSubstr("cannot transform images"), HasSubstr("more than one"),
                             HasSubstr("random_resized_crop, resize and resize_shorter_side"),
                             HasSubstr("all but one")));
  EXPECT_THAT(refusal({.centre_crop = {2, 2}, .random_crop = {2, 2}}),
              testing::AllOf(HasSubstr("cannot transform images"),
                             HasSubstr("centre_crop and random_crop"), HasSubstr("leave out one")));
  EXPECT_THAT(refusal({.random_resized_crop = {{.size = {2, 2}, .ratio = {2, 1}}}}),
              testing::AllOf(HasSubstr("cannot transform images"),
                             HasSubstr("random_resized_crop.ratio is [2.000000, 1.000000]"),
                             HasSubstr("positive ratios"), HasSubstr("smaller one first")));
  EXPECT_THAT(refusal({.colour_jitter = {{.hue = {-0.6, 0}}}}),
              testing::AllOf(HasSubstr("cannot transform images"),
                             HasSubstr("colour_jitter.hue is [-0.600000, 0.000000]"),
                             HasSubstr("from -0.5 to 0.5"), HasSubstr("smaller one first")));
  EXPECT_THAT(refusal({.normalize = ImageTransform::Normalize{}}),
              testing::AllOf(HasSubstr("cannot transform images"), HasSubstr("normalize"),
                             HasSubstr("type is uint8"), HasSubstr("floating-point type")));
  EXPECT_THAT(
      refusal({.normalize = {{.std = {1, 0, 1}}}, .type = ImageTransform::Type::kFloat32}),
      testing::AllOf(HasSubstr("cannot transform images"), HasSubstr("mean or std of normalize"),
                     HasSubstr("not finite"), HasSubstr("not positive"), HasSubstr("255 is 1")));
  EXPECT_THAT(
      refusal({.random_erasing = {{.value = {-1, 0, 0}}}}),
      testing::AllOf(HasSubstr("cannot transform images"),
                     HasSubstr("random_erasing.value is -1.000000"), HasSubstr("from 0 to 255")));
}

}  // namespace
}  // namespace shardwise
