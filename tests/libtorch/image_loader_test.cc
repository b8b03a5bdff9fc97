#include "shardwise/libtorch/image_loader.h"

#include <torch/torch.h>

#include <set>

#include "libtorch/support/dataset.h"
#include "libtorch/support/images.h"
#include "shardwise/libtorch/data_loader.h"
#include "shardwise/libtorch/data_parallel.h"
#include "shardwise/libtorch/evaluate.h"

namespace shardwise::libtorch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Sample i has an 8x6 image of level i and the label i % 7; `broken` has bytes that are no image.
Dataset make_levels(const test::TempDir& dir, std::size_t count,
                    std::size_t broken = ~std::size_t{0}) {
  std::vector<test::Fields> samples;
  for (std::size_t i = 0; i < count; ++i) {
    samples.push_back(
        {{"png", i == broken ? "broken" : test::solid_png(8, 6, static_cast<int>(i % 250))},
         {"cls", std::to_string(i % 7)}});
  }
  return test::make_dataset(dir, "levels", samples, 10);
}

// ------------------------------------------------------------------------------------ torch::data

TEST(TorchDataTest, TorchsOwnLoaderSeesEverySampleOnceWithSeveralWorkers) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 37);
  TorchDataset dataset(data, [](const Sample& sample) {
    return torch::data::Example<>(decode_image(sample, "png"),
                                  torch::tensor(sample.integer("cls")));
  });
  EXPECT_EQ(*dataset.size(), 37u);
  TorchSampler sampler(ChunkedSampler(data, {.seed = 3, .chunk_size = 5}), data.fingerprint());
  std::vector<std::vector<std::int64_t>> orders;
  for (const std::size_t workers : {0u, 1u, 4u}) {
    auto loader = torch::data::make_data_loader(
        dataset, sampler, torch::data::DataLoaderOptions().batch_size(4).workers(workers));
    for (const std::uint64_t epoch : {0u, 1u}) {
      sampler.set_epoch(epoch);
      orders.emplace_back();
      for (auto& batch : *loader) {
        EXPECT_LE(batch.size(), 4u);
        for (const auto& example : batch) {
          const auto level = example.data[0][0][0].item<std::int64_t>();
          EXPECT_EQ(example.target.item<std::int64_t>(), level % 7);
          orders.back().push_back(level);
        }
      }
      const std::set<std::int64_t> once(orders.back().begin(), orders.back().end());
      EXPECT_EQ(orders.back().size(), 37u);
      EXPECT_EQ(once.size(), 37u);
    }
  }
  EXPECT_EQ(orders[0], orders[2]);
  EXPECT_EQ(orders[0], orders[4]);
  EXPECT_EQ(orders[1], orders[3]);
  EXPECT_NE(orders[0], orders[1]);
}

TEST(TorchDataTest, AnErrorInAWorkerNamesShardAndKey) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 12, 11);
  const auto message = [&](auto decode) {
    TorchDataset dataset(data, decode);
    TorchSampler sampler(SequentialSampler(data), data.fingerprint());
    auto loader = torch::data::make_data_loader(
        dataset, sampler, torch::data::DataLoaderOptions().batch_size(5).workers(2));
    try {
      for (auto& batch : *loader) static_cast<void>(batch);
    } catch (const torch::data::WorkerException& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const auto names_it = AllOf(HasSubstr("levels-1.tar"), HasSubstr("s00011"));
  EXPECT_THAT(message([](const Sample& sample) { return decode_image(sample, "png"); }), names_it);
  EXPECT_THAT(message([](const Sample& sample) {
                if (sample.index() == 11) throw std::runtime_error("mine");
                return 0;
              }),
              AllOf(names_it, HasSubstr("mine")));
  EXPECT_THAT(message([](const Sample& sample) {
                if (sample.index() == 11) throw 5;
                return 0;
              }),
              names_it);
}

TEST(TorchSamplerTest, TheEndIsNulloptAndNeverAnEmptyBatch) {
  for (const std::uint64_t size : {0u, 1u, 4u, 5u, 8u}) {
    TorchSampler sampler{SequentialSampler(size)};
    std::size_t total = 0;
    while (auto batch = sampler.next(4)) {
      EXPECT_FALSE(batch->empty());
      EXPECT_LE(batch->size(), 4u);
      total += batch->size();
    }
    EXPECT_EQ(total, size);
    EXPECT_FALSE(sampler.next(4).has_value());
  }
}

TEST(TorchSamplerTest, SavedAndLoadedItGoesOnWhereItWasAlsoThroughTheLoadersReset) {
  const Hash128 fingerprint{1, 2};
  const ChunkedSampler order(100, {.seed = 9, .chunk_size = 8});
  TorchSampler first(order, fingerprint);
  first.set_epoch(2);
  first.reset();
  first.next(30);
  torch::serialize::OutputArchive out;
  first.save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  TorchSampler second(order, fingerprint);
  second.load(in);
  second.set_epoch(second.epoch());  // as a loop over epochs does
  second.reset();
  EXPECT_EQ(second.epoch(), 2u);
  EXPECT_EQ(second.position(), 30u);
  EXPECT_EQ(*first.next(70), *second.next(70));
  second.reset();
  EXPECT_EQ(second.position(), 0u);

  TorchSampler other(ChunkedSampler(100, {.seed = 10, .chunk_size = 8}), fingerprint);
  EXPECT_THAT(test::error_text([&] { other.load(in); }), HasSubstr("seed"));
}

TEST(TorchSamplerTest, AnotherSizeIsRefused) {
  TorchSampler sampler{SequentialSampler(10)};
  EXPECT_NO_THROW(sampler.reset(10));
  EXPECT_EQ(test::error_code([&] { sampler.reset(11); }), ErrorCode::kInvalidArgument);
}

// ------------------------------------------------------------------------------------ ImageLoader

TEST(ImageLoaderTest, BatchesHaveTheSamplesImagesAndLabels) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 23);
  ImageLoader loader(data, {}, {.batch_size = 5, .threads = 3, .chunk_size = 4});
  std::set<std::int64_t> seen;
  std::set<std::int64_t> positions;
  std::uint64_t steps = 0;
  auto epoch = loader.epoch();
  for (auto& batch : epoch) {
    const std::int64_t size = steps < 4 ? 5 : 3;
    EXPECT_EQ(batch.size(), size);
    EXPECT_EQ(batch.images.sizes(), (std::vector<std::int64_t>{size, 3, 6, 8}));
    EXPECT_EQ(batch.images.dtype(), torch::kUInt8);
    EXPECT_TRUE(batch.images.is_contiguous());
    for (const auto& numbers : {batch.labels, batch.samples, batch.positions}) {
      EXPECT_EQ(numbers.sizes(), (std::vector<std::int64_t>{size}));
      EXPECT_EQ(numbers.dtype(), torch::kInt64);
    }
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const auto sample = batch.samples[i].item<std::int64_t>();
      EXPECT_TRUE(batch.images[i].eq(sample).all().item<bool>());
      EXPECT_EQ(batch.labels[i].item<std::int64_t>(), sample % 7);
      seen.insert(sample);
      positions.insert(batch.positions[i].item<std::int64_t>());
    }
    ++steps;
  }
  EXPECT_EQ(steps, epoch.steps());
  EXPECT_EQ(seen.size(), 23u);
  EXPECT_EQ(positions.size(), 23u);
  EXPECT_EQ(*positions.rbegin(), 22);
  EXPECT_EQ(epoch.prove(), "epoch 0: 23 samples, each exactly once: proven");
}

TEST(ImageLoaderTest, TheNumberOfThreadsChangesNothing) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 40);
  std::vector<torch::Tensor> orders;
  for (const unsigned threads : {0u, 1u, 4u}) {
    ImageLoader loader(data, {},
                       {.batch_size = 3, .threads = threads, .resize = {5, 5}, .seed = 2});
    std::vector<torch::Tensor> parts;
    for (auto epoch : loader.epochs(3)) {
      for (auto& batch : epoch) {
        parts.push_back(torch::cat({batch.samples, batch.images.flatten().to(torch::kInt64)}));
      }
      epoch.prove();
    }
    orders.push_back(torch::cat(parts));
  }
  EXPECT_TRUE(orders[0].equal(orders[1]));
  EXPECT_TRUE(orders[0].equal(orders[2]));
}

TEST(ImageLoaderTest, LeavingEarlyEndsAtOnceAndTheEpochIsNotProven) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 60);
  ImageLoader loader(data, {}, {.batch_size = 2, .threads = 3});
  int taken = 0;
  auto epoch = loader.epoch();
  for (auto& batch : epoch) {
    static_cast<void>(batch);
    if (++taken == 4) break;
  }
  EXPECT_THAT(test::error_text([&] { epoch.prove(); }), HasSubstr("epoch 0"));
  EXPECT_EQ(test::error_code([&] { epoch.prove(); }), ErrorCode::kNotExact);
  // The next epoch is not affected, and the handle of the old one says so.
  loader.set_epoch(1);
  EXPECT_THAT(test::error_text([&] { epoch.prove(); }), HasSubstr("moved on"));
  for (auto& batch : loader.epoch()) static_cast<void>(batch);
  EXPECT_EQ(loader.epoch().prove(), "epoch 1: 60 samples, each exactly once: proven");
}

TEST(ImageLoaderTest, ABadImageIsThrownInItsPlaceAndTheRestStillComes) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 20, 9);
  for (const unsigned threads : {0u, 2u}) {
    ImageLoader loader(data, {},
                       {.batch_size = 4, .threads = threads, .sampler = SamplerKind::kSequential});
    EXPECT_EQ(loader.next()->samples[0].item<std::int64_t>(), 0);
    EXPECT_EQ(loader.next()->samples[0].item<std::int64_t>(), 4);
    EXPECT_THAT(test::error_text([&] { loader.next(); }),
                AllOf(HasSubstr("levels-0.tar"), HasSubstr("s00009"), HasSubstr("png")));
    EXPECT_EQ(loader.next()->samples[0].item<std::int64_t>(), 12);
    EXPECT_EQ(loader.next()->samples[0].item<std::int64_t>(), 16);
    EXPECT_FALSE(loader.next().has_value());
    EXPECT_EQ(test::error_code([&] { loader.epoch().prove(); }), ErrorCode::kNotExact);
  }
}

TEST(ImageLoaderTest, FieldsThatDoNotFitAreErrorsThatSayWhatToSet) {
  const test::TempDir dir;
  const auto data = test::make_dataset(
      dir, "odd",
      {{{"png", test::solid_png(4, 4, 1)}, {"cls", "1"}},
       {{"png", test::solid_png(5, 4, 1)}, {"cls", "1"}},
       {{"a.png", test::solid_png(4, 4, 1)}, {"b.png", test::solid_png(4, 4, 2)}, {"cls", "1"}},
       {{"txt", "no image"}, {"cls", "1"}},
       {{"png", test::solid_png(4, 4, 1)}}});
  const auto first_of = [&](std::uint64_t sample, ImageLoaderOptions options) {
    options.sampler = SamplerKind::kSequential;
    options.threads = 0;
    ImageLoader loader(data, {}, options);
    for (std::uint64_t i = 0; i < sample; ++i) {
      try {
        loader.next();
      } catch (const Error&) {
      }
    }
    return loader.next();
  };
  ImageLoaderOptions options;
  options.batch_size = 2;
  EXPECT_THAT(test::error_text([&] { first_of(0, options); }),
              AllOf(HasSubstr("differ in size"), HasSubstr("5 x 4"), HasSubstr("set resize")));
  options.resize = {3, 3};
  EXPECT_EQ(first_of(0, options)->images.sizes(), (std::vector<std::int64_t>{2, 3, 3, 3}));
  options.batch_size = 1;
  EXPECT_THAT(test::error_text([&] { first_of(2, options); }),
              AllOf(HasSubstr("several images"), HasSubstr("a.png, b.png, cls")));
  EXPECT_THAT(test::error_text([&] { first_of(3, options); }),
              HasSubstr("no field that is an image"));
  EXPECT_EQ(test::error_code([&] { first_of(4, options); }), ErrorCode::kNotFound);
  options.image_field = "jpg;b.png;a.png";
  EXPECT_TRUE(first_of(2, options)->images.eq(2).all().item<bool>());
  EXPECT_THAT(test::error_text([&] { first_of(0, options); }), HasSubstr("jpg;b.png;a.png"));
}

TEST(ImageLoaderTest, OptionsThatCannotBeMeantAreRefused) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 3);
  EXPECT_EQ(test::error_code([&] { ImageLoader(data, {}, {.batch_size = 0}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] {
              ImageLoader(data, {}, {.resize = {4, 0}});
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { ImageLoader(data, {}, {.chunk_size = 0}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { ImageLoader::check(data, {.streams = 3}, 2); }),
            ErrorCode::kInvalidArgument);
}

TEST(ImageLoaderTest, TheTokenCountsWhatWasHandedOutNotWhatWasMadeAhead) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 50);
  const auto rest = [&](ImageLoader& loader) {
    std::vector<std::int64_t> samples;
    while (auto batch = loader.next()) {
      for (std::int64_t i = 0; i < batch->size(); ++i) {
        samples.push_back(batch->samples[i].item<std::int64_t>());
      }
    }
    return samples;
  };
  for (std::uint64_t taken = 0; taken <= 10; ++taken) {
    ImageLoader first(data, {}, {.batch_size = 5, .threads = 2, .seed = 4});
    first.set_epoch(3);
    for (std::uint64_t i = 0; i < taken; ++i) first.next();
    const auto token = ResumeToken::from_text(first.state().to_text());
    ImageLoader second(data, {}, {.batch_size = 7, .threads = 1, .seed = 4});
    second.restore(token);
    if (taken == 10) {  // the end of an epoch goes on with the next
      EXPECT_EQ(second.epoch().number(), 4u);
      EXPECT_EQ(rest(second).size(), 50u);
    } else {
      EXPECT_EQ(second.epoch().number(), 3u);
      EXPECT_EQ(rest(second), rest(first)) << taken;
    }
    EXPECT_THAT(second.epoch().prove(), HasSubstr("each exactly once: proven"));
  }
}

TEST(ImageLoaderTest, ATokenOfAnotherOrderOrDataSetIsRefused) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 30);
  ImageLoader loader(data, {}, {.batch_size = 5, .seed = 4});
  loader.next();
  const auto token = loader.state();
  ImageLoader other(data, {}, {.batch_size = 5, .seed = 5});
  EXPECT_THAT(test::error_text([&] { other.restore(token); }), HasSubstr("seed"));
  EXPECT_EQ(other.steps_left(), 6u);
  auto foreign = token;
  foreign.fingerprint.low ^= 1;
  EXPECT_EQ(test::error_code([&] { loader.restore(foreign); }), ErrorCode::kMismatch);
  auto unaudited = token;
  unaudited.audit.reset();
  EXPECT_THAT(test::error_text([&] { loader.restore(unaudited); }),
              HasSubstr("ImageLoader::state()"));
}

TEST(ImageLoaderTest, AnEmptyDataSetHasEpochsWithoutSteps) {
  const test::TempDir dir;
  const auto data = test::make_dataset(dir, "none", {{}}, 1);
  ASSERT_EQ(data.size(), 0u);
  ImageLoader loader(data, {}, {.batch_size = 5});
  for (auto epoch : loader.epochs(2)) {
    for (auto& batch : epoch) static_cast<void>(batch), ADD_FAILURE();
    EXPECT_THAT(epoch.prove(), HasSubstr("0 samples"));
  }
}

// --------------------------------------------------------------------------------------- evaluate

struct LevelsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    EXPECT_FALSE(is_training());
    EXPECT_FALSE(torch::GradMode::is_enabled());
    const auto levels = images.select(1, 0).select(1, 0).select(1, 0).to(torch::kInt64);
    return torch::one_hot(levels.remainder(7), 7);
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
  EXPECT_EQ(wrong.sum, 4);  // the first class is taken: samples 0, 7, 14, 21
  EXPECT_EQ(test::error_code([&] {
              exact_accuracy(Predict([](const torch::Tensor&) {
                               return torch::zeros({1, 7});
                             }),
                             data, {});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(EvaluateTest, EarlyStopWaitsForItsPatience) {
  EarlyStop higher({}, {.patience = 2, .min_delta = 0.01});
  EXPECT_FALSE(higher.should_stop(0.5));
  EXPECT_FALSE(higher.should_stop(0.505));  // not enough
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

}  // namespace
}  // namespace shardwise::libtorch
