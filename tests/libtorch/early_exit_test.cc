// Programs that use an ImageLoader at random, and abandon it: whatever the loader was doing ends,
// no sample is repeated, and proofs succeed if and only if they should.
//
//     tools/test.sh --thorough -R libtorch_early_exit_test    many more programs
//     SHARDWISE_SEED=17 libtorch_early_exit_test              one program, in detail

#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "shardwise/libtorch/data_loader.h"
#include "shardwise/libtorch/image_loader.h"
#include "support/chain.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise::libtorch {
namespace {

constexpr std::int64_t kSamples = 53;
constexpr std::int64_t kBroken = 29;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15U + 1) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n));
  }
  bool percent(std::int64_t chance) { return below(100) < chance; }

 private:
  std::mt19937_64 engine_;
};

/// Makes samples: sample i has a 4x4 image of level i, and the label i. The image of kBroken is
/// invalid.
Dataset make_levels(const test::TempDir& dir) {
  std::vector<test::Fields> samples;
  for (int i = 0; i < kSamples; ++i) {
    samples.push_back(
        {{"png", i == kBroken ? "broken" : test::solid_png(4, 4, i)}, {"cls", std::to_string(i)}});
  }
  return test::make_dataset(dir, "levels", samples, 10);
}

/// The life of a run: several loaders one after another. Each may continue where the last one was
/// abandoned.
class Life {
 public:
  Life(const Dataset& data, std::uint64_t seed) : data_(data), dice_(seed) {
    options_.order.seed = seed;
  }

  void run() {
    for (std::int64_t loaders = 1 + dice_.below(3); loaders > 0; --loaders) {
      options_.batch_size = 1 + dice_.below(9);
      options_.threads = static_cast<unsigned>(dice_.below(4));
      options_.prefetch = static_cast<std::size_t>(dice_.below(5));
      options_.max_bad = dice_.percent(70) ? 1 : 0;
      ImageLoader loader(data_, {}, options_);
      if (dice_.percent(30)) loader.loader().start();
      if (token_ && dice_.percent(70)) {
        loader.loader().restore(*token_);
        seen_ = seen_at_token_;
        seen_at_restore_ = seen_;
      } else {
        token_.reset();
        seen_.clear();
        seen_at_restore_.reset();
      }
      use(loader);
      if (testing::Test::HasFailure()) return;
    }
    // Kept batches are still valid after their loader is destroyed.
    for (const auto& batch : kept_) expect_levels(batch);
  }

 private:
  void use(ImageLoader& loader) {
    std::thread stopper;
    bool may_be_stopped = false;
    for (std::int64_t actions = dice_.below(30); actions > 0; --actions) {
      try {
        const std::int64_t action = dice_.below(100);
        if (action < 80) {
          if (!take(loader)) end_epoch(loader);
        } else if (action < 88 && !may_be_stopped) {
          keep_token(loader);
        } else if (action < 92) {
          const auto epoch = static_cast<std::uint64_t>(dice_.below(4));
          // If an epoch was resumed and has not ended, set_epoch() returns to the point of the
          // resume.
          if (epoch != loader.loader().epoch_number() || loader.loader().has_ended())
            seen_at_restore_.reset();
          seen_ = seen_at_restore_.value_or(std::set<std::int64_t>());
          token_.reset();
          is_whole_ = true;
          if (stopper.joinable()) stopper.join();
          may_be_stopped = false;
          loader.loader().set_epoch(epoch);
        } else if (action < 95 && !stopper.joinable()) {
          stopper = std::thread([&loader] { loader.loader().stop(); });
          may_be_stopped = true;
        } else if (action < 98) {
          loader.loader().stats();
        } else {
          break;
        }
      } catch (const Cancelled&) {
        EXPECT_TRUE(may_be_stopped);
        break;
      } catch (const BadField&) {
        EXPECT_EQ(options_.max_bad, 0u);
        is_whole_ = false;
      }
    }
    if (stopper.joinable()) stopper.join();
  }

  bool take(ImageLoader& loader) {
    auto batch = loader.next();
    if (!batch) return false;
    for (std::int64_t i = 0; i < batch->size(); ++i) {
      const auto sample = batch->samples[i].item<std::int64_t>();
      EXPECT_TRUE(seen_.insert(sample).second) << sample << " came twice";
    }
    expect_levels(*batch);
    if (dice_.percent(10)) kept_.push_back(*batch);
    return true;
  }

  void end_epoch(ImageLoader& loader) {
    if (!loader.loader().has_ended() || !is_whole_) return;
    const std::string proof = loader.loader().prove();
    EXPECT_EQ(seen_.size(), kSamples - 1u) << proof;
    EXPECT_THAT(proof, testing::HasSubstr("1 excluded")) << "as the broken one has to be";
    loader.loader().set_epoch(loader.loader().epoch_number() + 1);
    seen_.clear();
    seen_at_restore_.reset();
    token_.reset();
  }

  void keep_token(ImageLoader& loader) {
    if (!is_whole_ || loader.loader().has_ended()) return;
    token_ = loader.loader().state();
    seen_at_token_ = seen_;
  }

  static void expect_levels(const ImageLoader::Batch& batch) {
    EXPECT_TRUE(
        batch.images.amax(torch::IntArrayRef({1, 2, 3})).eq(batch.samples).all().item<bool>());
    EXPECT_TRUE(batch.labels.equal(batch.samples));
  }

  const Dataset& data_;
  Dice dice_;
  ImageLoader::Options options_;
  std::optional<ResumeToken> token_;
  std::set<std::int64_t> seen_;  // samples delivered in this epoch
  std::set<std::int64_t> seen_at_token_;
  std::optional<std::set<std::int64_t>> seen_at_restore_;  // delivered before restore()
  bool is_whole_ = true;                                   // no batch of this epoch has failed
  std::vector<ImageLoader::Batch> kept_;
};

TEST(EarlyExitTest, WhereverALoaderIsLeftNothingHangsAndNothingComesTwice) {
  const test::TempDir dir;
  const Dataset data = make_levels(dir);
  test::for_each_seed(100, 2000, [&](std::uint64_t seed) { Life(data, seed).run(); });
}

TEST(EarlyExitTest, TorchsOwnLoaderIsLeftInTheMiddle) {
  const test::TempDir dir;
  const Dataset data = make_levels(dir);
  TorchDataset dataset(data, [](const Sample& sample) { return sample.integer("cls"); });
  test::for_each_seed(20, 200, [&](std::uint64_t seed) {
    Dice dice(seed);
    TorchSampler sampler(ChunkedSampler(data, {.seed = seed, .chunk_size = 5}));
    auto loader =
        torch::data::make_data_loader(dataset, sampler,
                                      torch::data::DataLoaderOptions()
                                          .batch_size(static_cast<std::size_t>(1 + dice.below(6)))
                                          .workers(static_cast<std::size_t>(dice.below(4))));
    std::set<std::int64_t> seen;
    std::int64_t left = dice.below(15);
    for (auto& batch : *loader) {
      for (const std::int64_t label : batch) EXPECT_TRUE(seen.insert(label).second);
      if (--left < 0) break;
    }
  });
}

}  // namespace
}  // namespace shardwise::libtorch
