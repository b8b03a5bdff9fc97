#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

/// Adds sums and counts over the ranks. A rank may give 0 of 0. The sums are added without rounding
/// and rounded once: the same bits on every rank, whichever rank gave which.
/// Errors: kDistributed.
SHARDWISE_EXPORT Mean reduce_exact(double sum, std::int64_t count, const ProcessGroup& group);

/// The mean of values that are added without rounding: the same bits in any order, however the
/// values are spread over batches and ranks. One thread. Cost: some 3 ns a value, 0.6 KB.
class SHARDWISE_EXPORT ExactMean {
 public:
  ExactMean();
  ~ExactMean();
  ExactMean(ExactMean&&) noexcept;
  ExactMean& operator=(ExactMean&&) noexcept;

  void add(double value);
  /// Adds every element. Shapes: any; integers and floats, on any device.
  void add(const torch::Tensor& values);

  /// Of all values of all ranks. Every rank must call it. One all-reduce.
  /// Errors: kDistributed.
  [[nodiscard]] Mean reduce(const ProcessGroup& group) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct EvaluateOptions {
  /// Images that the model gets at once, always: the last batch of a rank is filled up with a copy
  /// of its first image, whose scores are thrown away.
  std::int64_t batch_size = 256;
  unsigned threads = 2;
  ImageSize resize{};
  std::string image_field{};  ///< as in ImageLoader::Options
  std::string label_field = "cls";
  /// Of evaluate(): a sample counts for k if fewer than k classes have a better score than its
  /// label, or the same and a lower number. A NaN is never better; a label whose score is NaN
  /// counts for no k.
  std::vector<std::int64_t> top_k = {1};
};

/// What a model makes of a data set. The same on every rank.
struct Evaluation {
  std::int64_t num_samples = 0;
  std::vector<Mean> top;    ///< right answers, for each of EvaluateOptions::top_k
  Mean loss;                ///< cross-entropy, in nats; computed in double from the scores
  torch::Tensor confusion;  ///< int64 [classes, classes]: rows are labels, columns best scores
  /// int64 [classes]: samples of each label whose scores are all NaN. They are wrong answers, and
  /// in no column of `confusion`.
  torch::Tensor undecided;

  /// Right answers among the samples with this label. Errors: OutOfRange.
  [[nodiscard]] Mean of_class(std::int64_t label) const;
};

/// Scores of images: uint8 [N, 3, H, W] on the CPU to [N, classes], on any device.
using Predict = std::function<torch::Tensor(const torch::Tensor& images)>;

/// Evaluates a classifier. The ranks share the samples, and each counts exactly once, whatever the
/// number of samples and ranks: nothing is counted twice or dropped. That every sample was seen
/// once is proven as for training epochs.
///
/// The result is the same bits on any number of ranks, as long as a model gives an image the same
/// scores whichever others share its batch, in whichever place; batches have one size for that.
/// Sums are not rounded, so for equal scores it is also the same for every batch size and order.
/// (A model's scores may depend on torch::get_num_threads(), and on what a CPU can.)
///
/// One rule decides top 1, `confusion` and exact_accuracy(): the best class is the one with the
/// highest score, of equal ones the lowest, and never one whose score is NaN. The loss of a sample
/// with a NaN is NaN.
///
/// With a StopGuard, a signal on any rank ends it on all, between two batches or after the last
/// one, and it gives no result: where batches take long, choose a smaller batch_size.
///
/// Every rank must call it. `predict` is called without gradients, and never with no images.
/// Cost: beside the model's, 8 bytes for each pair of classes on each rank, and one sum of these.
/// Errors: InvalidArgument (options, scores of another shape, a label that is no class); NotExact;
///   those of ImageLoader::next(); Cancelled (a signal).
SHARDWISE_EXPORT Evaluation evaluate(const Predict& predict, const Dataset& data,
                                     const ProcessGroup& group,
                                     const EvaluateOptions& options = {});

/// What is measured of images: a number for each ([N]), or several ([N, K]), on any device.
using Measure =
    std::function<torch::Tensor(const torch::Tensor& images, const torch::Tensor& labels)>;

/// The means of whatever you measure of each sample, as evaluate() in all else.
/// @return  K of them. Errors: as evaluate(); InvalidArgument if K is not the same for all batches.
SHARDWISE_EXPORT std::vector<Mean> exact_means(const Measure& measure, const Dataset& data,
                                               const ProcessGroup& group,
                                               const EvaluateOptions& options = {});

/// How many samples of `data` have their label as the best score. As evaluate() in all else, but
/// that labels which are no class are wrong answers.
/// @return  the sum is the number of right answers, the count data.size(); the same on all ranks.
SHARDWISE_EXPORT Mean exact_accuracy(const Predict& predict, const Dataset& data,
                                     const ProcessGroup& group,
                                     const EvaluateOptions& options = {});

namespace detail {
template <class Holder>
concept Model = requires(Holder& model, torch::Tensor images) {
  model->forward(images);
  model->is_training();
};

/// A module's forward(), in evaluation mode while this lives.
template <Model Holder>
class InEvaluation {
 public:
  explicit InEvaluation(Holder& model) : model_(model), was_training_(model->is_training()) {
    model_->eval();
  }
  ~InEvaluation() { model_->train(was_training_); }
  InEvaluation(const InEvaluation&) = delete;
  InEvaluation& operator=(const InEvaluation&) = delete;

  [[nodiscard]] Predict predict() {
    return [this](const torch::Tensor& images) -> torch::Tensor { return model_->forward(images); };
  }

 private:
  Holder& model_;
  bool was_training_;
};
}  // namespace detail

/// As above, of a module (a torch::nn::ModuleHolder or a shared_ptr): calls forward() in evaluation
/// mode, and restores the mode.
template <detail::Model Holder>
Evaluation evaluate(Holder& model, const Dataset& data, const ProcessGroup& group,
                    const EvaluateOptions& options = {}) {
  return evaluate(detail::InEvaluation(model).predict(), data, group, options);
}
template <detail::Model Holder>
Mean exact_accuracy(Holder& model, const Dataset& data, const ProcessGroup& group,
                    const EvaluateOptions& options = {}) {
  return exact_accuracy(detail::InEvaluation(model).predict(), data, group, options);
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
  /// Goes on where another one stood, as a checkpoint has it: the same on all ranks.
  void restore(double best, std::uint64_t num_since_best) noexcept {
    best_ = best;
    since_best_ = num_since_best;
  }

 private:
  ProcessGroup group_;
  Options options_;
  double best_;
  std::uint64_t since_best_ = 0;
};

}  // namespace shardwise::libtorch
