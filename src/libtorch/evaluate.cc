#include "shardwise/libtorch/evaluate.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "base/error_types.h"
#include "base/exact_sum.h"
#include "libtorch/group_access.h"
#include "shardwise/libtorch/image_loader.h"

namespace shardwise::libtorch {

namespace {

/// Sums `sums` and `count` over the ranks, by one all-reduce.
/// @return  the mean of each sum.
std::vector<Mean> reduced(std::span<const ExactSum> sums, std::int64_t count,
                          const ProcessGroup& group) {
  std::vector<std::int64_t> words{count};
  for (const ExactSum& sum : sums) {
    const ExactSum::Words own = sum.words();
    words.insert(words.end(), own.begin(), own.end());
  }
  group.all_reduce(
      torch::from_blob(words.data(), {static_cast<std::int64_t>(words.size())}, torch::kInt64));
  std::vector<Mean> means;
  for (std::size_t at = 1; at < words.size(); at += ExactSum::kNumWords) {
    ExactSum::Words total{};
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(at), total.size(), total.begin());
    ExactSum sum;
    sum.set_words(total);
    means.push_back({sum.value(), words.front()});
  }
  return means;
}

/// Adds all elements of `values`, a CPU tensor of doubles, to the sum.
void add_all(const torch::Tensor& values, ExactSum& sum) {
  const torch::Tensor plain = values.contiguous();
  const auto* at = plain.data_ptr<double>();
  for (std::int64_t i = 0; i < plain.numel(); ++i) sum.add(at[i]);
}

torch::Tensor as_doubles(const torch::Tensor& values) {
  return values.detach().cpu().to(torch::kFloat64);
}

/// Extends `rows` to `size` rows with copies of its first row.
torch::Tensor filled_up(const torch::Tensor& rows, std::int64_t size) {
  if (rows.size(0) == size) return rows;
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape[0] = size - rows.size(0);
  return torch::cat({rows, rows.narrow(0, 0, 1).expand(shape)});
}

/// Calls `take` with each of this rank's batches, in order. The ranks share the data set's batches.
void for_each_batch(const Dataset& data, const ProcessGroup& group, const EvaluateOptions& options,
                    const std::function<void(const ImageLoader::Batch&)>& take) {
  ImageLoader::Options loader_options;
  loader_options.batch_size = options.batch_size;
  loader_options.threads = options.threads;
  loader_options.resize = options.resize;
  loader_options.image_field = options.image_field;
  loader_options.label_field = options.label_field;
  loader_options.order.kind = Sequential{};
  ImageLoader loader(data, group, loader_options);
  const torch::NoGradGuard no_grad;
  const ImageLoader::Epoch epoch = loader.epoch();
  for (const ImageLoader::Batch& batch : epoch) {
    GroupAccess::calls(group).throw_if_stopping("evaluation");
    if (batch.size() > 0) take(batch);
  }
  GroupAccess::calls(group).throw_if_stopping("evaluation");  // in case of a late signal
  epoch.prove();
}

/// Returns the scores of a batch: [N, classes], on the CPU.
torch::Tensor scores_of(const ImageLoader::Batch& batch, const Predict& predict,
                        const EvaluateOptions& options) {
  const torch::Tensor scores = predict(filled_up(batch.images, options.batch_size));
  if (scores.dim() != 2 || scores.size(0) != options.batch_size || scores.size(1) == 0) {
    throw InvalidArgument("the model does not return one row of scores per image",
                          "a batch of " + std::to_string(options.batch_size) + " images",
                          "return a tensor of shape [images, classes]");
  }
  return scores.detach().cpu().narrow(0, 0, batch.size());
}

void require_classes(const ImageLoader::Batch& batch, std::int64_t num_classes) {
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const auto label = batch.labels[i].item<std::int64_t>();
    if (label >= 0 && label < num_classes) continue;
    throw InvalidArgument("a label is not a class of the model",
                          "sample " + std::to_string(batch.samples[i].item<std::int64_t>()) +
                              ", label " + std::to_string(label),
                          "give labels in [0, " + std::to_string(num_classes) +
                              "), the classes of the model's scores");
  }
}

/// Returns the class with the highest score of each row as int64 [N]. Ignores scores that are NaN;
/// of equal scores, the lowest class wins. A row that has only NaNs gets -1.
torch::Tensor best_classes(const torch::Tensor& scores) {
  const torch::Tensor numbers =
      scores.is_floating_point()
          ? scores.masked_fill(scores.isnan(), -std::numeric_limits<double>::infinity())
          : scores;
  const torch::Tensor is_best = scores.eq(numbers.amax({1}, true));  // false for NaN
  return is_best.to(torch::kUInt8).argmax(1).masked_fill(is_best.any(1).logical_not(), -1);
}

/// Returns the number of classes that rank before each row's label, by the rule of best_classes():
/// int64 [N]. It is 0 if the label is the best class, and exceeds any k if the label's score is
/// NaN.
torch::Tensor places_of_labels(const torch::Tensor& scores, const torch::Tensor& labels) {
  const torch::Tensor own = scores.gather(1, labels.unsqueeze(1));
  const torch::Tensor is_lower = torch::arange(scores.size(1)).unsqueeze(0) < labels.unsqueeze(1);
  const torch::Tensor is_before = scores.gt(own) | (scores.eq(own) & is_lower);
  return is_before.sum(1).masked_fill(own.squeeze(1).isnan(),
                                      std::numeric_limits<std::int64_t>::max());
}

}  // namespace

struct ExactMean::Impl {
  ExactSum sum;
  std::int64_t count = 0;
};

ExactMean::ExactMean() : impl_(std::make_unique<Impl>()) {}
ExactMean::~ExactMean() = default;
ExactMean::ExactMean(ExactMean&&) noexcept = default;
ExactMean& ExactMean::operator=(ExactMean&&) noexcept = default;

void ExactMean::add(double value) {
  impl_->sum.add(value);
  ++impl_->count;
}

void ExactMean::add(const torch::Tensor& values) {
  add_all(as_doubles(values), impl_->sum);
  impl_->count += values.numel();
}

Mean ExactMean::reduce(const ProcessGroup& group) const {
  return reduced({&impl_->sum, 1}, impl_->count, group).front();
}

Mean reduce_exact(double sum, std::int64_t count, const ProcessGroup& group) {
  ExactSum own;
  own.add(sum);
  return reduced({&own, 1}, count, group).front();
}

Mean Evaluation::of_class(std::int64_t label) const {
  if (label < 0 || label >= confusion.size(0)) {
    throw OutOfRange("no such class", std::to_string(label),
                     "choose a class from 0 to " + std::to_string(confusion.size(0) - 1));
  }
  return {static_cast<double>(confusion[label][label].item<std::int64_t>()),
          (confusion[label].sum() + undecided[label]).item<std::int64_t>()};
}

Evaluation evaluate(const Predict& predict, const Dataset& data, const ProcessGroup& group,
                    const EvaluateOptions& options) {
  for (const std::int64_t k : options.top_k) {
    if (k < 1) throw InvalidArgument("top_k is not valid", std::to_string(k), "give 1 or more");
  }
  torch::Tensor confusion;
  std::vector<ExactSum> sums(options.top_k.size() + 1);  // of right answers; the last is the loss
  std::int64_t count = 0;
  for_each_batch(data, group, options, [&](const ImageLoader::Batch& batch) {
    const torch::Tensor scores = scores_of(batch, predict, options);
    require_classes(batch, scores.size(1));
    if (!confusion.defined()) {
      confusion = torch::zeros({scores.size(1), scores.size(1) + 1}, torch::kInt64);
    }
    const torch::Tensor places = places_of_labels(scores, batch.labels);
    for (std::size_t i = 0; i < options.top_k.size(); ++i) {
      sums[i].add(places.lt(options.top_k[i]).sum().item<double>());
    }
    // The last column counts samples without a best class, whose scores are all NaN.
    const torch::Tensor best = best_classes(scores);
    const torch::Tensor columns = best.masked_fill(best.lt(0), scores.size(1));
    confusion.index_put_({batch.labels, columns}, torch::ones({}, torch::kInt64), true);
    const torch::Tensor losses = torch::nn::functional::cross_entropy(
        scores.to(torch::kFloat64), batch.labels,
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    add_all(losses, sums.back());
    count += batch.size();
  });
  // A rank without samples cannot know the number of classes.
  const auto classes = group.all_reduce(confusion.defined() ? confusion.size(0) : std::int64_t{0},
                                        ProcessGroup::ReduceOp::kMax);
  if (!confusion.defined()) confusion = torch::zeros({classes, classes + 1}, torch::kInt64);

  Evaluation found;
  found.top = reduced(sums, count, group);
  group.all_reduce(confusion);
  found.loss = found.top.back();
  found.top.pop_back();
  found.num_samples = found.loss.count;
  found.confusion = confusion.narrow(1, 0, classes).contiguous();
  found.undecided = confusion.select(1, classes).contiguous();
  return found;
}

std::vector<Mean> exact_means(const Measure& measure, const Dataset& data,
                              const ProcessGroup& group, const EvaluateOptions& options) {
  std::vector<ExactSum> sums;
  std::int64_t count = 0;
  for_each_batch(data, group, options, [&](const ImageLoader::Batch& batch) {
    const torch::Tensor values = measure(filled_up(batch.images, options.batch_size),
                                         filled_up(batch.labels, options.batch_size));
    if (values.dim() < 1 || values.dim() > 2 || values.size(0) != options.batch_size) {
      throw InvalidArgument("the measure does not return one row of values per image",
                            "a batch of " + std::to_string(options.batch_size) + " images",
                            "return a tensor of shape [images] or [images, values]");
    }
    const torch::Tensor rows =
        as_doubles(values).view({options.batch_size, -1}).narrow(0, 0, batch.size());
    const auto num_figures = static_cast<std::size_t>(rows.size(1));
    if (!sums.empty() && sums.size() != num_figures) {
      throw InvalidArgument(
          "the measure gives rows of different lengths",
          std::to_string(sums.size()) + " values, then " + std::to_string(num_figures),
          "return the same number of values for each batch");
    }
    sums.resize(num_figures);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      add_all(rows.select(1, static_cast<std::int64_t>(i)), sums[i]);
    }
    count += batch.size();
  });
  const auto num_figures = static_cast<std::size_t>(
      group.all_reduce(static_cast<std::int64_t>(sums.size()), ProcessGroup::ReduceOp::kMax));
  const bool is_same =
      sums.empty() || sums.size() == num_figures;  // a rank without samples has no sums
  if (group.any(!is_same)) {
    throw InvalidArgument("the measure gives rows of different lengths on the ranks",
                          std::to_string(sums.size()) + " values on this rank, up to " +
                              std::to_string(num_figures) + " on other ranks",
                          "return the same number of values on each rank");
  }
  sums.resize(num_figures);
  return reduced(sums, count, group);
}

Mean exact_accuracy(const Predict& predict, const Dataset& data, const ProcessGroup& group,
                    const EvaluateOptions& options) {
  std::int64_t right = 0;
  std::int64_t count = 0;
  for_each_batch(data, group, options, [&](const ImageLoader::Batch& batch) {
    const torch::Tensor scores = scores_of(batch, predict, options);
    const torch::Tensor best = best_classes(scores);
    right += (best.eq(batch.labels) & best.ge(0)).sum().item<std::int64_t>();
    count += batch.size();
  });
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
