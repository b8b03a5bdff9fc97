#include "shardwise/libtorch/evaluate.h"

#include <torch/torch.h>

#include "shardwise/base/error.h"
#include "shardwise/libtorch/data_parallel.h"
#include "shardwise/libtorch/image_loader.h"

namespace shardwise::libtorch {

Mean reduce_exact(double sum, std::int64_t count, const ProcessGroup& group) {
  return {group.all_reduce(sum), group.all_reduce(count)};
}

Mean exact_accuracy(const Predict& predict, const Dataset& data, const ProcessGroup& group,
                    const EvaluateOptions& options) {
  ImageLoaderOptions loader_options;
  loader_options.batch_size = options.batch_size;
  loader_options.threads = options.threads;
  loader_options.resize = options.resize;
  loader_options.image_field = options.image_field;
  loader_options.label_field = options.label_field;
  loader_options.order.kind = Sequential{};
  ImageLoader loader(data, group, loader_options);
  const torch::NoGradGuard no_grad;
  std::int64_t right = 0;
  std::int64_t count = 0;
  const ImageEpoch epoch = loader.epoch();
  for (const ImageBatch& batch : epoch) {
    if (batch.size() == 0) continue;
    const torch::Tensor scores = predict(batch.images);
    if (scores.dim() != 2 || scores.size(0) != batch.size()) {
      throw InvalidArgument("the model does not give one row of scores an image",
                            std::to_string(batch.size()) + " images",
                            "return a tensor of [images, classes]");
    }
    right += scores.argmax(1).cpu().eq(batch.labels).sum().item<std::int64_t>();
    count += batch.size();
  }
  epoch.prove();
  return reduce_exact(static_cast<double>(right), count, group);
}

EarlyStop::EarlyStop(ProcessGroup group, const EarlyStopOptions& options)
    : group_(std::move(group)),
      options_(options),
      best_(options.lower_is_better ? std::numeric_limits<double>::infinity()
                                    : -std::numeric_limits<double>::infinity()) {
  if (options.patience == 0 || !(options.min_delta >= 0)) {
    throw InvalidArgument("invalid options for early stopping",
                          "patience " + std::to_string(options.patience) + ", min_delta " +
                              std::to_string(options.min_delta),
                          "choose a patience of at least 1 and a min_delta of at least 0");
  }
}

bool EarlyStop::should_stop(double figure) {
  const auto shared = torch::full({1}, figure, torch::kFloat64);
  group_.broadcast(shared, 0);
  const double agreed = shared.item<double>();
  const bool better = options_.lower_is_better ? agreed < best_ - options_.min_delta
                                               : agreed > best_ + options_.min_delta;
  if (better) {
    best_ = agreed;
    since_best_ = 0;
  } else {
    ++since_best_;
  }
  return since_best_ >= options_.patience;
}

void broadcast_parameters(const torch::nn::Module& module, const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : module.parameters()) group.broadcast(parameter);
  for (const torch::Tensor& buffer : module.buffers()) group.broadcast(buffer);
}

GradientAverager::GradientAverager(std::vector<torch::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  std::int64_t size = 0;
  for (const torch::Tensor& parameter : parameters_) size += parameter.numel();
  flat_ = torch::empty({size}, torch::kFloat32);
}

std::int64_t GradientAverager::average(std::int64_t num_samples, const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const std::int64_t total = group.all_reduce(num_samples);
  flat_.zero_();
  std::int64_t at = 0;
  for (const torch::Tensor& parameter : parameters_) {
    const std::int64_t size = parameter.numel();
    if (num_samples > 0 && parameter.grad().defined()) {
      flat_.narrow(0, at, size).copy_(parameter.grad().flatten());
    }
    at += size;
  }
  group.all_reduce(flat_);
  if (total > 0) flat_.div_(static_cast<double>(total));
  at = 0;
  for (torch::Tensor& parameter : parameters_) {
    const std::int64_t size = parameter.numel();
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    parameter.mutable_grad().copy_(flat_.narrow(0, at, size).view_as(parameter));
    at += size;
  }
  return total;
}

}  // namespace shardwise::libtorch
