#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/libtorch/decode.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// A mean over all ranks: every rank's sum and count are added first, and divided once.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;

  [[nodiscard]] double value() const noexcept {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
  }
  operator double() const noexcept { return value(); }
};

/// Adds sums and counts over the ranks. A rank may give 0 of 0. The same bits on every rank; exact
/// if the sums are whole numbers below 2^53.
/// Errors: kDistributed.
SHARDWISE_EXPORT Mean reduce_exact(double sum, std::int64_t count, const ProcessGroup& group);

struct EvaluateOptions {
  std::int64_t batch_size = 256;
  unsigned threads = 2;
  ImageSize resize{};
  std::string image_field{};  ///< as in ImageLoader::Options
  std::string label_field = "cls";
};

/// Scores of images: uint8 [N, 3, H, W] on the CPU to [N, classes], on any device.
using Predict = std::function<torch::Tensor(const torch::Tensor& images)>;

/// How many samples of `data` have their label as the best score. The ranks share the samples, and
/// each counts exactly once, whatever the number of samples and ranks: no padding, no dropping. A
/// rank with no samples takes part with none. That every sample was seen once is proven as for
/// training epochs.
/// Every rank must call it. `predict` is called without gradients, and never with no images.
/// @return  the sum is the number of right answers, the count data.size(); the same on all ranks.
/// Errors: NotExact; those of ImageLoader::next().
SHARDWISE_EXPORT Mean exact_accuracy(const Predict& predict, const Dataset& data,
                                     const ProcessGroup& group,
                                     const EvaluateOptions& options = {});

/// Evaluates a module (a torch::nn::ModuleHolder or a shared_ptr): calls forward() in evaluation
/// mode, and restores the mode.
template <class Holder>
requires requires(Holder& model, torch::Tensor images) {
  model->forward(images);
  model->is_training();
}
Mean exact_accuracy(Holder& model, const Dataset& data, const ProcessGroup& group,
                    const EvaluateOptions& options = {}) {
  struct Mode {
    explicit Mode(Holder& holder) : model(holder), was_training(holder->is_training()) {
      model->eval();
    }
    ~Mode() { model->train(was_training); }
    Holder& model;
    bool was_training;
  } const mode(model);
  return exact_accuracy(
      Predict([&](const torch::Tensor& images) -> torch::Tensor { return model->forward(images); }),
      data, group, options);
}

/// Stops a run when a figure no longer improves. Rank 0's figure decides for all ranks, so that no
/// rank stops alone even if their figures differ in the last bit. A figure that is NaN is no
/// improvement.
class SHARDWISE_EXPORT EarlyStop {
 public:
  struct Options {
    std::uint64_t patience = 3;  ///< evaluations without improvement until it stops; at least 1
    double min_delta = 0;        ///< the least change that counts as an improvement
    bool lower_is_better = false;
  };

  /// Errors: InvalidArgument.
  EarlyStop(ProcessGroup group, const Options& options);
  explicit EarlyStop(ProcessGroup group);

  /// Takes the next figure. Every rank must call it; the answer is the same on all.
  bool should_stop(double figure);

  [[nodiscard]] double best() const noexcept { return best_; }
  [[nodiscard]] std::uint64_t num_since_best() const noexcept { return since_best_; }

 private:
  ProcessGroup group_;
  Options options_;
  double best_;
  std::uint64_t since_best_ = 0;
};

}  // namespace shardwise::libtorch
