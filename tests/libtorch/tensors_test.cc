#include "shardwise/libtorch/tensors.h"

#include <torch/torch.h>

#include "shardwise/libtorch/device_copier.h"
#include "shardwise/loader/loader.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise::libtorch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Makes samples: sample i has a 3x2 image of level i, "c" repeated i times as caption, and the
/// number i.
Dataset make_pairs(const test::TempDir& dir, std::size_t count) {
  std::vector<test::Fields> samples;
  for (std::size_t i = 0; i < count; ++i) {
    samples.push_back({{"png", test::solid_png(3, 2, static_cast<int>(i))},
                       {"txt", std::string(i, 'c')},
                       {"cls", std::to_string(i)}});
  }
  return test::make_dataset(dir, "pairs", samples);
}

Loader::Options of_pairs() {
  return {.columns = {columns::image("png"), columns::text("txt"), columns::integer("cls")},
          .order = {.kind = Sequential{}},
          .batch_size = 3};
}

struct Pairs {
  torch::Tensor images;
  torch::Tensor captions;
  torch::Tensor labels;
  int seen = 7;  // not an array of the batch
};
const Members<Pairs> kMembers = {
    {"png", &Pairs::images}, {"txt", &Pairs::captions}, {"cls", &Pairs::labels}};

void expect_first_pairs(const Pairs& pairs) {
  EXPECT_THAT(pairs.images.sizes(), ElementsAre(3, 3, 2, 3));
  EXPECT_TRUE(pairs.images[2].eq(2).all().item<bool>());
  EXPECT_THAT(pairs.captions.sizes(), ElementsAre(3)) << "0 + 1 + 2 characters";
  EXPECT_TRUE(pairs.labels.equal(torch::tensor({0, 1, 2}, torch::kInt64)));
  EXPECT_EQ(pairs.seen, 7);
}

TEST(TensorsTest, AStructOfYourOwnGetsTheColumnsThatItNames) {
  const test::TempDir dir;
  Loader loader(make_pairs(dir, 5), of_pairs());
  const auto batch = loader.next();
  const auto pairs = to_struct<Pairs>(*batch, kMembers);
  expect_first_pairs(pairs);
  EXPECT_EQ(pairs.images.data_ptr(), (*batch)["png"].memory().get()) << "nothing is copied";
  EXPECT_TRUE(offsets_tensor((*batch)["txt"]).equal(torch::tensor({0, 0, 1, 3}, torch::kInt64)));
  EXPECT_THAT(test::error_text([&] {
                to_struct<Pairs>(*batch, {{"jpg", &Pairs::images}});
              }),
              AllOf(HasSubstr("jpg"), HasSubstr("png")));
}

TEST(TensorsTest, TensorsOutliveBatchAndLoader) {
  const test::TempDir dir;
  Pairs pairs;
  {
    Loader loader(make_pairs(dir, 9), of_pairs());
    pairs = to_struct<Pairs>(*loader.next(), kMembers);
    while (loader.next()) continue;  // the next batches must not reuse this memory
  }
  expect_first_pairs(pairs);
}

TEST(DeviceCopierTest, ToTheCpuNothingIsCopied) {
  const test::TempDir dir;
  Loader loader(make_pairs(dir, 5), of_pairs());
  DeviceCopier copier(torch::kCPU);
  const auto batch = loader.next();
  const auto pairs = copier.copy<Pairs>(*batch, kMembers);
  expect_first_pairs(pairs);
  EXPECT_EQ(pairs.images.data_ptr(), (*batch)["png"].memory().get());
}

TEST(DeviceCopierTest, WhereThereIsNoGpuItIsSaid) {
  if (torch::cuda::is_available())
    GTEST_SKIP() << "needs a machine without a GPU; skipped because it has one";
  EXPECT_THAT(test::error_text([] { pinned_memory(); }), HasSubstr("sees none"));
  EXPECT_THAT(test::error_text([] { DeviceCopier(torch::kCUDA); }),
              AllOf(HasSubstr("cuda"), HasSubstr("use a LibTorch")));
  EXPECT_EQ(test::error_code([] { DeviceCopier(torch::Device("cuda:3")); }),
            ErrorCode::kUnsupported);
}

/// With a GPU, copies must have the exact bytes although the batches' memory is reused.
TEST(DeviceCopierTest, OnAGpuBatchesAreWhatTheyWere) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU; skipped because there is none";
  const test::TempDir dir;
  auto options = of_pairs();
  options.memory = pinned_memory();
  Loader loader(make_pairs(dir, 200), options);
  DeviceCopier copier(torch::kCUDA);
  std::vector<Pairs> copies;
  for (const Batch& batch : loader.epoch()) copies.push_back(copier.copy<Pairs>(batch, kMembers));
  std::int64_t next = 0;
  for (const Pairs& pairs : copies) {
    const torch::Tensor labels = pairs.labels.cpu();
    const torch::Tensor levels = pairs.images.cpu().amax(torch::IntArrayRef({1, 2, 3}));
    for (std::int64_t i = 0; i < labels.numel(); ++i, ++next) {
      EXPECT_EQ(labels[i].item<std::int64_t>(), next);
      EXPECT_EQ(levels[i].item<std::int64_t>(), next);
    }
  }
  EXPECT_EQ(next, 200);
}

}  // namespace
}  // namespace shardwise::libtorch
