#include "trainer.h"

#include <fmt/core.h>
#include <torch/torch.h>
#include <torch/version.h>
#include <unistd.h>

#include <CLI/Error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/cores.h"
#include "base/errno_error.h"
#include "base/rank_environment.h"
#include "base/text.h"
#include "base/url.h"
#include "console.h"
#include "fetch_options.h"
#include "loaded_epoch.h"
#include "output.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"
#include "shardwise/libtorch/checkpoint.h"
#include "shardwise/libtorch/data_parallel.h"
#include "shardwise/libtorch/epoch_report.h"
#include "shardwise/libtorch/evaluate.h"
#include "shardwise/libtorch/image_loader.h"
#include "shardwise/order/resume.h"
#include "version.h"

namespace shardwise::train {

namespace {

using libtorch::Mean;
using libtorch::ProcessGroup;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ----------------------------------------------------------------------------------------- model

/// 3x3 convolutions with group normalisation, halving the image between them, then the largest
/// response of each channel wherever it is. Nothing depends on which samples share a batch, so how
/// a step is spread over ranks changes only the rounding. Takes uint8 [N, 3, H, W] of any size.
struct SmallCnnImpl : torch::nn::Module {
  static constexpr std::array<std::int64_t, 4> kWidths = {16, 32, 64, 96};

  explicit SmallCnnImpl(std::int64_t classes) {
    std::int64_t in = 3;
    for (const std::int64_t width : kWidths) {
      const std::string number = std::to_string(convolutions.size());
      convolutions.push_back(register_module(
          "convolution" + number,
          torch::nn::Conv2d(torch::nn::Conv2dOptions(in, width, 3).padding(1).bias(false))));
      norms.push_back(register_module("norm" + number, torch::nn::GroupNorm(4, width)));
      in = width;
    }
    scores = register_module("scores", torch::nn::Linear(in, classes));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = images.to(torch::kFloat).sub_(127.5).div_(64);
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      x = torch::relu(norms[i](convolutions[i](x)));
      const bool can_halve = x.size(2) >= 2 && x.size(3) >= 2;
      if (i + 1 < convolutions.size() && can_halve) x = torch::max_pool2d(x, 2);
    }
    return scores(x.amax({2, 3}));
  }

  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::GroupNorm> norms;
  torch::nn::Linear scores{nullptr};
};
TORCH_MODULE(SmallCnn);

/// Warm-up over the first tenth of `total` samples, then a cosine to 0. Counted in samples, and not
/// in steps, so that a run may go on with other ranks and batches.
/// @param before  samples of earlier steps. @param step_size  of this one.
double rate_at(std::uint64_t before, std::uint64_t step_size, std::uint64_t total, double highest) {
  const double done =
      static_cast<double>(before) / static_cast<double>(std::max<std::uint64_t>(total, 1));
  constexpr double kWarmUp = 0.1;
  if (done < kWarmUp) {
    return highest * std::min(1.0, static_cast<double>(before + step_size) /
                                       (kWarmUp * static_cast<double>(total)));
  }
  constexpr double kPi = 3.14159265358979323846;
  return highest * 0.5 * (1 + std::cos(kPi * std::min(1.0, (done - kWarmUp) / (1 - kWarmUp))));
}

// -------------------------------------------------------------------------------------------- run

/// What a checkpoint holds, beside where the loader stands.
struct Run {
  explicit Run(std::int64_t num_classes)
      : classes(num_classes),
        model(num_classes),
        optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(1e-2)) {}

  std::int64_t classes;
  SmallCnn model;
  torch::optim::AdamW optimizer;
  std::uint64_t step = 0;       ///< steps taken since the beginning of the run
  std::uint64_t planned = 0;    ///< samples of the steps of this epoch so far, all ranks
  double loss_sum = 0;          ///< of this epoch so far, all ranks
  std::int64_t samples = 0;     ///< of this epoch so far, all ranks
  bool evaluation_due = false;  ///< of the epoch that ended last
  double loss_sum_here = 0;     ///< of this rank, not among them yet
  std::int64_t samples_here = 0;

  /// Adds what the ranks have not told each other yet. Collective.
  void add_up(const ProcessGroup& group) {
    const Mean rest = libtorch::reduce_exact(loss_sum_here, samples_here, group);
    loss_sum += rest.sum;
    samples += rest.count;
    loss_sum_here = 0;
    samples_here = 0;
  }
};

/// Errors: those of CheckpointFile.
void write_checkpoint(libtorch::CheckpointFile& file, const Run& run, const ResumeToken& token,
                      const libtorch::EarlyStop* early) {
  libtorch::Checkpoint checkpoint(token);
  if (early != nullptr) {
    checkpoint.put("best", early->best());
    checkpoint.put("since_best", static_cast<std::int64_t>(early->num_since_best()));
  }
  checkpoint.put("model", *run.model);
  checkpoint.put("optimizer", run.optimizer, *run.model);
  checkpoint.put("classes", run.classes);
  checkpoint.put("step", static_cast<std::int64_t>(run.step));
  checkpoint.put("planned", static_cast<std::int64_t>(run.planned));
  checkpoint.put("samples", run.samples);
  checkpoint.put("loss_sum", run.loss_sum);
  checkpoint.put("evaluation_due", int{run.evaluation_due});
  file.write(checkpoint);
}

/// Errors: NotFound, Mismatch.
void take_over(const libtorch::Checkpoint& checkpoint, Run& run) {
  const std::int64_t classes = checkpoint.integer("classes");
  if (classes != run.classes) {
    throw Mismatch("the checkpoint has another number of classes",
                   in_quotes(checkpoint.path()) + ", " + std::to_string(classes) + " there, " +
                       std::to_string(run.classes) + " here",
                   "train on the same data, or start without --resume");
  }
  checkpoint.load("model", *run.model);
  checkpoint.load("optimizer", run.optimizer, *run.model);
  run.step = static_cast<std::uint64_t>(checkpoint.integer("step"));
  run.samples = checkpoint.integer("samples");
  run.loss_sum = checkpoint.number("loss_sum");
  // Older checkpoints have neither. Of the planned samples, those that were bad are not among them.
  run.planned = static_cast<std::uint64_t>(
      checkpoint.contains("planned") ? checkpoint.integer("planned") : run.samples);
  run.evaluation_due =
      checkpoint.contains("evaluation_due") && checkpoint.integer("evaluation_due") != 0;
}

// --------------------------------------------------------------------------------------- progress

/// What rank 0 says: results on stdout, progress on stderr.
class Reporter {
 public:
  Reporter(const Options& options, bool speaks)
      : json_(options.json),
        speaks_(speaks),
        progress_(speaks && !options.first_use.quiet),
        terminal_(::isatty(STDERR_FILENO) != 0) {}

  void progress(std::uint64_t epoch, std::uint64_t step, std::uint64_t steps, double loss,
                double images_per_second) {
    const auto now = Clock::now();
    if (!progress_ || now - last_ < (terminal_ ? std::chrono::milliseconds(200)
                                               : std::chrono::milliseconds(5000))) {
      return;
    }
    last_ = now;
    const double left = images_per_second > 0 ? rest_seconds(step, steps) : 0;
    std::fprintf(stderr, "%sepoch %llu: step %llu of %llu, loss %.4f, %.0f images/s, %.0f s left%s",
                 terminal_ ? "\r" : "", static_cast<unsigned long long>(epoch),
                 static_cast<unsigned long long>(step), static_cast<unsigned long long>(steps),
                 loss, images_per_second, left, terminal_ ? "   " : "\n");
    line_open_ = terminal_;
  }
  void begin_epoch() {
    epoch_start_ = Clock::now();
    last_ = epoch_start_;
  }

  void epoch_done(std::uint64_t epoch, double loss, std::int64_t samples, double seconds,
                  const std::optional<Mean>& accuracy, const std::string& proof) {
    proofs_.push_back(proof);
    if (accuracy) accuracy_ = accuracy;
    if (!speaks_) return;
    close_line();
    const double rate = seconds > 0 ? static_cast<double>(samples) / seconds : 0;
    if (json_) {
      nlohmann::ordered_json line = {{"epoch", epoch},
                                     {"loss", loss},
                                     {"samples", samples},
                                     {"seconds", seconds},
                                     {"images_per_second", rate}};
      add_accuracy(line, accuracy);
      line["proof"] = proof;
      print(line.dump());
    } else {
      print(fmt::format("epoch {}: loss {:.4f}, {}{} images in {:.1f} s, {:.0f} images/s", epoch,
                        loss, accuracy ? accuracy_text(*accuracy) + ", " : "",
                        human_count(static_cast<std::uint64_t>(samples)), seconds, rate));
    }
  }

  /// An evaluation that a run before this one did not come to.
  void evaluated(std::uint64_t epoch, const Mean& accuracy) {
    accuracy_ = accuracy;
    if (!speaks_) return;
    if (json_) {
      nlohmann::ordered_json line = {{"epoch", epoch}};
      add_accuracy(line, accuracy);
      print(line.dump());
    } else {
      print(fmt::format("epoch {}: {}", epoch, accuracy_text(accuracy)));
    }
  }

  /// What each rank did in an epoch.
  void report(const std::string& table) {
    if (!progress_) return;
    close_line();
    std::fputs(table.c_str(), stderr);
  }

  /// @param checkpoint  that holds this step; empty: none does.
  void stopped(const std::string& reason, std::uint64_t step, const std::string& checkpoint) {
    if (!speaks_) return;
    close_line();
    if (json_) {
      const nlohmann::ordered_json line = {{"stopped", reason}, {"step", step}};
      print(line.dump());
    }
    tools::say("note", "stopped after step " + std::to_string(step) + ": " + reason +
                           (checkpoint.empty()
                                ? "; no checkpoint holds it"
                                : "; continue from " + in_quotes(checkpoint) + " with --resume"));
  }

  void run_done(std::uint64_t epochs, const SkipList& bad, const Loader::Stats& loading) {
    if (!speaks_) return;
    if (progress_ && loading.batches > 0) {
      std::fprintf(stderr, "shardwise-train: loading: %s\n",
                   tools::limit_text(loading.summary()).c_str());
    }
    for (const auto& [sample, entry] : bad.samples()) {
      std::fprintf(stderr, "shardwise-train: note: sample %llu was left out: %s\n",
                   static_cast<unsigned long long>(sample), entry.reason.c_str());
    }
    if (json_) {
      nlohmann::ordered_json line = {{"epochs", epochs}};
      add_accuracy(line, accuracy_);
      line["bad_samples"] = bad.samples().size();
      line["loading"] = tools::limit_text(loading.summary());
      line["threads"] = loading.threads;
      line["compute_threads"] = torch::get_num_threads();
      line["proofs"] = proofs_;
      print(line.dump());
    } else {
      if (accuracy_) print(accuracy_text(*accuracy_) + ", each sample counted once");
      for (const std::string& proof : proofs_) print(proof);
    }
  }

  /// Throws what a result could not be written for. A run that may go on is not ended by that.
  void require_written() const {
    if (unwritten_) std::rethrow_exception(unwritten_);
  }

  void close_line() {
    if (line_open_) std::fputc('\n', stderr);
    line_open_ = false;
  }

 private:
  /// A line of the results. After the first that cannot be written there are no more.
  void print(const std::string& line) {
    if (unwritten_ || reader_is_gone_) return;
    try {
      out_.write(line + "\n");
      out_.flush();
    } catch (const tools::ReaderGone&) {
      reader_is_gone_ = true;  // it has all that it wanted
    } catch (const Error&) {
      unwritten_ = std::current_exception();
    }
  }

  double rest_seconds(std::uint64_t step, std::uint64_t steps) const {
    return step == 0 ? 0
                     : seconds_since(epoch_start_) / static_cast<double>(step) *
                           static_cast<double>(steps - step);
  }
  static std::string accuracy_text(const Mean& accuracy) {
    char text[96];
    std::snprintf(text, sizeof text, "accuracy %.2f %% (%.0f of %lld)", 100 * accuracy.value(),
                  accuracy.sum, static_cast<long long>(accuracy.count));
    return text;
  }
  static void add_accuracy(nlohmann::ordered_json& line, const std::optional<Mean>& accuracy) {
    if (!accuracy) return;
    line["accuracy"] = accuracy->value();
    line["correct"] = static_cast<std::int64_t>(accuracy->sum);
    line["evaluated"] = accuracy->count;
  }

  tools::Output out_;
  std::exception_ptr unwritten_;
  bool reader_is_gone_ = false;
  const bool json_;
  const bool speaks_;
  const bool progress_;
  const bool terminal_;
  bool line_open_ = false;
  Clock::time_point last_{};
  Clock::time_point epoch_start_{};
  std::optional<Mean> accuracy_;
  std::vector<std::string> proofs_;
};

// ------------------------------------------------------------------------------------------ train

libtorch::ImageLoader::Options loader_options(const Options& options, unsigned threads,
                                              const MixedDataset& data) {
  libtorch::ImageLoader::Options loader;
  loader.order = tools::order_of(options.order, &data);
  loader.batch_size = options.batch_size;
  loader.global_batch_size = options.global_batch_size;
  loader.replicas = options.order.replicas;
  loader.threads = threads;
  loader.resize = {options.height, options.width};
  loader.max_bad = options.max_bad;
  loader.image_field = options.image_field;
  loader.label_field = options.label_field;
  return loader;
}

/// Samples of a step of all ranks.
std::uint64_t step_size(const Options& options, const ProcessGroup& group) {
  if (options.global_batch_size > 0) return static_cast<std::uint64_t>(options.global_batch_size);
  return static_cast<std::uint64_t>(options.batch_size) *
         static_cast<std::uint64_t>(group.world_size()) / options.order.replicas;
}

/// One more than the largest label, from the columns of the indexes: no shard is read. Nothing
/// where an index has no column of the labels, or there is more in it than classes.
std::optional<std::int64_t> classes_of_columns(const MixedDataset& data,
                                               const std::string& label_field) {
  double most = -1;
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    const auto& columns = data.part(part).index().content().columns;
    const auto column = std::find_if(columns.begin(), columns.end(), [&](const auto& each) {
      return each.field == label_field && each.json_path.empty();
    });
    if (column == columns.end()) return std::nullopt;
    try {
      for (const double label : data.part(part).numbers(column->name)) {
        if (label < 0 || label >= 1 << 20 || label != std::floor(label)) return std::nullopt;
        most = std::max(most, label);
      }
    } catch (const InvalidArgument&) {  // no number
      return std::nullopt;
    }
  }
  return static_cast<std::int64_t>(most) + 1;
}

/// True if a shard has to be fetched to read it, whatever is in the cache.
bool has_fetched_shards(const Index& index) {
  for (std::uint64_t shard = 0; shard < index.num_shards(); ++shard) {
    if (is_fetched_url(index.shard(shard).path)) return true;
  }
  return false;
}

/// The number of classes if it is known without a look at the labels.
/// Errors: InvalidArgument if it is not, and that look would fetch all shards.
std::optional<std::int64_t> known_classes(const MixedDataset& data, const Options& options) {
  if (options.classes > 0) return options.classes;
  if (const auto classes = classes_of_columns(data, options.label_field)) return classes;
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    const bool can_fetch =
        data.part(part).cache() != nullptr || options.access == Dataset::Access::kRange;
    if (!can_fetch || !has_fetched_shards(data.part(part).index())) continue;
    throw InvalidArgument(
        "the number of classes is not known before all shards are fetched",
        in_quotes(options.train_index),
        "name it with --classes, or build the index with --column " + options.label_field);
  }
  return std::nullopt;
}

void require_samples(const MixedDataset& data, const std::string& path) {
  if (data.empty())
    throw InvalidArgument("the index has no samples", in_quotes(path), "name another");
}

/// One more than the largest label. Where nothing else tells it, each rank reads a part of the
/// labels.
std::int64_t count_classes(const MixedDataset& data, const Options& options,
                           const ProcessGroup& group, const CancelToken& cancel) {
  const auto world = static_cast<std::uint64_t>(group.world_size());
  const auto rank = static_cast<std::uint64_t>(group.rank());
  if (const auto known = known_classes(data, options)) {
    return group.all_reduce(*known - 1, libtorch::ProcessGroup::ReduceOp::kMax) + 1;
  }
  std::int64_t most = -1;
  const std::uint64_t end =
      data.size() / world * (rank + 1) + data.size() % world * (rank + 1) / world;
  for (std::uint64_t i = data.size() / world * rank + data.size() % world * rank / world; i < end;
       ++i) {
    const Sample sample = data[i];
    std::int64_t label = 0;
    try {
      label = sample.integer(options.label_field);
    } catch (const Error& e) {
      // What turns out bad is counted where it is read.
      if (options.max_bad > 0) continue;
      throw Error(e.code(), std::string(e.what()) + "; --label-field names the field of the class");
    }
    if (label < 0 || label >= 1 << 20) {
      throw BadField("a label is not a class",
                     sample.describe() + ", " + in_quotes(options.label_field) + " is " +
                         std::to_string(label),
                     "labels are numbers from 0, below --classes");
    }
    most = std::max(most, label);
    cancel.throw_if_cancelled();
  }
  most = group.all_reduce(most, libtorch::ProcessGroup::ReduceOp::kMax);
  return most + 1;
}

/// Errors: BadField.
void require_classes(const libtorch::ImageLoader::Batch& batch, std::int64_t classes) {
  const auto wrong = batch.labels.lt(0).logical_or(batch.labels.ge(classes));
  if (!wrong.any().item<bool>()) return;
  const auto row = wrong.nonzero()[0].item<std::int64_t>();
  throw BadField("a label is not a class",
                 "sample " + std::to_string(batch.samples[row].item<std::int64_t>()) + " is of " +
                     std::to_string(batch.labels[row].item<std::int64_t>()),
                 "labels are numbers from 0, below --classes");
}

/// One step; returns the sum of this rank's losses.
double train_step(Run& run, libtorch::GradientAverager& gradients,
                  const libtorch::ImageLoader::Batch& batch, const ProcessGroup& group) {
  run.optimizer.zero_grad();
  double loss_sum = 0;
  if (batch.size() > 0) {
    require_classes(batch, run.classes);
    const auto loss = torch::nn::functional::cross_entropy(
        run.model->forward(batch.images), batch.labels,
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    loss.backward();
    loss_sum = loss.item<double>();
  }
  gradients.average(batch.size(), group);
  run.optimizer.step();
  ++run.step;
  return loss_sum;
}

/// What each step of this rank was made of, for people who look for the cause of a spike.
class SampleLog {
 public:
  SampleLog(const std::string& prefix, int rank, bool append) {
    if (prefix.empty()) return;
    path_ = prefix + "." + std::to_string(rank);
    out_.open(path_, append ? std::ios::app : std::ios::trunc);
    check();
  }
  void add(std::uint64_t epoch, std::uint64_t step, const libtorch::ImageLoader::Batch& batch) {
    if (path_.empty()) return;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      out_ << epoch << ' ' << step << ' ' << batch.samples[i].item<std::int64_t>() << '\n';
    }
    out_.flush();
    check();
  }

 private:
  void check() const {
    if (!out_) throw_errno(errno, "cannot write the log of samples", path_);
  }

  std::string path_;
  std::ofstream out_;
};

struct Threads {
  unsigned loading;
  int compute;  ///< 0: as LibTorch has them
};

/// True if a variable tells LibTorch its number of threads.
bool has_own_threads() {
  return std::ranges::any_of(std::array{"OMP_NUM_THREADS", "MKL_NUM_THREADS"},
                             [](const char* name) {
                               const char* const value = std::getenv(name);
                               return value != nullptr && *value != '\0';
                             });
}

Threads choose_threads(const Options& options, const ProcessGroup& group) {
  const unsigned share = cores_of_rank(static_cast<unsigned>(group.local_world_size()));
  Threads threads{.loading = options.threads.value_or(std::min(share, 4U)),
                  .compute = options.compute_threads};
  if (threads.compute == 0 && !has_own_threads()) threads.compute = static_cast<int>(share);
  return threads;
}

Dataset open_dataset(const std::string& index, const std::string& root, const Options& options,
                     const std::shared_ptr<ShardCache>& cache = nullptr) {
  const tools::FoundIndex found = tools::find_index(index, options.first_use);
  const Index::Lookup lookup{
      .root = root, .accept_times = options.lookup.accept_times, .urls = found.urls};
  return Dataset(Index::open(found.path, lookup), {.access = options.access,
                                                   .cache = cache,
                                                   .fetchers = tools::make_fetchers(options.cache),
                                                   .cancel = options.first_use.cancel,
                                                   .root = root,
                                                   .accept_times = options.lookup.accept_times,
                                                   .allow_part = options.order.allow_part});
}

ProcessGroup* current_group = nullptr;  // for rank_prefix()

}  // namespace

std::string version() {
  nlohmann::ordered_json json = tools::version_json();
  json["libtorch"] = TORCH_VERSION;
  json["ranks"] = libtorch::has_distributed() ? "by Gloo" : "one rank only: built without Gloo";
  return tools::version_text("shardwise-train", json);
}

std::string rank_prefix() {
  if (current_group == nullptr || current_group->world_size() == 1) return {};
  return "rank " + std::to_string(current_group->rank()) + " of " +
         std::to_string(current_group->world_size()) + ": ";
}

/// The samples to train on: an index, or the indexes of a mixture.
MixedDataset open_training(const Options& options, const std::shared_ptr<ShardCache>& cache) {
  return tools::open_data(options.order, options.train_index, [&](const std::string& index) {
    return open_dataset(index, options.lookup.root, options, cache);
  });
}

void check(const Options& options, int world_size) {
  const MixedDataset train = open_training(options, nullptr);
  if (train.empty() && options.order.where) {
    throw InvalidArgument("no sample satisfies the condition", "--where", "change the condition");
  }
  require_samples(train, options.train_index);
  try {
    libtorch::ImageLoader::validate(train, loader_options(options, 1, train), world_size);
  } catch (const InvalidArgument& e) {
    throw CLI::ValidationError(e.what(), CLI::ExitCodes::ValidationError);
  }
  if (!options.eval_index.empty()) {
    require_samples(open_dataset(options.eval_index, options.eval_root, options),
                    options.eval_index);
  }
  if (options.checkpoint.empty()) return;
  const bool is_there = libtorch::CheckpointFile::exists(options.checkpoint);
  if (options.resume && !is_there) {
    throw NotFound("the checkpoint does not exist", in_quotes(options.checkpoint),
                   "check the path, or start without --resume");
  }
  if (!options.resume && is_there) {
    throw InvalidArgument("the checkpoint exists already", in_quotes(options.checkpoint),
                          "continue it with --resume, or name another file");
  }
}

/// What all ranks must have alike, beside what the loaders compare.
void require_same_run(const Options& options, const std::optional<Dataset>& eval,
                      const ProcessGroup& group) {
  std::ostringstream rate;
  rate << options.learning_rate;
  group.require_same({{"--eval", eval ? to_string(eval->fingerprint()) : "nothing"},
                      {"--epochs", std::to_string(options.epochs)},
                      {"--lr", rate.str()},
                      {"--seed", std::to_string(options.order.order.seed)},
                      {"--classes", std::to_string(options.classes)},
                      {"--checkpoint", options.checkpoint.empty() ? "none" : "given"},
                      {"--checkpoint-steps", std::to_string(options.checkpoint_steps)},
                      {"--patience", std::to_string(options.patience)},
                      {"--resume", options.resume ? "given" : "not given"},
                      {"--allow-changes", options.allow_changes ? "given" : "not given"}});
}

libtorch::StopGuard::Options guard_options(const Options& options) {
  const auto time = [](double minutes) {
    return std::chrono::milliseconds(std::llround(minutes * 60'000));
  };
  return {.signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2},
          .max_time = time(options.max_minutes),
          .save_every = time(options.checkpoint_minutes)};
}

namespace {

/// One rank's training.
class Training {
 public:
  Training(const Options& options, const ProcessGroup& group, libtorch::StopGuard& guard)
      : options_(options), group_(group), guard_(guard), reporter_(options, group.is_first()) {}

  void set_up() {
    sample_log_.emplace(options_.sample_log, group_.rank(), options_.resume);
    if (group_.is_first()) check(options_, group_.world_size());
    const Threads threads = choose_threads(options_, group_);
    if (threads.compute > 0) torch::set_num_threads(threads.compute);
    torch::manual_seed(options_.order.order.seed);
    const MixedDataset data = open_all();
    require_same_run(options_, eval_, group_);
    if (!options_.checkpoint.empty()) {
      file_.emplace(options_.checkpoint, group_,
                    libtorch::CheckpointFile::Options{
                        .keep = options_.keep,
                        .on_refused = [](const std::string& why) { tools::say("warning", why); }});
    }
    loader_.emplace(data, group_, loader_options(options_, threads.loading, data));
    run_.emplace(count_classes(data, options_, group_, guard_.token()));
    libtorch::broadcast_parameters(*run_->model, group_);
    gradients_.emplace(run_->model->parameters());
    step_size_ = step_size(options_, group_);
    epoch_size_ =
        options_.order.order.epoch_size == 0 ? data.size() : options_.order.order.epoch_size;
    if (options_.patience > 0) {
      early_.emplace(group_, libtorch::EarlyStop::Options{.patience = options_.patience});
    }
    if (options_.resume) resume();
    saved_step_ = run_->step;
    evaluation_.threads = threads.loading;
    evaluation_.resize = {options_.height, options_.width};
    evaluation_.image_field = options_.image_field;
    evaluation_.label_field = options_.label_field;
    is_set_up_ = true;
  }

  /// All that is left, or until the ranks stop.
  void run() {
    if (run_->evaluation_due) {
      reporter_.evaluated(loader_->loader().epoch_number() - 1, evaluate());
      save();
      if (guard_.should_stop()) return;
    }
    std::uint64_t num_epochs = options_.epochs;
    for (auto epoch : loader_->epochs(options_.epochs)) {
      if (early_ && early_->num_since_best() >= options_.patience) {
        guard_.request("no better accuracy in " + std::to_string(options_.patience) +
                       " evaluations");
        num_epochs = epoch.number();
        break;
      }
      if (!run_epoch(epoch)) return;
    }
    reporter_.run_done(num_epochs, loader_->loader().bad_samples(), loader_->loader().stats());
  }

  /// The checkpoint of ranks that stop, unless the last one has it all, or a rank has not been set
  /// up: then the model and the loader may stand at different steps. Collective.
  void save_at_stop() {
    if (group_.any(!is_set_up_) || !file_ || !group_.any(run_->step != saved_step_)) return;
    save();
  }

  void end() {
    const std::uint64_t step = run_ ? run_->step : 0;
    const bool is_saved = has_checkpoint_ && saved_step_ == step;
    if (!guard_.reason().empty()) {
      reporter_.stopped(guard_.reason(), step, is_saved ? options_.checkpoint : "");
    }
    reporter_.require_written();
  }

 private:
  MixedDataset open_all() {
    std::shared_ptr<ShardCache> cache;  // one for all data sets
    MixedDataset data =
        tools::open_data(options_.order, options_.train_index, [&](const std::string& index) {
          if (cache) return open_dataset(index, options_.lookup.root, options_, cache);
          Dataset part = tools::open_dataset(tools::find_index(index, options_.first_use),
                                             options_.lookup, options_.access, options_.cache,
                                             options_.order.allow_part, options_.first_use.cancel);
          cache = part.cache();
          return part;
        });
    if (!options_.eval_index.empty()) {
      eval_ = open_dataset(options_.eval_index, options_.eval_root, options_, cache);
    }
    std::vector<std::string> urls = tools::urls_of(data);
    if (eval_) std::ranges::move(tools::urls_of(eval_->index()), std::back_inserter(urls));
    tools::check_servers(options_.cache.fetching, urls, options_.first_use.quiet);
    return data;
  }

  void resume() {
    const std::optional<libtorch::Checkpoint> last = file_->read();
    if (!last) {
      throw NotFound("the checkpoint does not exist", in_quotes(options_.checkpoint),
                     "check the path, or start without --resume");
    }
    take_over(*last, *run_);
    has_checkpoint_ = true;
    if (early_ && last->contains("best")) {
      early_->restore(last->number("best"),
                      static_cast<std::uint64_t>(last->integer("since_best")));
    }
    loader_->loader().restore(last->token(), options_.allow_changes
                                                 ? Sampler::Changes::kAllowAtEpochBorder
                                                 : Sampler::Changes::kRefuse);
    run_->evaluation_due = run_->evaluation_due && eval_.has_value();
    if (group_.is_first() && loader_->loader().epoch_number() >= options_.epochs) {
      tools::say("note", "the run in the checkpoint has come to the end of epoch " +
                             std::to_string(loader_->loader().epoch_number() - 1) +
                             ", and --epochs is " + std::to_string(options_.epochs) + ": " +
                             (run_->evaluation_due ? "only the evaluation of that epoch is left"
                                                   : "nothing is left to train"));
    }
  }

  void save() {
    run_->add_up(group_);
    write_checkpoint(*file_, *run_, loader_->loader().state(), early_ ? &*early_ : nullptr);
    saved_step_ = run_->step;
    has_checkpoint_ = true;
  }

  /// The accuracy after an epoch. Ranks that stop within it make it first when the run goes on.
  Mean evaluate() {
    const Mean accuracy = [&] {
      try {
        return libtorch::exact_accuracy(run_->model, *eval_, group_, evaluation_);
      } catch (const BadField& e) {
        throw BadField(std::string(e.what()) +
                       "; that is for --train: --eval needs all its samples");
      }
    }();
    if (early_) early_->should_stop(accuracy);
    run_->evaluation_due = false;
    return accuracy;
  }

  /// False if the ranks stop within the epoch.
  bool run_epoch(const libtorch::ImageLoader::Epoch& epoch) {
    const auto start = Clock::now();
    Run& run = *run_;
    const Loader::Stats loaded_before = loader_->loader().stats();
    const auto averaging_before = gradients_->time_spent();
    const std::int64_t samples_before = run.samples;
    reporter_.begin_epoch();
    run.model->train();
    std::int64_t samples = 0;
    for (auto& batch : epoch) {
      const double rate =
          rate_at(epoch.number() * epoch_size_ + std::min(run.planned, epoch_size_), step_size_,
                  options_.epochs * epoch_size_, options_.learning_rate);
      for (auto& parameters : run.optimizer.param_groups()) {
        static_cast<torch::optim::AdamWOptions&>(parameters.options()).lr(rate);
      }
      sample_log_->add(epoch.number(), run.step, batch);
      run.loss_sum_here += train_step(run, *gradients_, batch, group_);
      run.samples_here += batch.size();
      run.planned += step_size_;
      samples += batch.size();
      report_progress(epoch, static_cast<double>(samples) / seconds_since(start));
      // What ends with the epoch is saved there.
      if (loader_->loader().steps_left() == 0) {
        run.evaluation_due = eval_.has_value();
        continue;
      }
      if (guard_.should_stop()) return false;
      const bool is_due = guard_.should_save();
      const bool is_step =
          options_.checkpoint_steps > 0 && run.step % options_.checkpoint_steps == 0;
      if (is_due || is_step) save();
    }
    run.add_up(group_);
    const double seconds = seconds_since(start);
    const double loss = run.loss_sum / static_cast<double>(std::max<std::int64_t>(run.samples, 1));
    const std::int64_t num_samples = run.samples - samples_before;
    run.loss_sum = 0;
    run.samples = 0;
    run.planned = 0;
    const std::string proof = epoch.prove();
    std::optional<Mean> accuracy;
    try {
      if (group_.world_size() > 1) {
        reporter_.report(libtorch::epoch_report(loader_->loader().stats(), loaded_before,
                                                gradients_->time_spent() - averaging_before,
                                                group_));
      }
      libtorch::average_buffers(*run.model, group_);
      libtorch::require_same_replicas(*run.model, group_);
      if (eval_) accuracy = evaluate();
    } catch (...) {
      reporter_.epoch_done(epoch.number(), loss, num_samples, seconds, accuracy, proof);
      throw;
    }
    reporter_.epoch_done(epoch.number(), loss, num_samples, seconds, accuracy, proof);
    if (file_) save();
    return !guard_.should_stop();
  }

  void report_progress(const libtorch::ImageLoader::Epoch& epoch, double samples_per_second) {
    const Run& run = *run_;
    const auto samples = static_cast<double>(run.samples_here);
    reporter_.progress(epoch.number(), epoch.steps() - loader_->loader().steps_left(),
                       epoch.steps(), run.samples_here > 0 ? run.loss_sum_here / samples : 0,
                       samples_per_second * group_.world_size());
  }

  const Options& options_;
  const ProcessGroup group_;
  libtorch::StopGuard& guard_;
  Reporter reporter_;
  std::optional<SampleLog> sample_log_;
  std::optional<libtorch::CheckpointFile> file_;
  std::optional<Dataset> eval_;
  std::optional<libtorch::ImageLoader> loader_;
  std::optional<Run> run_;
  std::optional<libtorch::GradientAverager> gradients_;
  std::optional<libtorch::EarlyStop> early_;
  libtorch::EvaluateOptions evaluation_;
  std::uint64_t step_size_ = 0;   ///< samples of a step of all ranks
  std::uint64_t epoch_size_ = 0;  ///< samples of an epoch
  std::uint64_t saved_step_ = 0;
  bool has_checkpoint_ = false;  ///< of that step
  bool is_set_up_ = false;
};

}  // namespace

void train(const Options& options, libtorch::StopGuard& guard) {
  const RankEnvironment ranks = rank_environment();
  // One says whom all wait for; that it is rank 0, the others say, and each that it is interrupted.
  const auto notice = [&](const std::string& text) {
    const bool is_own = text.starts_with("waiting for rank 0 ") || text.starts_with("interrupted");
    if (options.first_use.quiet || (ranks.rank != 0 && !is_own)) return;
    tools::say("note", describe(ranks) + ": " + text);
  };
  const std::chrono::milliseconds timeout(std::llround(options.timeout_seconds * 1000));
  static ProcessGroup group = libtorch::init_process_group(
      {.connect_timeout = timeout, .timeout = timeout, .notice = notice, .guard = &guard});
  current_group = &group;
  Training training(options, group, guard);
  guard.run(
      [&] {
        training.set_up();
        training.run();
      },
      [&] { training.save_at_stop(); });
  training.end();
}

}  // namespace shardwise::train
