// Tests process groups that use a c10d group which the program made: Gloo's, or a StoreGroup. Each
// rank is a thread.

#include <ATen/autocast_mode.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <mutex>
#ifdef SHARDWISE_HAVE_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#if defined(SHARDWISE_HAVE_GLOO) && TORCH_VERSION_MAJOR < 2  // c10d::Reducer differs in LibTorch 2
#define SHARDWISE_HAVE_REDUCER
#include <torch/csrc/distributed/c10d/reducer.hpp>
#endif

#include "libtorch/store_group.h"
#include "shardwise/libtorch/advanced.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise::libtorch {
namespace {

using testing::HasSubstr;

using Adopt = std::function<ProcessGroup(const Store& store, int rank, int size)>;

ProcessGroup adopt_store_group(const Store& store, int rank, int size) {
  return adopt_process_group(c10::make_intrusive<StoreGroup>(store, rank, size));
}

#ifdef SHARDWISE_HAVE_GLOO
c10::intrusive_ptr<c10d::ProcessGroupGloo> make_gloo(const Store& store, int rank, int size) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

ProcessGroup adopt_gloo(const Store& store, int rank, int size) {
  return adopt_process_group(make_gloo(store, rank, size));
}
#endif

class AdoptTest : public testing::TestWithParam<std::pair<const char*, Adopt>> {
 protected:
  static void on_ranks(int size, const std::function<void(const ProcessGroup&)>& body) {
    on_threads(size,
               [&](const Store& store, int rank) { body(GetParam().second(store, rank, size)); });
  }
};

TEST_P(AdoptTest, ItsCollectivesAreThoseOfEveryGroup) {
  for (const int size : {1, 2, 3}) {
    on_ranks(size, [&](const ProcessGroup& group) {
      const int rank = group.rank();
      EXPECT_EQ(group.world_size(), size);
      EXPECT_EQ(group.local_rank(), rank);  // all threads are on one host
      EXPECT_EQ(group.local_world_size(), size);
      const std::int64_t sum = size * (size - 1) / 2;
      EXPECT_EQ(group.all_reduce(std::int64_t{rank}), sum);
      EXPECT_EQ(group.all_reduce(rank + 0.5, ProcessGroup::ReduceOp::kMin), 0.5);
      // Tensors that are too large to be sent in the header. The second one has strides.
      const auto large = torch::full({1000}, rank, torch::kFloat);
      group.all_reduce(large);
      EXPECT_TRUE(large.eq(sum).all().item<bool>());
      const auto matrix = torch::full({100, 4}, rank, torch::kInt64);
      group.all_reduce(matrix.slice(1, 0, 4, 2), ProcessGroup::ReduceOp::kMax);
      EXPECT_TRUE(matrix.slice(1, 0, 4, 2).eq(size - 1).all().item<bool>());
      EXPECT_TRUE(matrix.slice(1, 1, 4, 2).eq(rank).all().item<bool>());
      const auto given = torch::full({1000}, rank, torch::kDouble);
      group.broadcast(given, size - 1);
      EXPECT_TRUE(given.eq(size - 1).all().item<bool>());
      group.barrier();
    });
  }
}

TEST_P(AdoptTest, RanksThatDisagreeHearIt) {
  on_ranks(2, [](const ProcessGroup& group) {
    const bool odd = group.rank() == 1;
    EXPECT_THAT(
        test::error_text([&] {
          group.require_same({{"seed", odd ? "1" : "2"}});
        }),
        testing::AllOf(HasSubstr("seed"), HasSubstr("'1' on rank 1"), HasSubstr("'2' on rank 0")));
    EXPECT_THAT(test::error_text([&] {
                  if (odd) {
                    group.barrier();
                  } else {
                    group.all_reduce(torch::ones({1000}));
                  }
                }),
                HasSubstr("out of step"));
  });
}

/// Makes samples with an image and one of 3 labels.
Dataset make_data(const test::TempDir& dir, int count) {
  std::vector<test::Fields> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back({{"png", test::solid_png(4, 4, 10 * i)}, {"cls", std::to_string(i % 3)}});
  }
  return test::make_dataset(dir, "train", samples);
}

TEST_P(AdoptTest, AWholeRunGoesOverIt) {
  const test::TempDir dir;
  const Dataset data = make_data(dir, 23);
  std::mutex mutex;
  std::vector<torch::Tensor> weights;
  on_ranks(3, [&](const ProcessGroup& group) {
    torch::nn::Linear model(3 * 4 * 4, 3);
    broadcast_parameters(*model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    GradientAverager gradients(model->parameters());
    ImageLoader loader(data, group, {.batch_size = 2, .threads = 1});
    CheckpointFile file(dir / "run.pt", group);
    const auto scores = [&](const torch::Tensor& images) {
      return model->forward(images.to(torch::kFloat).div(255).flatten(1));
    };
    for (auto epoch : loader.epochs(2)) {
      for (auto& batch : epoch) {
        optimizer.zero_grad();
        torch::cross_entropy_loss(scores(batch.images), batch.labels, {}, at::Reduction::Sum)
            .backward();
        gradients.average(batch.size(), group);
        optimizer.step();
      }
      EXPECT_EQ(epoch.prove(), "epoch " + std::to_string(epoch.number()) +
                                   ": 23 samples, each exactly once: proven");
      average_buffers(*model, group);
      require_same_replicas(*model, group);
      EXPECT_EQ(exact_accuracy(Predict(scores), data, group, {.batch_size = 4}).count, 23);
      Checkpoint now(loader.loader().state());
      now.put("model", *model);
      file.write(now);
    }
    EXPECT_EQ(file.read()->token().epoch, 2u);
    const std::lock_guard<std::mutex> lock(mutex);
    weights.push_back(model->weight.detach());
  });
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_TRUE(weights[0].equal(weights[1]) && weights[0].equal(weights[2]));
}

/// Turns autocast to bfloat16 on for this thread, until this object is destroyed.
class Autocast {
 public:
  Autocast() { set(true); }
  ~Autocast() {
    at::autocast::clear_cache();
    set(false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  static void set(bool enabled) {
#if TORCH_VERSION_MAJOR >= 2
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
#else
    at::autocast::set_cpu_enabled(enabled);
#endif
  }
};

torch::Tensor summed_loss(torch::nn::Sequential& model, const torch::Tensor& inputs) {
  const auto labels = torch::arange(inputs.size(0)).remainder(3);
  const auto scores = model->forward(inputs);
  return torch::cross_entropy_loss(scores.to(torch::kFloat), labels, {}, at::Reduction::Sum);
}

/// Makes a model whose weights differ between ranks, but not between runs. They are not random,
/// because rounding random weights to bfloat16 may change the sign of a ReLU's input.
torch::nn::Sequential make_model(int rank) {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat).view_as(parameter);
    parameter.copy_((numbers * 1.7 + rank).cos() / 2);
  }
  return model;
}

torch::nn::Sequential copy_of(torch::nn::Sequential& model) {
  auto copy = make_model(0);
  const torch::NoGradGuard no_grad;
  const auto from = model->parameters();
  const auto to = copy->parameters();
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  return copy;
}

/// Returns the mean gradients over all samples, computed in one process.
std::vector<torch::Tensor> mean_gradients(torch::nn::Sequential& model,
                                          const std::vector<torch::Tensor>& parts) {
  model->zero_grad();
  std::int64_t count = 0;
  for (const torch::Tensor& part : parts) {
    summed_loss(model, part).backward();
    count += part.size(0);
  }
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : model->parameters()) {
    gradients.push_back(parameter.grad() / static_cast<double>(count));
  }
  return gradients;
}

void expect_close(torch::nn::Sequential& model, const std::vector<torch::Tensor>& expected,
                  double tolerance) {
  const auto parameters = model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::allclose(parameters[i].grad(), expected[i], tolerance, tolerance)) << i;
  }
}

/// Returns 12 samples in six unequal parts: two for each of three ranks, one per backward pass. The
/// parts of the last rank are empty.
std::vector<torch::Tensor> unequal_parts() {
  const auto inputs = torch::arange(48, torch::kFloat).view({12, 4}).sin();
  return inputs.split_with_sizes({5, 1, 3, 3, 0, 0});
}

TEST_P(AdoptTest, GradientsOfBfloat16AutocastAreAveragedInFloat32) {
  const auto parts = unequal_parts();
  on_ranks(3, [&](const ProcessGroup& group) {
    auto model = make_model(group.rank());
    broadcast_parameters(*model, group);
    const auto& part = parts[2 * static_cast<std::size_t>(group.rank())];
    GradientAverager averager(model->parameters());
    const auto pass = [&](const torch::Tensor& inputs) {
      const Autocast autocast;
      EXPECT_EQ(model->forward(inputs).scalar_type(), torch::kBFloat16);
      return summed_loss(model, inputs);
    };
    if (part.size(0) > 0) pass(part).backward();
    EXPECT_EQ(averager.average(part.size(0), group), 8);
    for (const auto& parameter : model->parameters()) {
      EXPECT_EQ(parameter.grad().scalar_type(), torch::kFloat32);
    }
    auto alone = copy_of(model);
    expect_close(model, mean_gradients(alone, {parts[0], parts[2]}), 2e-2);
    torch::optim::SGD(model->parameters(), 0.1).step();
    require_same_replicas(*model, group);
  });
}

#ifdef SHARDWISE_HAVE_REDUCER
TEST(ReducerTest, GradientsReducedDuringBackwardAreTheMeanOverUnequalRanks) {
  const auto parts = unequal_parts();
  on_threads(3, [&](const Store& store, int rank) {
    const auto gloo = make_gloo(store, rank, 3);
    const ProcessGroup group = adopt_process_group(gloo);
    auto model = make_model(rank);
    broadcast_parameters(*model, group);
    const auto parameters = model->parameters();
    const std::vector<bool> sparse(parameters.size(), false);
    // One bucket per parameter, so that buckets are reduced while other gradients are computed.
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {1}, sparse);
    std::reverse(buckets.begin(), buckets.end());  // gradients are ready in this order
    c10d::Reducer reducer(parameters, buckets, limits, gloo, sparse, 1, false, false, {}, 1);
    std::int64_t samples = 0;
    reducer.register_comm_hook(reducer_hook(group, [&] { return samples; }));
    for (int step = 0; step < 3; ++step) {
      for (const auto& parameter : parameters) parameter.mutable_grad().reset();
      const auto& first = parts[2 * static_cast<std::size_t>(rank)];
      const auto& last = parts[2 * static_cast<std::size_t>(rank) + 1];
      samples = first.size(0) + last.size(0);
      if (first.size(0) > 0) summed_loss(model, first).backward();  // gradients stay on this rank
      // The step's last backward pass. A rank without samples has zero gradients.
      reducer.prepare_for_backward({});
      if (last.size(0) > 0) {
        summed_loss(model, last).backward();
      } else {
        std::vector<torch::Tensor> zeros;
        for (const auto& parameter : parameters) zeros.push_back(torch::zeros_like(parameter));
        torch::autograd::backward(parameters, zeros);
      }
      auto alone = copy_of(model);
      expect_close(model, mean_gradients(alone, {parts[0], parts[1], parts[2], parts[3]}), 1e-5);
      torch::optim::SGD(parameters, 0.1).step();
      require_same_replicas(*model, group);
    }
  });
}
#endif

std::vector<std::pair<const char*, Adopt>> groups() {
  std::vector<std::pair<const char*, Adopt>> groups = {{"OfItsOwnBackend", adopt_store_group}};
#ifdef SHARDWISE_HAVE_GLOO
  groups.emplace_back("OfGloo", adopt_gloo);
#endif
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Group, AdoptTest, testing::ValuesIn(groups()),
                         [](const auto& instance) { return std::string(instance.param.first); });

}  // namespace
}  // namespace shardwise::libtorch
