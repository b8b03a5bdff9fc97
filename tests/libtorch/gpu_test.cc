// Tests the library with tensors on a GPU. Skipped if LibTorch finds no GPU.

#include <torch/torch.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "libtorch/store_group.h"
#include "shardwise/libtorch/advanced.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise::libtorch {
namespace {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU; skipped because there is none";
  }
};

/// Makes a group of several ranks that share one GPU. NCCL itself needs a GPU per rank.
ProcessGroup gpu_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  return adopt_process_group(c10::make_intrusive<StoreGroup>(store, rank, size, "nccl"));
}

torch::nn::Sequential make_model(torch::Device device, int rank) {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                              torch::nn::Linear(8, 3));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat).view_as(parameter);
    parameter.copy_((numbers * 1.7 + rank).cos() / 2);
  }
  model->to(device);
  return model;
}

/// Trains on three ranks with unequal numbers of samples; the last rank has none. Returns the
/// parameters.
std::vector<torch::Tensor> trained(torch::Device device) {
  const auto parts = torch::arange(48, torch::kFloat).view({12, 4}).sin().split_with_sizes({5, 7});
  std::mutex mutex;
  std::vector<torch::Tensor> weights;
  on_threads(3, [&](const auto& store, int rank) {
    const ProcessGroup group =
        device.is_cuda() ? gpu_group(store, rank, 3)
                         : adopt_process_group(c10::make_intrusive<StoreGroup>(store, rank, 3));
    auto model = make_model(device, rank);
    broadcast_parameters(*model, group);
    GradientAverager gradients(model->parameters());
    torch::optim::SGD optimizer(model->parameters(), 0.05);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      std::int64_t samples = 0;
      if (rank < 2) {
        const torch::Tensor inputs = parts[static_cast<std::size_t>(rank)].to(device);
        samples = inputs.size(0);
        const auto labels = torch::arange(samples, inputs.options().dtype(torch::kLong));
        torch::cross_entropy_loss(model->forward(inputs), labels.remainder(3), {},
                                  at::Reduction::Sum)
            .backward();
      }
      EXPECT_EQ(gradients.average(samples, group), 12);
      EXPECT_EQ(model->parameters()[0].grad().device().type(), device.type());
      optimizer.step();
    }
    average_buffers(*model, group);
    require_same_replicas(*model, group);
    const std::lock_guard lock(mutex);
    if (!weights.empty()) return;
    for (const auto& parameter : model->parameters()) weights.push_back(parameter.detach().cpu());
    for (const auto& buffer : model->buffers()) weights.push_back(buffer.detach().cpu());
  });
  return weights;
}

TEST_F(GpuTest, RanksTrainAsOnTheCpu) {
  const auto expected = trained(torch::kCPU);
  const auto weights = trained(torch::kCUDA);
  ASSERT_EQ(weights.size(), expected.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(torch::allclose(weights[i], expected[i], 1e-4, 1e-5)) << i;
  }
}

TEST_F(GpuTest, CollectivesAcceptTensorsOfEachDevice) {
  on_threads(2, [&](const auto& store, int rank) {
    const ProcessGroup group = gpu_group(store, rank, 2);
    EXPECT_EQ(group.all_reduce(std::int64_t{rank + 1}), 3);
    for (const auto device : {torch::kCPU, torch::kCUDA}) {
      for (const std::int64_t count : {3, 1000}) {
        const auto sum = torch::full({count}, rank + 1, torch::device(device));
        group.all_reduce(sum);
        EXPECT_EQ(sum.device().type(), device);
        EXPECT_TRUE(sum.eq(3).all().template item<bool>());
        const auto given =
            torch::full({count}, rank, torch::device(device).dtype(torch::kBFloat16));
        group.broadcast(given, 1);
        EXPECT_TRUE(given.eq(1).all().template item<bool>());
      }
    }
  });
}

c10d::GradBucket bucket_of(const torch::Tensor& buffer) {
  const auto count = static_cast<std::size_t>(buffer.numel());
#if TORCH_VERSION_MAJOR >= 2
  return c10d::GradBucket(0, 1, buffer, {0}, {count}, {buffer.sizes()}, {buffer}, {});
#else
  return c10d::GradBucket(0, 1, buffer, {0}, {count}, {buffer.sizes()}, {buffer});
#endif
}

TEST_F(GpuTest, BucketsOfTheReducerAreAveragedOnTheGpu) {
  on_threads(2, [&](const auto& store, int rank) {
    const ProcessGroup group = gpu_group(store, rank, 2);
    const auto hook = reducer_hook(group, [&] { return std::int64_t{rank == 0 ? 3 : 5}; });
    for (const auto type : {torch::kFloat, torch::kBFloat16}) {
      const auto buffer =
          torch::full({1000}, rank == 0 ? 6 : 10, torch::device(torch::kCUDA).dtype(type));
      c10d::GradBucket bucket = bucket_of(buffer);
      const auto future = hook->runHook(bucket);
      future->wait();
      const torch::Tensor result = hook->parseHookResult(future->value());
      EXPECT_TRUE(result.is_cuda());
      EXPECT_EQ(result.scalar_type(), type);
      EXPECT_TRUE(result.eq(2).all().template item<bool>());
    }
  });
}

/// Trains a model on the GPU for some steps.
void take_steps(torch::nn::Sequential& model, torch::optim::Optimizer& optimizer, int first,
                int end) {
  for (int step = first; step < end; ++step) {
    optimizer.zero_grad();
    const auto inputs = torch::arange(32, torch::kFloat).add(step).sin().view({8, 4}).cuda();
    model->forward(inputs).square().sum().backward();
    optimizer.step();
  }
}

TEST_F(GpuTest, ACheckpointGoesOnBitForBitOnTheGpu) {
  const test::TempDir dir;
  auto whole = make_model(torch::kCUDA, 1);
  torch::optim::AdamW optimizer(whole->parameters(), torch::optim::AdamWOptions(0.01));
  take_steps(whole, optimizer, 0, 4);
  Checkpoint saved(make_sampler(std::uint64_t{100}, {.seed = 5}, {})->token_after(4));
  saved.put("model", *whole);
  saved.put("optimizer", optimizer, *whole);
  CheckpointFile file(dir / "run.pt", ProcessGroup());
  file.write(saved);
  take_steps(whole, optimizer, 4, 8);

  auto again = make_model(torch::kCUDA, 2);
  torch::optim::AdamW optimizer_again(again->parameters(), torch::optim::AdamWOptions(0.01));
  take_steps(again, optimizer_again, 9, 11);
  const auto last = file.read();
  ASSERT_TRUE(last);
  last->load("model", *again);
  last->load("optimizer", optimizer_again, *again);
  take_steps(again, optimizer_again, 4, 8);
  for (std::size_t i = 0; i < whole->parameters().size(); ++i) {
    EXPECT_TRUE(again->parameters()[i].is_cuda());
    EXPECT_TRUE(again->parameters()[i].equal(whole->parameters()[i])) << i;
  }
}

/// Batches are copied from reused host memory while the GPU is busy.
TEST_F(GpuTest, CopiesAreRightWhileTheGpuIsBusy) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 250; ++i) {
    samples.push_back({{"png", test::solid_png(64, 48, i)}, {"cls", std::to_string(i)}});
  }
  Loader loader(test::make_dataset(dir, "train", samples),
                {.columns = {columns::image("png"), columns::integer("cls")},
                 .order = {.kind = Sequential{}},
                 .batch_size = 10,
                 .prefetch = 1,
                 .memory = pinned_memory()});
  DeviceCopier copier(torch::kCUDA);
  const auto work = torch::rand({4096, 4096}, torch::device(torch::kCUDA));
  std::vector<torch::Tensor> sums;
  for (auto epoch : loader.epochs(3)) {
    for (const Batch& batch : epoch) {
      const torch::Tensor images = copier.copy(batch["png"]);
      const torch::Tensor labels = copier.copy(batch["cls"]);
      for (int i = 0; i < 3; ++i) work.matmul(work);
      sums.push_back(
          torch::stack({images.to(torch::kFloat).mean({1, 2, 3}), labels.to(torch::kFloat)}));
    }
  }
  ASSERT_EQ(sums.size(), 75u);
  for (const torch::Tensor& sum : sums) EXPECT_TRUE(sum[0].equal(sum[1])) << sum;
}

}  // namespace
}  // namespace shardwise::libtorch
