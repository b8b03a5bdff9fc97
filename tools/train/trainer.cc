#include "trainer.h"

#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "base/cores.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/rank_environment.h"
#include "base/text.h"
#include "console.h"
#include "data.h"
#include "reporter.h"
#include "run.h"
#include "shardwise/base/error.h"
#include "shardwise/libtorch/epoch_report.h"
#include "shardwise/libtorch/learning_rate.h"
#include "version.h"

namespace shardwise::train {

namespace {

using libtorch::Mean;
using libtorch::ProcessGroup;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns the number of samples in a step, on all ranks together.
std::uint64_t step_size(const Options& options, const ProcessGroup& group) {
  if (options.global_batch_size > 0) return static_cast<std::uint64_t>(options.global_batch_size);
  return static_cast<std::uint64_t>(options.batch_size) *
         static_cast<std::uint64_t>(group.world_size()) / options.order.replicas;
}

/// Writes the samples of each step of this rank to a file, to find the cause of a spike in the
/// loss.
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
    if (!out_) throw_errno(errno, "cannot write the file of --log-samples", path_);
  }

  std::string path_;
  std::ofstream out_;
};

struct Threads {
  unsigned loading;
  int compute;  ///< 0 means LibTorch's default
};

/// True if an environment variable sets LibTorch's number of threads.
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

/// Checks that settings which the loaders do not compare are equal on all ranks.
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

ProcessGroup* current_group = nullptr;  // used by rank_prefix()

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

libtorch::StopGuard::Options guard_options(const Options& options) {
  const auto time = [](double minutes) {
    return std::chrono::milliseconds(std::llround(minutes * 60'000));
  };
  return {.signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2},
          .max_time = time(options.max_minutes),
          .save_every = time(options.checkpoint_minutes)};
}

namespace {

/// The training on one rank.
class Training {
 public:
  Training(const Options& options, const ProcessGroup& group, libtorch::StopGuard& guard)
      : options_(options), group_(group), guard_(guard), reporter_(options, group.is_first()) {}

  void set_up() {
    if (group_.is_first()) check(options_, group_.world_size());
    const Threads threads = choose_threads(options_, group_);
    if (threads.compute > 0) torch::set_num_threads(threads.compute);
    torch::manual_seed(options_.order.order.seed);
    Data data = open_data(options_);
    eval_ = std::move(data.evaluation);
    require_same_run(options_, eval_, group_);
    sample_log_.emplace(options_.sample_log, group_.rank(), options_.resume);
    if (!options_.checkpoint.empty()) {
      file_.emplace(options_.checkpoint, group_,
                    libtorch::CheckpointFile::Options{
                        .keep = options_.keep,
                        .on_refused = [](const std::string& why) { tools::say("warning", why); }});
    }
    loader_.emplace(data.training, group_,
                    loader_options(options_, threads.loading, data.training));
    run_.emplace(count_classes(data.training, options_, group_, guard_.token()));
    libtorch::broadcast_parameters(*run_->model, group_);
    gradients_.emplace(run_->model->parameters());
    step_size_ = step_size(options_, group_);
    epoch_size_ = options_.order.order.epoch_size == 0 ? data.training.size()
                                                       : options_.order.order.epoch_size;
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

  /// Trains until the last epoch, or until the ranks stop.
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

  /// Saves a checkpoint when the ranks stop, unless the last one is current. Saves nothing if a
  /// rank is not set up yet, since then the model and the loader may be at different steps.
  /// Collective.
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
  void resume() {
    const std::optional<libtorch::Checkpoint> last = file_->read();
    if (!last) {
      throw NotFound("the checkpoint does not exist", in_quotes(options_.checkpoint),
                     "check the path, or start without --resume");
    }
    run_->restore(*last);
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
      tools::say("note", "the run in the checkpoint ended epoch " +
                             std::to_string(loader_->loader().epoch_number() - 1) +
                             ", and --epochs is " + std::to_string(options_.epochs) + ": " +
                             (run_->evaluation_due ? "only the evaluation of that epoch remains"
                                                   : "give a larger --epochs to train on"));
    }
  }

  void save() {
    run_->add_up(group_);
    run_->write(*file_, loader_->loader().state(), early_ ? &*early_ : nullptr);
    saved_step_ = run_->step;
    has_checkpoint_ = true;
  }

  /// Returns the accuracy after an epoch. If the ranks stop during the evaluation, the continued
  /// run repeats it.
  Mean evaluate() {
    const Mean accuracy = [&] {
      try {
        return libtorch::exact_accuracy(run_->model, *eval_, group_, evaluation_);
      } catch (const BadField& e) {
        throw BadField(std::string(e.what()) +
                       "; --max-bad applies to --train only, because --eval needs all its samples");
      }
    }();
    if (early_) early_->should_stop(accuracy);
    run_->evaluation_due = false;
    return accuracy;
  }

  /// Runs an epoch. Returns false if the ranks stop within it.
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
      sample_log_->add(epoch.number(), run.step, batch);
      run.make_step(batch, next_rate(epoch.number()), *gradients_, group_);
      run.planned += step_size_;
      samples += batch.size();
      reporter_.progress(epoch.number(), epoch.steps() - loader_->loader().steps_left(),
                         epoch.steps(), run.loss_here(),
                         static_cast<double>(samples) / seconds_since(start) * group_.world_size());
      // No checkpoint after the last step: the epoch's end saves one.
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
    const auto tell = [&] {
      reporter_.epoch_done(epoch.number(), loss, num_samples, seconds, accuracy, proof);
    };
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
      tell();
      throw;
    }
    tell();
    if (file_) save();
    return !guard_.should_stop();
  }

  /// Returns the learning rate of the next step.
  double next_rate(std::uint64_t epoch) const {
    return libtorch::warm_up_cosine(epoch * epoch_size_ + std::min(run_->planned, epoch_size_),
                                    step_size_, options_.epochs * epoch_size_,
                                    options_.learning_rate);
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
  std::uint64_t step_size_ = 0;   ///< samples in a step, on all ranks
  std::uint64_t epoch_size_ = 0;  ///< samples in an epoch
  std::uint64_t saved_step_ = 0;
  bool has_checkpoint_ = false;  ///< the checkpoint of saved_step_ exists
  bool is_set_up_ = false;
};

}  // namespace

void train(const Options& options, libtorch::StopGuard& guard) {
  const RankEnvironment ranks = rank_environment();
  // Only rank 0 prints which rank it waits for. Others print only that they wait for rank 0, or are
  // interrupted.
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
