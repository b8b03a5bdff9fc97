#include "shardwise/libtorch/image_loader.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <atomic>
#include <set>

#include "shardwise/libtorch/data_loader.h"
#include "shardwise/libtorch/data_parallel.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise::libtorch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Makes samples: sample i has an 8x6 image of level i and the label i % 7. The images of `broken`
/// are invalid.
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
  TorchSampler sampler(ChunkedSampler(data, {.seed = 3, .chunk_size = 5, .window = 1}));
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
    TorchSampler sampler{*make_sampler(data, {.kind = Sequential{}})};
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
    TorchSampler sampler{*make_sampler(size, {.kind = Sequential{}})};
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
  const SampleSet samples = SampleSet(100).with_fingerprint(fingerprint);
  const ChunkedSampler order(samples, {.seed = 9, .chunk_size = 8});
  TorchSampler first(order);
  first.set_epoch(2);
  first.reset();
  first.next(30);
  torch::serialize::OutputArchive out;
  first.save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  TorchSampler second(order);
  second.load(in);
  second.set_epoch(second.epoch());  // a loop over epochs calls this, too
  second.reset();
  EXPECT_EQ(second.epoch(), 2u);
  EXPECT_EQ(second.position(), 0u) << "it counts from where it resumed";
  EXPECT_EQ(second.size(), 70u);
  EXPECT_EQ(*first.next(70), *second.next(70));
  second.reset();
  EXPECT_EQ(second.position(), 0u);

  TorchSampler other(ChunkedSampler(samples, {.seed = 10, .chunk_size = 8}));
  EXPECT_THAT(test::error_text([&] { other.load(in); }), HasSubstr("seed"));
}

TEST(TorchSamplerTest, AnotherSizeIsRefused) {
  TorchSampler sampler{*make_sampler(10, {.kind = Sequential{}})};
  EXPECT_NO_THROW(sampler.reset(10));
  EXPECT_EQ(test::error_code([&] { sampler.reset(11); }), ErrorCode::kInvalidArgument);
}

// ------------------------------------------------------------------------------------ ImageLoader

std::atomic<int> loader_scopes{0};
std::atomic<int> sampler_scopes{0};

std::unique_ptr<at::ObserverContext> see_scope(const at::RecordFunction& scope) {
  if (std::string(scope.name()) == "shardwise::ImageLoader::next") ++loader_scopes;
  if (std::string(scope.name()) == "shardwise::TorchSampler::next") ++sampler_scopes;
  return nullptr;
}

TEST(ImageLoaderTest, ProfilersSeeWhereItWaits) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 10);
  ImageLoader loader(data, {}, {.batch_size = 5});
  TorchSampler sampler(ChunkedSampler(data, {}));
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(see_scope).scopes({at::RecordScope::USER_SCOPE}));
  while (loader.next()) {
  }
  sampler.next(4);
  at::removeCallback(handle);
  EXPECT_EQ(loader_scopes, 3) << "two batches, and the end";
  EXPECT_EQ(sampler_scopes, 1);
  EXPECT_EQ(loader.loader().stats().samples, 10u);
  EXPECT_EQ(loader.loader().stats().batches, 2u);
}

TEST(ImageLoaderTest, BatchesHaveTheSamplesImagesAndLabels) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 23);
  ImageLoader loader(data, {},
                     {.order = {.kind = Chunked{.chunk_size = 4}}, .batch_size = 5, .threads = 3});
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

TEST(ImageLoaderTest, FieldsThatDoNotFitAreErrorsThatSayWhatToSet) {
  const test::TempDir dir;
  const auto data = test::make_dataset(
      dir, "odd",
      {{{"png", test::solid_png(4, 4, 1)}, {"cls", "1"}},
       {{"png", test::solid_png(5, 4, 1)}, {"cls", "1"}},
       {{"a.png", test::solid_png(4, 4, 1)}, {"b.png", test::solid_png(4, 4, 2)}, {"cls", "1"}},
       {{"txt", "no image"}, {"cls", "1"}},
       {{"png", test::solid_png(4, 4, 1)}}});
  const auto first_of = [&](std::uint64_t sample, ImageLoader::Options options) {
    options.order.kind = Sequential{};
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
  ImageLoader::Options options;
  options.transform.type = ImageTransform::Type::kUint16;
  EXPECT_THAT(test::error_text([&] { ImageLoader(data, {}, options); }),
              HasSubstr("no tensors of uint16"));
  EXPECT_THAT(test::error_text([&] { ImageLoader::validate(data, options, 2); }),
              HasSubstr("no tensors of uint16"));
  options = {};
  options.batch_size = 2;
  EXPECT_THAT(test::error_text([&] { first_of(0, options); }),
              AllOf(HasSubstr("differ in size"), HasSubstr("4x5 (HxW)"), HasSubstr("set resize")));
  options.resize = {3, 3};
  EXPECT_EQ(first_of(0, options)->images.sizes(), (std::vector<std::int64_t>{2, 3, 3, 3}));
  options.batch_size = 1;
  EXPECT_THAT(test::error_text([&] { first_of(2, options); }),
              AllOf(HasSubstr("several images"), HasSubstr("(image_field), one of: a.png, b.png")));
  EXPECT_THAT(test::error_text([&] { first_of(3, options); }), HasSubstr("name of an image"));
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
  EXPECT_EQ(test::error_code(
                [&] { ImageLoader(data, {}, {.order = {.kind = Chunked{.chunk_size = 0}}}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { ImageLoader::validate(data, {.order = {.streams = 3}}, 2); }),
            ErrorCode::kInvalidArgument);
}

TEST(ImageLoaderTest, ATokenOfAnotherOrderOrDataSetIsRefused) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 30);
  ImageLoader loader(data, {}, {.order = {.seed = 4}, .batch_size = 5});
  loader.next();
  const auto token = loader.loader().state();
  ImageLoader other(data, {}, {.order = {.seed = 5}, .batch_size = 5});
  EXPECT_THAT(test::error_text([&] { other.loader().restore(token); }), HasSubstr("seed"));
  EXPECT_EQ(other.loader().steps_left(), 6u);
  auto foreign = token;
  foreign.fingerprint.low ^= 1;
  EXPECT_EQ(test::error_code([&] { loader.loader().restore(foreign); }), ErrorCode::kMismatch);
  auto unaudited = token;
  unaudited.audit.reset();
  EXPECT_THAT(test::error_text([&] { loader.loader().restore(unaudited); }),
              HasSubstr("the loader's state()"));
}

TEST(ImageLoaderTest, ATokenWhoseProofCannotBeRightIsRefused) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 30);
  ImageLoader loader(data, {}, {.batch_size = 5});
  for (int i = 0; i < 3; ++i) loader.next();
  auto token = loader.loader().state();
  ASSERT_EQ(token.audit->count, 15u);
  token.audit->count = 14;
  EXPECT_THAT(test::error_text([&] { loader.loader().restore(token); }),
              AllOf(HasSubstr("14 delivered"), HasSubstr("15 were due"),
                    HasSubstr("epoch 0, position 15")));
  // At the very end of an epoch, restore() checks the whole proof.
  auto end = token;
  end.position = 30;
  end.audit = EpochAudit::Sum{};
  EXPECT_EQ(test::error_code([&] { loader.loader().restore(end); }), ErrorCode::kMismatch);
  end.audit->count = 30;
  EXPECT_EQ(test::error_code([&] { loader.loader().restore(end); }), ErrorCode::kNotExact);
  end.audit = EpochAudit::Sum::of_range(0, 30, data.fingerprint());
  loader.loader().restore(end);
  EXPECT_EQ(loader.epoch().number(), 1u);
}

TEST(ImageLoaderTest, ASecondWalkThroughAnEpochSaysWhatToCall) {
  const test::TempDir dir;
  const auto data = make_levels(dir, 12);
  ImageLoader loader(data, {}, {.batch_size = 5});
  for (auto& batch : loader.epoch()) static_cast<void>(batch);
  EXPECT_THAT(test::error_text([&] { loader.epoch().begin(); }),
              AllOf(HasSubstr("epoch 0"), HasSubstr("set_epoch(1)")));
  loader.loader().set_epoch(0);
  EXPECT_NO_THROW(loader.epoch().begin());
}

}  // namespace
}  // namespace shardwise::libtorch
