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

/// A mean over all ranks: the sum of all values divided by their number.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;

  [[nodiscard]] double value() const noexcept {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
  }
  operator double() const noexcept { return value(); }
};

/// Adds sums and counts over the ranks. A rank without values passes sum 0 and count 0. Sums are
/// added exactly and rounded once, so the result is bitwise equal on every rank.
/// Errors: kDistributed.
SHARDWISE_EXPORT Mean reduce_exact(double sum, std::int64_t count, const ProcessGroup& group);

/// Computes the mean of values that are added exactly. The result is bitwise equal for any order
/// and any distribution over batches and ranks.
/// Threads: one thread.
/// Memory: 0.6 KB.
class SHARDWISE_EXPORT ExactMean {
 public:
  ExactMean();
  ~ExactMean();
  ExactMean(ExactMean&&) noexcept;
  ExactMean& operator=(ExactMean&&) noexcept;

  void add(double value);
  /// Adds every element. Shapes: any; integers and floats, on any device.
  void add(const torch::Tensor& values);

  /// Returns the mean of all values of all ranks. Every rank must call it. Cost: one all-reduce.
  /// Errors: kDistributed.
  [[nodiscard]] Mean reduce(const ProcessGroup& group) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct EvaluateOptions {
  /// Images per call of the model. The last batch of a rank is padded with copies of its first
  /// image, and their scores are discarded.
  std::int64_t batch_size = 256;
  unsigned threads = 2;
  ImageSize resize{};
  std::string image_field{};  ///< see ImageLoader::Options
  std::string label_field = "cls";
  /// For evaluate(): the values of k. A sample is right for k if fewer than k classes are better
  /// than its label. A class is better if it has a higher score, or the same score and a lower
  /// number. A class with score NaN is never better. If the label's score is NaN, the sample is
  /// right for no k.
  std::vector<std::int64_t> top_k = {1};
};

/// The result of evaluating a model on a data set, equal on every rank.
struct Evaluation {
  std::int64_t num_samples = 0;
  std::vector<Mean> top;    ///< fraction of right samples, for each k of EvaluateOptions::top_k
  Mean loss;                ///< cross-entropy in nats, computed in double from the scores
  torch::Tensor confusion;  ///< int64 [classes, classes]: rows are labels, columns best scores
  /// int64 [classes]: for each label, the number of samples whose scores are all NaN. They count as
  /// wrong, and are not in `confusion`.
  torch::Tensor undecided;

  /// The fraction of samples with this label whose best class is the label. Errors: OutOfRange.
  [[nodiscard]] Mean of_class(std::int64_t label) const;
};

/// Computes scores of images: uint8 [N, 3, H, W] on the CPU to [N, classes] on any device.
using Predict = std::function<torch::Tensor(const torch::Tensor& images)>;

/// Evaluates a classifier. The samples are distributed over the ranks, and each sample counts
/// exactly once, for any number of samples and ranks. This is proven as for training epochs. Every
/// rank must call it.
///
/// The result is bitwise equal for any number of ranks, if an image's scores do not depend on the
/// other images of its batch. For this reason, all batches have the same size. Sums are exact, so
/// with equal scores the result does not depend on batch size and order. A model's scores may
/// depend on torch::get_num_threads() and on the CPU.
///
/// Top 1, `confusion` and exact_accuracy() use the same rule. The best class is the class with the
/// highest score; of several, the one with the lowest number. A class with score NaN is never the
/// best. The loss of a sample with a NaN among its scores is NaN.
///
/// With a StopGuard, a signal on any rank ends the evaluation on all ranks, between two batches or
/// after the last batch. evaluate() then throws Cancelled. If batches take long, choose a smaller
/// batch_size.
///
/// @param predict  called with gradients disabled, and never with zero images.
/// Cost: that of the model. In addition, each rank needs 8 bytes for each pair of classes, and one
///   all-reduce over these.
/// Errors: InvalidArgument for invalid options, scores of another shape, or a label that is not a
///   class. NotExact. The errors of ImageLoader::next(). Cancelled by a signal.
SHARDWISE_EXPORT Evaluation evaluate(const Predict& predict, const Dataset& data,
                                     const ProcessGroup& group,
                                     const EvaluateOptions& options = {});

/// Returns one number per image ([N]), or K numbers per image ([N, K]), on any device.
using Measure =
    std::function<torch::Tensor(const torch::Tensor& images, const torch::Tensor& labels)>;

/// Returns the K means of the numbers that `measure` returns for each sample. Otherwise like
/// evaluate().
/// Errors: those of evaluate(). InvalidArgument if K differs between batches.
SHARDWISE_EXPORT std::vector<Mean> exact_means(const Measure& measure, const Dataset& data,
                                               const ProcessGroup& group,
                                               const EvaluateOptions& options = {});

/// Counts the samples of `data` whose label has the best score. A sample whose label is not a class
/// counts as wrong. Otherwise like evaluate().
/// @return  `sum` is the number of samples whose label has the best score, and `count` is
///   data.size(). The result is equal on all ranks.
SHARDWISE_EXPORT Mean exact_accuracy(const Predict& predict, const Dataset& data,
                                     const ProcessGroup& group,
                                     const EvaluateOptions& options = {});

namespace detail {
template <class Holder>
concept Model = requires(Holder& model, torch::Tensor images) {
  model->forward(images);
  model->is_training();
};

/// Wraps a module's forward() as Predict. The module is in evaluation mode while this object lives.
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

/// Overloads for a module (a torch::nn::ModuleHolder or a shared_ptr). They call forward() in
/// evaluation mode, and then restore the module's mode.
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

/// Stops a run when a figure, e.g. the accuracy, no longer improves. All ranks use rank 0's figure,
/// so they stop together even if their figures differ in the last bit. NaN is not an improvement.
class SHARDWISE_EXPORT EarlyStop {
 public:
  struct Options {
    std::uint64_t patience = 3;  ///< number of evaluations without improvement after which it
                                 ///< stops; at least 1
    double min_delta = 0;        ///< the smallest change that counts as an improvement
    bool lower_is_better = false;
  };

  /// Errors: InvalidArgument.
  EarlyStop(ProcessGroup group, const Options& options);
  explicit EarlyStop(ProcessGroup group);

  /// Returns true if the run should stop after this figure. Every rank must call it, and all get
  /// the same answer.
  bool should_stop(double figure);

  [[nodiscard]] double best() const noexcept { return best_; }
  [[nodiscard]] std::uint64_t num_since_best() const noexcept { return since_best_; }
  /// Restores the state from a checkpoint. Pass the same values on all ranks.
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
