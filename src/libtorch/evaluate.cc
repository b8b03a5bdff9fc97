#include "shardwise/libtorch/evaluate.h"

#include <torch/torch.h>

#include "shardwise/base/error.h"
#include "shardwise/libtorch/image_loader.h"

namespace shardwise::libtorch {

Mean reduce_exact(double sum, std::int64_t count, const ProcessGroup& group) {
  return {group.all_reduce(sum), group.all_reduce(count)};
}

Mean exact_accuracy(const Predict& predict, const Dataset& data, const ProcessGroup& group,
                    const EvaluateOptions& options) {
  ImageLoader::Options loader_options;
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
  const ImageLoader::Epoch epoch = loader.epoch();
  for (const ImageLoader::Batch& batch : epoch) {
    if (batch.size() == 0) continue;
    const torch::Tensor scores = predict(batch.images);
    if (scores.dim() != 2 || scores.size(0) != batch.size()) {
      throw InvalidArgument("the model does not give one row of scores per image",
                            std::to_string(batch.size()) + " images",
                            "return a tensor of [images, classes]");
    }
    right += scores.argmax(1).cpu().eq(batch.labels).sum().item<std::int64_t>();
    count += batch.size();
  }
  epoch.prove();
  return reduce_exact(static_cast<double>(right), count, group);
}

EarlyStop::EarlyStop(ProcessGroup group) : EarlyStop(std::move(group), Options{}) {}

EarlyStop::EarlyStop(ProcessGroup group, const Options& options)
    : group_(std::move(group)),
      options_(options),
      best_(options.lower_is_better ? std::numeric_limits<double>::infinity()
                                    : -std::numeric_limits<double>::infinity()) {
  if (options.patience == 0 || !(options.min_delta >= 0)) {
    throw InvalidArgument("the options for early stopping are not valid",
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

}  // namespace shardwise::libtorch
