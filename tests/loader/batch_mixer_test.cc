#include <cmath>

#include "shardwise/loader/loader.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Dataset make_squares(const test::TempDir& dir, int count) {
  std::vector<test::Fields> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back({{"png", test::encode_png(test::test_picture(8, 6, 1u + unsigned(i)))}});
  }
  return test::make_dataset(dir, "squares", samples, 8);
}

Loader::Options options_of(std::optional<Loader::Mix> mix,
                           ImageTransform::Layout layout = ImageTransform::Layout::kChannelsFirst,
                           ImageTransform::Type type = ImageTransform::Type::kUint8) {
  return {.columns = {columns::image("png", {.type = type, .layout = layout})},
          .order = {.seed = 5},
          .batch_size = 4,
          .mix = std::move(mix),
          .threads = 0};
}

std::vector<Batch> batches_of(const Dataset& data, const Loader::Options& options,
                              std::uint64_t epoch = 0) {
  Loader loader(data, options);
  loader.set_epoch(epoch);
  std::vector<Batch> batches;
  while (auto batch = loader.next()) batches.push_back(*std::move(batch));
  EXPECT_THAT(loader.prove(), AllOf(HasSubstr("each exactly once"), HasSubstr(": proven")));
  return batches;
}

std::string text_of(const Batch& batch) {
  std::string text;
  for (const Batch::Array& array : batch.arrays()) {
    text += array.name();
    text.append(reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size());
  }
  return text;
}

TEST(BatchMixerTest, MixupMixesEachImageWithTheOneBefore) {
  const test::TempDir dir;
  const Dataset data = make_squares(dir, 18);
  const auto plain = batches_of(data, options_of({}));
  const auto mixed = batches_of(data, options_of(Loader::Mix{.column = "png", .mixup_alpha = 1}));
  ASSERT_EQ(plain.size(), mixed.size());
  std::set<float> lambdas;
  for (std::size_t b = 0; b < plain.size(); ++b) {
    const std::size_t n = plain[b].size();
    const auto lambda = mixed[b]["png_lambda"].values<float>();
    const auto partner = mixed[b]["png_partner"].values<std::int64_t>();
    ASSERT_EQ(lambda.size(), n);
    ASSERT_EQ(partner.size(), n);
    lambdas.insert(lambda[0]);
    const auto from = plain[b]["png"].values<std::uint8_t>();
    const auto to = mixed[b]["png"].values<std::uint8_t>();
    const std::size_t size = from.size() / n;
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(lambda[i], lambda[0]);
      EXPECT_EQ(partner[i], std::int64_t(i == 0 ? n - 1 : i - 1));
      for (std::size_t k = 0; k < size; ++k) {
        const double x = from[i * size + k];
        const double y = from[std::size_t(partner[i]) * size + k];
        EXPECT_NEAR(to[i * size + k], double(lambda[i]) * x + (1 - double(lambda[i])) * y, 0.51);
      }
    }
  }
  EXPECT_EQ(lambdas.size(), plain.size()) << "each batch has a draw of its own";
}

TEST(BatchMixerTest, CutmixTakesABoxFromTheOneBefore) {
  const test::TempDir dir;
  const Dataset data = make_squares(dir, 18);
  for (const auto layout :
       {ImageTransform::Layout::kChannelsFirst, ImageTransform::Layout::kChannelsLast}) {
    for (const auto type : {ImageTransform::Type::kUint8, ImageTransform::Type::kFloat16}) {
      const auto plain = batches_of(data, options_of({}, layout, type));
      const auto mixed = batches_of(
          data, options_of(Loader::Mix{.column = "png", .cutmix_alpha = 1}, layout, type));
      std::size_t num_cut = 0;
      for (std::size_t b = 0; b < plain.size(); ++b) {
        const std::size_t n = plain[b].size();
        const float lambda = mixed[b]["png_lambda"].values<float>()[0];
        const std::size_t value_bytes = size_of(plain[b]["png"].dtype());
        for (std::size_t i = 0; i < n; ++i) {
          const auto own = plain[b]["png"].bytes(i);
          const auto other = plain[b]["png"].bytes(i == 0 ? n - 1 : i - 1);
          const auto to = mixed[b]["png"].bytes(i);
          std::size_t at_most = 0;  // limit of values that can come from the other image
          std::size_t at_least = 0;
          for (std::size_t k = 0; k < to.size(); k += value_bytes) {
            const auto same = [&](std::span<const std::byte> with) {
              return std::equal(&to[k], &to[k] + value_bytes, &with[k]);
            };
            ASSERT_TRUE(same(own) || same(other));
            at_least += !same(own);
            at_most += same(other);
          }
          const double part = (1 - double(lambda)) * 8 * 6 * 3;
          EXPECT_LE(double(at_least), part + 1e-3);
          EXPECT_GE(double(at_most), part - 1e-3);
          num_cut += at_least > 0;
        }
      }
      EXPECT_GT(num_cut, 0u);
    }
  }
}

TEST(BatchMixerTest, IsTheSameForAnyThreadsAndAfterAResume) {
  const test::TempDir dir;
  const Dataset data = make_squares(dir, 18);
  Loader::Options options = options_of(
      Loader::Mix{.column = "png", .mixup_alpha = 0.3, .cutmix_alpha = 1, .probability = 0.7});
  std::vector<std::string> expected;
  for (const Batch& batch : batches_of(data, options, 1)) expected.push_back(text_of(batch));
  for (const unsigned threads : {1u, 4u}) {
    options.threads = threads;
    std::vector<std::string> texts;
    for (const Batch& batch : batches_of(data, options, 1)) texts.push_back(text_of(batch));
    EXPECT_EQ(texts, expected);
  }
  Loader first(data, options);
  first.set_epoch(1);
  first.next();
  first.next();
  Loader rest(data, options);
  rest.restore(first.state());
  for (std::size_t b = 2; b < expected.size(); ++b) EXPECT_EQ(text_of(*rest.next()), expected[b]);
}

TEST(BatchMixerTest, ABatchWhoseFirstSampleIsBadIsMixedAsOneThatDoesWithoutIt) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 12; ++i) {
    samples.push_back({{"png", test::encode_png(test::test_picture(8, 6, 1u + unsigned(i)))},
                       {"txt", std::string(std::size_t(i), 'x')},
                       {"cls", i % 4 == 0 ? "?" : "1"}});
  }
  const Dataset data = test::make_dataset(dir, "some-bad", samples);
  Loader::Options options = options_of(Loader::Mix{.column = "png", .mixup_alpha = 1});
  options.columns.push_back(columns::integer("cls"));
  options.order.kind = Sequential{};
  options.by_length = Loader::ByLength{.field = "txt", .window = 12};
  options.max_bad = 3;
  const auto found = batches_of(data, options);
  // Leave the bad samples out from the start, as a resumed run does.
  for (const std::uint64_t bad : {0, 4, 8}) options.order.skip.add_sample(bad);
  const auto known = batches_of(data, options);
  ASSERT_EQ(found.size(), known.size());
  for (std::size_t b = 0; b < found.size(); ++b) EXPECT_EQ(text_of(found[b]), text_of(known[b]));
}

// Version 1 of docs/formats/transforms.md (Batches). These numbers must never change.
TEST(BatchMixerTest, DrawsAsThePageSays) {
  const test::TempDir dir;
  const Dataset data = make_squares(dir, 40);
  std::string lambdas;
  for (const Batch& batch : batches_of(
           data,
           options_of(Loader::Mix{
               .column = "png", .mixup_alpha = 0.4, .cutmix_alpha = 1, .probability = 0.8}))) {
    lambdas += std::to_string(batch["png_lambda"].values<float>()[0]) + " ";
  }
  EXPECT_EQ(
      lambdas,
      "1.000000 0.958333 0.967920 0.750000 1.000000 0.288466 0.981963 1.000000 0.833333 0.875000 ");
}

TEST(BatchMixerTest, ABatchThatIsNotMixedHasLambdaOne) {
  const test::TempDir dir;
  const Dataset data = make_squares(dir, 9);
  const auto plain = batches_of(data, options_of({}));
  const auto mixed = batches_of(
      data, options_of(Loader::Mix{.column = "png", .mixup_alpha = 1, .probability = 0}));
  for (std::size_t b = 0; b < plain.size(); ++b) {
    EXPECT_TRUE(std::ranges::equal(plain[b]["png"].bytes(), mixed[b]["png"].bytes()));
    for (const float lambda : mixed[b]["png_lambda"].values<float>()) EXPECT_EQ(lambda, 1);
  }
}

TEST(BatchMixerTest, WhatCannotBeMixedIsRefused) {
  const test::TempDir dir;
  const Dataset data = make_squares(dir, 4);
  const auto text = [&](const Loader::Mix& mix, ImageTransform::Type type) {
    return test::error_text([&] {
      Loader loader(data, options_of(mix, ImageTransform::Layout::kChannelsFirst, type));
    });
  };
  const auto uint8 = ImageTransform::Type::kUint8;
  EXPECT_THAT(text({.column = "jpg", .mixup_alpha = 1}, uint8),
              AllOf(HasSubstr("not a column of images"), HasSubstr("'jpg'")));
  EXPECT_THAT(test::error_text([&] {
                Loader::Options options =
                    options_of(Loader::Mix{.column = "png", .mixup_alpha = 1});
                options.columns.push_back(columns::key("png_lambda"));
                Loader loader(data, options);
              }),
              AllOf(HasSubstr("two columns"), HasSubstr("same name: 'png_lambda'")));
  EXPECT_THAT(text({.column = "png"}, uint8), HasSubstr("mix does nothing"));
  EXPECT_THAT(text({.column = "png", .mixup_alpha = -1}, uint8),
              AllOf(HasSubstr("mix.mixup_alpha"), HasSubstr("out of range: -1")));
  EXPECT_THAT(text({.column = "png", .cutmix_alpha = std::nan("")}, uint8),
              AllOf(HasSubstr("mix.cutmix_alpha"), HasSubstr("out of range: nan")));
  EXPECT_THAT(text({.column = "png", .mixup_alpha = 1, .probability = 2}, uint8),
              HasSubstr("mix.probability is out of range"));
  EXPECT_THAT(text({.column = "png", .mixup_alpha = 1}, ImageTransform::Type::kFloat16),
              AllOf(HasSubstr("mixup needs uint8 or float32"), HasSubstr("'png' is float16")));
}

}  // namespace
}  // namespace shardwise
