#include "shardwise/libtorch/evaluate.h"

#include <torch/torch.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <random>

#include "base/error_types.h"
#include "shardwise/libtorch/stop_guard.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise::libtorch {
namespace {

using test::error_text;
using testing::HasSubstr;

/// Makes samples: sample i has an 8x6 image of level i and the label i % 7.
Dataset make_levels(const test::TempDir& dir, int count) {
  std::vector<test::Fields> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back({{"png", test::solid_png(8, 6, i)}, {"cls", std::to_string(i % 7)}});
  }
  return test::make_dataset(dir, "levels", samples, 10);
}

torch::Tensor levels_of(const torch::Tensor& images) {
  return images.select(1, 0).select(1, 0).select(1, 0).to(torch::kInt64);
}

struct LevelsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    EXPECT_FALSE(is_training());
    EXPECT_FALSE(torch::GradMode::is_enabled());
    return torch::one_hot(levels_of(images).remainder(7), 7);
  }
};
TORCH_MODULE(Levels);

TEST(EvaluateTest, AModuleIsEvaluatedInItsModeAndPutBack) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 23);
  Levels model;
  model->train();
  const auto accuracy = exact_accuracy(model, data, ProcessGroup(), {.batch_size = 4});
  EXPECT_EQ(accuracy.count, 23);
  EXPECT_EQ(accuracy.sum, 23);
  EXPECT_EQ(accuracy, 1.0);
  EXPECT_TRUE(model->is_training());
  const auto wrong = exact_accuracy(Predict([](const torch::Tensor& images) {
                                      return torch::zeros({images.size(0), 7});
                                    }),
                                    data, {});
  EXPECT_EQ(wrong.sum, 4);  // equal scores mean class 0, which is right for 0, 7, 14 and 21
  EXPECT_EQ(test::error_code([&] {
              exact_accuracy(Predict([](const torch::Tensor&) {
                               return torch::zeros({1, 7});
                             }),
                             data, {});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(EarlyStopTest, WaitsForItsPatience) {
  EarlyStop higher({}, {.patience = 2, .min_delta = 0.01});
  EXPECT_FALSE(higher.should_stop(0.5));
  EXPECT_FALSE(higher.should_stop(0.505));  // an improvement that is too small
  EXPECT_FALSE(higher.should_stop(0.6));
  EXPECT_FALSE(higher.should_stop(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(higher.should_stop(0.6));
  EXPECT_EQ(higher.best(), 0.6);
  EarlyStop lower({}, {.patience = 1, .lower_is_better = true});
  EXPECT_FALSE(lower.should_stop(2.0));
  EXPECT_FALSE(lower.should_stop(1.0));
  EXPECT_TRUE(lower.should_stop(1.5));
  EXPECT_EQ(test::error_code([] { EarlyStop({}, {.patience = 0}); }), ErrorCode::kInvalidArgument);
}

TEST(EvaluateTest, AMeanOfNothingIsNotANumber) {
  EXPECT_TRUE(std::isnan(reduce_exact(0, 0, ProcessGroup()).value()));
  EXPECT_EQ(reduce_exact(3, 4, ProcessGroup()).value(), 0.75);
}

/// Returns scores in which class (level + 1) % 7 is the best and level % 7 the second.
torch::Tensor second_best(const torch::Tensor& images) {
  const auto levels = levels_of(images);
  return 2 * torch::one_hot((levels + 1).remainder(7), 7).to(torch::kFloat) +
         torch::one_hot(levels.remainder(7), 7).to(torch::kFloat);
}

TEST(EvaluateTest, CountsTopKConfusionAndLoss) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 23);
  const auto found =
      evaluate(Predict(second_best), data, {}, {.batch_size = 4, .top_k = {1, 2, 7}});
  EXPECT_EQ(found.num_samples, 23);
  ASSERT_EQ(found.top.size(), 3u);
  EXPECT_EQ(found.top[0].sum, 0);
  EXPECT_EQ(found.top[1].sum, 23);
  EXPECT_EQ(found.top[2].value(), 1.0);
  EXPECT_EQ(found.confusion.sum().item<std::int64_t>(), 23);
  EXPECT_EQ(found.confusion[0][1].item<std::int64_t>(), 4);  // 0, 7, 14 and 21
  EXPECT_EQ(found.confusion[6][0].item<std::int64_t>(), 3);
  EXPECT_EQ(found.of_class(0).count, 4);
  EXPECT_EQ(found.of_class(0).sum, 0);
  EXPECT_NEAR(found.loss.value(), std::log(std::exp(2) + std::exp(1) + 5) - 1, 1e-12);
  EXPECT_THAT(error_text([&] { found.of_class(7); }), HasSubstr("0 to 6"));
}

TEST(EvaluateTest, TheModelAlwaysGetsWholeBatches) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 23);
  int calls = 0;
  const auto found = evaluate(Predict([&](const torch::Tensor& images) {
                                ++calls;
                                EXPECT_EQ(images.size(0), 10);
                                if (calls == 3) {
                                  EXPECT_TRUE(images[9].equal(images[0]));
                                }
                                return second_best(images);
                              }),
                              data, {}, {.batch_size = 10});
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(found.num_samples, 23);
}

TEST(EvaluateTest, EqualScoresGiveEqualBitsForAnyBatchSize) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 61);
  const Predict predict = [](const torch::Tensor& images) {
    const auto levels = levels_of(images).to(torch::kFloat).unsqueeze(1);
    return torch::sin(levels * torch::arange(1, 8)) * torch::exp(levels / 10);
  };
  const auto expected = evaluate(predict, data, {}, {.batch_size = 61});
  for (const std::int64_t size : {1, 2, 7, 64}) {
    const auto found = evaluate(predict, data, {}, {.batch_size = size});
    EXPECT_EQ(found.loss.sum, expected.loss.sum) << size;
    EXPECT_TRUE(found.confusion.equal(expected.confusion)) << size;
  }
}

TEST(EvaluateTest, TiesAndNansAreDecidedTheSameWayEverywhere) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 7);
  const auto flat = evaluate(Predict([](const torch::Tensor& images) {
                               return torch::zeros({images.size(0), 7});
                             }),
                             data, {}, {.batch_size = 4, .top_k = {1, 3}});
  EXPECT_EQ(flat.top[0].sum, 1);  // equal scores mean the first class
  EXPECT_EQ(flat.top[1].sum, 3);
  EXPECT_EQ(flat.confusion.select(1, 0).sum().item<std::int64_t>(), 7);
  const auto nan = evaluate(Predict([](const torch::Tensor& images) {
                              return torch::full({images.size(0), 7}, std::nan(""));
                            }),
                            data, {}, {.batch_size = 4, .top_k = {1, 6}});
  EXPECT_EQ(nan.top[0].sum, 0);
  EXPECT_TRUE(std::isnan(nan.loss.value()));
}

TEST(EvaluateTest, ANanIsNeverTheBestAndOneRuleDecidesAllFigures) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 7);  // each class has one sample
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const auto table = torch::tensor({kNan, kNan, kNan, kNan,    kNan, kNan, kNan,  // all NaN: none
                                    kNan, 2.F,  1.F,  0.F,     0.F,  0.F,  0.F,   // best: 1
                                    3.F,  0.F,  kNan, 0.F,     0.F,  0.F,  0.F,   // best: 0
                                    kNan, kNan, kNan, kLowest, kNan, kNan, kNan,  // best: 3
                                    5.F,  kNan, kNan, kNan,    5.F,  kNan, kNan,  // a tie: 0
                                    kNan, kNan, kNan, kNan,    kNan, kNan, kNan,  // all NaN: none
                                    0.F,  0.F,  0.F,  0.F,     0.F,  kNan, 1.F})  // best: 6
                         .view({7, 7});
  const Predict predict = [&](const torch::Tensor& images) {
    return table.index({levels_of(images)});
  };
  const auto found = evaluate(predict, data, {}, {.batch_size = 3, .top_k = {1, 2, 7, 100}});
  EXPECT_EQ(found.top[0].sum, 3);
  EXPECT_EQ(found.top[0].sum, found.confusion.trace().item<std::int64_t>());
  EXPECT_EQ(found.top[0].sum, exact_accuracy(predict, data, {}, {.batch_size = 3}).sum);
  EXPECT_EQ(found.top[1].sum, 4) << "the tie";
  EXPECT_EQ(found.top[2].sum, 4);
  EXPECT_EQ(found.top[3].sum, 4) << "a label whose score is NaN counts for no k";
  EXPECT_EQ(found.confusion[2][0].item<std::int64_t>(), 1);
  EXPECT_EQ(found.confusion[4][0].item<std::int64_t>(), 1);
  EXPECT_EQ(found.confusion.sum().item<std::int64_t>(), 5);
  EXPECT_TRUE(found.undecided.equal(torch::tensor({1, 0, 0, 0, 0, 1, 0}, torch::kInt64)));
  EXPECT_EQ(found.of_class(0).sum, 0);
  EXPECT_EQ(found.of_class(0).count, 1);
  EXPECT_EQ(found.of_class(3).value(), 1.0);
}

TEST(EvaluateTest, ASignalDuringTheLastBatchIsHeard) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 7);
  StopGuard guard({.signals = {SIGUSR1}});
  const auto group = init_process_group({.guard = &guard});
  const Predict predict = [](const torch::Tensor& images) {
    ::raise(SIGUSR1);
    return torch::zeros({images.size(0), 7});
  };
  EXPECT_EQ(test::error_code([&] { exact_accuracy(predict, data, group); }), ErrorCode::kCancelled);
  EXPECT_EQ(guard.exit_code(), 128 + SIGUSR1);
}

TEST(EvaluateTest, WhateverIsMeasuredIsAveragedExactly) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 23);
  const auto means = exact_means(
      [](const torch::Tensor& images, const torch::Tensor& labels) {
        EXPECT_EQ(images.size(0), labels.size(0));
        const auto levels = levels_of(images);
        return torch::stack({levels.to(torch::kFloat), labels.to(torch::kFloat) * 1e30F}, 1);
      },
      data, {}, {.batch_size = 5});
  ASSERT_EQ(means.size(), 2u);
  EXPECT_EQ(means[0].value(), 11);
  EXPECT_EQ(means[0].count, 23);
  const auto one =
      exact_means([](const torch::Tensor&, const torch::Tensor& labels) { return labels; }, data,
                  {}, {.batch_size = 5});
  EXPECT_EQ(one.at(0).sum, 3 * 21 + 1);
  EXPECT_THAT(error_text([&] {
                exact_means(
                    [](const torch::Tensor&, const torch::Tensor&) { return torch::ones({2}); },
                    data, {}, {.batch_size = 5});
              }),
              HasSubstr("row of values"));
  std::int64_t figures = 1;
  EXPECT_THAT(error_text([&] {
                exact_means(
                    [&](const torch::Tensor&, const torch::Tensor&) {
                      return torch::ones({5, figures++});
                    },
                    data, {}, {.batch_size = 5});
              }),
              HasSubstr("different lengths: 1 values, then 2"));
}

TEST(EvaluateTest, WhatCannotBeIsNamed) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 7);
  const Predict three = [](const torch::Tensor& images) {
    return torch::zeros({images.size(0), 3});
  };
  EXPECT_THAT(error_text([&] { evaluate(three, data, {}); }),
              testing::AllOf(HasSubstr("not a class"), HasSubstr("sample 3, label 3"),
                             HasSubstr("[0, 3)")));
  EXPECT_EQ(exact_accuracy(three, data, {}).sum, 1);
  EXPECT_THAT(error_text([&] { evaluate(three, data, {}, {.top_k = {0}}); }), HasSubstr("top_k"));
}

TEST(ExactMeanTest, IsTheSameInAnyOrder) {
  std::mt19937_64 random(test::random_seed());
  torch::manual_seed(1);
  const auto values = torch::randn({1000}, torch::kFloat) * torch::exp(10 * torch::randn({1000}));
  ExactMean whole;
  whole.add(values);
  const Mean expected = whole.reduce({});
  EXPECT_EQ(expected.count, 1000);
  for (int i = 0; i < 10; ++i) {
    ExactMean parts;
    const auto shuffled = values.index({torch::randperm(1000)});
    parts.add(shuffled.narrow(0, 0, 300));
    for (int at = 300; at < 1000; ++at) parts.add(shuffled[at].item<double>());
    EXPECT_EQ(parts.reduce({}).sum, expected.sum);
  }
  ExactMean integers;
  integers.add(torch::arange(5));
  integers.add(torch::tensor(true));
  EXPECT_EQ(integers.reduce({}).sum, 11);
}

}  // namespace
}  // namespace shardwise::libtorch
