#include "loader/mix.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "loader/sample_random.h"
#include "shardwise/base/error.h"
#include "support/python.h"
#include "support/support.h"

namespace shardwise {
namespace {

using detail::batch_key;
using detail::Box;
using detail::plan_cutmix;
using detail::plan_mixup;

TEST(MixTest, AProgramWrittenFromThePageDrawsTheSame) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  std::string input;
  std::vector<nlohmann::json> expected;
  for (std::uint64_t position = 0; position < 60; ++position) {
    for (const double alpha : {0.001, 0.2, 1.0, 3.5, 40.0}) {
      const Hash128 key = batch_key(17, 3, position * 64);
      nlohmann::json request{{"seed", 17}, {"epoch", 3}, {"position", position * 64}};
      request["mixup"] = alpha;
      input += request.dump() + "\n";
      expected.emplace_back(plan_mixup(alpha, key));
      request.erase("mixup");
      request["cutmix"] = alpha;
      request["size"] = {32, 48};
      input += request.dump() + "\n";
      const detail::CutmixPlan plan = plan_cutmix(alpha, {32, 48}, key);
      const Box& box = plan.box;
      expected.push_back({{box.top, box.left, box.height, box.width}, plan.lambda});
    }
  }
  const auto lines = test::run_python("tests/loader/read_transform.py", {}, input);
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(nlohmann::json::parse(lines[i]), expected[i]);
  }
}

TEST(MixTest, LambdaHasTheMeanAndTheVarianceOfBeta) {
  for (const double alpha : {0.1, 0.4, 1.0, 2.0, 8.0}) {
    double sum = 0;
    double squares = 0;
    constexpr int kDraws = 20000;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double lambda = plan_mixup(alpha, batch_key(1, 0, i));
      ASSERT_GE(lambda, 0);
      ASSERT_LE(lambda, 1);
      sum += lambda;
      squares += lambda * lambda;
    }
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, 0.5, 0.015) << alpha;
    EXPECT_NEAR(squares / kDraws - mean * mean, 1 / (4 * (2 * alpha + 1)), 0.006) << alpha;
  }
}

TEST(MixTest, EachSampleIsMixedWithTheOneBefore) {
  std::vector<float> batch{0, 10, 100, 1000, 8, 4};
  detail::mixup(batch.data(), 3, 2, 0.75);
  EXPECT_EQ(batch, (std::vector<float>{2, 8.5F, 75, 752.5F, 31, 253}));
  std::vector<std::uint8_t> bytes{0, 255, 3};
  detail::mixup(bytes.data(), 3, 1, 0.5);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{2, 128, 129}));
  EXPECT_EQ(detail::mixed_with(0, 3), 2U);
  EXPECT_EQ(detail::mixed_with(2, 3), 1U);
}

TEST(MixTest, TheBoxComesFromTheSampleBefore) {
  for (const auto layout :
       {ImageTransform::Layout::kChannelsFirst, ImageTransform::Layout::kChannelsLast}) {
    constexpr std::size_t kHeight = 4;
    constexpr std::size_t kWidth = 5;
    constexpr std::size_t kSize = kHeight * kWidth * 3;
    std::vector<std::uint16_t> batch(3 * kSize);
    for (std::size_t i = 0; i < batch.size(); ++i) batch[i] = static_cast<std::uint16_t>(i);
    const Box box{1, 2, 2, 3};
    detail::cutmix(batch.data(), 3, {kHeight, kWidth}, layout, 2, box);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::size_t in_sample = i % kSize;
      const bool is_planar = layout == ImageTransform::Layout::kChannelsFirst;
      const std::size_t pixel = is_planar ? in_sample % (kHeight * kWidth) : in_sample / 3;
      const bool is_inside = pixel / kWidth >= 1 && pixel / kWidth < 3 && pixel % kWidth >= 2;
      const std::size_t from = is_inside ? detail::mixed_with(i / kSize, 3) : i / kSize;
      EXPECT_EQ(batch[i], from * kSize + in_sample) << i;
    }
  }
}

TEST(MixTest, LambdaOfCutmixIsWhatTheBoxLeaves) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const detail::CutmixPlan plan = plan_cutmix(1, {30, 20}, batch_key(2, 2, i));
    EXPECT_LE(plan.box.top + plan.box.height, 30U);
    EXPECT_LE(plan.box.left + plan.box.width, 20U);
    EXPECT_NEAR(plan.lambda, 1 - static_cast<double>(plan.box.height * plan.box.width) / 600,
                1e-12);
  }
}

}  // namespace
}  // namespace shardwise
