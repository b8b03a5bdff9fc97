// Trains an image classifier on samples (image, class number), data parallel, with augmentation,
// exact evaluation, early stopping, and checkpoints. A run continues from a checkpoint on any
// number of ranks, even after Ctrl-C, SIGTERM or an error on one rank. Copy this program, replace
// the model, and remove the parts that you do not need.
//
//     train_images --train SHARDS --eval SHARDS --epochs 90 --checkpoint run.pt
//
// alone, or under torchrun --no-python, mpirun or srun. `train_images --help` lists the options.

#include <shardwise/libtorch/advanced.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace sl = shardwise::libtorch;

constexpr const char* kHelp = R"(usage: train_images --train SHARDS [OPTION VALUE]...
  --train SHARDS            an index, a folder of shards, a pattern, a URL
  --eval SHARDS             evaluates after each epoch
  --eval-only 1             evaluates the model of the checkpoint, without training
  --epochs N                [10]
  --global-batch-size N     samples of a backward pass, on all ranks together [128]
  --accumulate N            backward passes of a step, of global-batch-size samples each [1]
  --size N                  images become N x N [64]
  --classes N               [the largest number in the index's column cls, plus 1]
  --lr X                    the learning rate [0.001]
  --seed N                  [17]
  --threads N               loading threads of each rank [4]
  --skip FILE               sample numbers to leave out, one a line
  --max-bad N               samples that may turn out bad [0]
  --patience N              ends after N epochs without a better accuracy; 0 means never [0]
  --checkpoint FILE         written after each epoch; if it exists, the run continues from it
  --checkpoint-minutes X    minutes between checkpoints in an epoch; 0 means only at its end [0]
  --timeout X               seconds that a rank waits for the others in one step [300]
)";

/// Options of the form "--name value".
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (std::string(kHelp).find("\n  " + name + " ") == std::string::npos) {
        throw std::invalid_argument("no option '" + name + "'");
      }
      if (i + 1 == argc) throw std::invalid_argument(name + " has no value");
      values_[name] = argv[i + 1];
    }
  }
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  double number(const std::string& name, double otherwise) const {
    if (text(name).empty()) return otherwise;
    std::istringstream in(text(name));
    double number = -1;
    if (in >> number && in.eof() && number >= 0) return number;
    throw std::invalid_argument(name + " must be a number of at least 0, not '" + text(name) + "'");
  }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const {
    const double value = number(name, static_cast<double>(otherwise));
    if (value == std::floor(value) && value < 1e15) return static_cast<std::int64_t>(value);
    throw std::invalid_argument(name + " must be an integer, not '" + text(name) + "'");
  }

 private:
  std::map<std::string, std::string> values_;
};

/// A small network. Any module whose input is uint8 [N, 3, H, W] works.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t classes) {
    std::int64_t from = 3;
    for (const std::int64_t to : {32, 64, 128}) {
      layers->push_back(torch::nn::Conv2d(
          torch::nn::Conv2dOptions(from, to, 3).stride(2).padding(1).bias(false)));
      layers->push_back(torch::nn::BatchNorm2d(to));
      layers->push_back(torch::nn::ReLU());
      from = to;
    }
    layers->push_back(torch::nn::AdaptiveAvgPool2d(1));
    layers->push_back(torch::nn::Flatten());
    layers->push_back(torch::nn::Linear(from, classes));
    register_module("layers", layers);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return layers->forward(images.to(torch::kFloat).sub(127.5).div(64));
  }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Net);

/// Returns --classes if given, else the number of classes in the index's column. Reads no shard.
std::int64_t num_classes(const Options& options, const shardwise::Dataset& data) {
  if (const auto classes = options.integer("--classes", 0); classes > 0) return classes;
  try {
    const auto labels = data.numbers("cls");
    if (labels.empty()) throw std::invalid_argument("the index has no samples to train on");
    return static_cast<std::int64_t>(*std::max_element(labels.begin(), labels.end())) + 1;
  } catch (const shardwise::NotFound&) {
    throw std::invalid_argument(
        "the index has no column cls; give --classes, or build the index with shardwise index "
        "--column cls");
  }
}

shardwise::SkipList read_skip_list(const std::string& path) {
  shardwise::SkipList skip;
  if (path.empty()) return skip;
  std::ifstream in(path);
  for (std::uint64_t sample = 0; in >> sample;) skip.add_sample(sample, path);
  if (!in.eof()) throw std::invalid_argument("cannot read sample numbers from " + path);
  return skip;
}

sl::ImageLoader::Options loader_options(const Options& options) {
  const auto size = static_cast<std::size_t>(options.integer("--size", 64));
  sl::ImageLoader::Options loader;
  loader.order.seed = static_cast<std::uint64_t>(options.integer("--seed", 17));
  loader.order.skip = read_skip_list(options.text("--skip"));
  loader.global_batch_size = options.integer("--global-batch-size", 128);
  loader.threads = static_cast<unsigned>(options.integer("--threads", 4));
  loader.max_bad = static_cast<std::uint64_t>(options.integer("--max-bad", 0));
  loader.transform.random_resized_crop = {.size = {size, size}, .scale = {0.35, 1.0}};
  loader.transform.horizontal_flip = 0.5;
  return loader;
}

/// The state in a checkpoint in addition to the loader's position.
struct Run {
  Run(std::int64_t classes, double rate)
      : model(classes), optimizer(model->parameters(), torch::optim::AdamWOptions(rate)) {}

  void save(sl::CheckpointFile& file, sl::ImageLoader& images) {
    sl::Checkpoint now(images.loader().state());
    now.put("model", *model);
    now.put("optimizer", optimizer, *model);
    if (stop) now.put("best", stop->best());
    if (stop) now.put("since_best", static_cast<std::int64_t>(stop->num_since_best()));
    now.put("evaluation_due", int{is_evaluation_due});
    file.write(now);
  }
  void load(const sl::Checkpoint& last) {
    last.load("model", *model);
    last.load("optimizer", optimizer, *model);
    is_evaluation_due = last.contains("evaluation_due") && last.integer("evaluation_due") != 0;
    if (!stop || !last.contains("best")) return;
    stop->restore(last.number("best"), static_cast<std::uint64_t>(last.integer("since_best")));
  }

  Net model;
  torch::optim::AdamW optimizer;
  std::optional<sl::EarlyStop> stop;
  bool is_evaluation_due = false;  // stopped between last step and evaluation
};

/// Adds the gradients of the summed losses. GradientAverager later sums them over all ranks, and
/// divides by the number of samples. Returns the sum of the losses. The batch may be empty at the
/// end of an epoch.
double backward(Net& model, const sl::ImageLoader::Batch& batch) {
  if (batch.size() == 0) return 0;
  const auto sum = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  const auto loss =
      torch::nn::functional::cross_entropy(model->forward(batch.images), batch.labels, sum);
  loss.backward();
  return loss.item<double>();
}

/// Evaluates after an epoch. A signal ends the evaluation after a batch, without a result.
void evaluate(Run& run, const std::optional<shardwise::Dataset>& eval,
              const sl::ProcessGroup& group, const Options& options) {
  const auto size = options.integer("--size", 64);
  // Buffers of batch normalisation differ: each rank has seen other samples.
  sl::average_buffers(*run.model, group);
  if (eval) {
    const sl::Mean accuracy =
        sl::exact_accuracy(run.model, *eval, group, {.batch_size = 64, .resize = {size, size}});
    if (group.is_first())
      std::printf("accuracy %.2f %% (%.0f of %lld, each counted once)\n", 100 * accuracy.value(),
                  accuracy.sum, static_cast<long long>(accuracy.count));
    if (run.stop) run.stop->should_stop(accuracy);
  }
  run.is_evaluation_due = false;
}

void train(const Options& options, const sl::ProcessGroup& group, sl::StopGuard& guard) {
  const auto data = shardwise::Dataset::open(options.text("--train"));
  std::optional<shardwise::Dataset> eval;
  if (!options.text("--eval").empty()) eval = shardwise::Dataset::open(options.text("--eval"));
  const double rate = options.number("--lr", 1e-3);
  const auto accumulate = options.integer("--accumulate", 1);
  if (accumulate < 1) throw std::invalid_argument("--accumulate must be at least 1");
  const auto epochs = static_cast<std::uint64_t>(options.integer("--epochs", 10));
  group.require_same({{"--lr", std::to_string(rate)},
                      {"--accumulate", std::to_string(accumulate)},
                      {"--epochs", std::to_string(epochs)},
                      {"--size", options.text("--size", "64")},
                      {"--eval", eval ? to_string(eval->fingerprint()) : "none"},
                      {"--patience", options.text("--patience", "0")},
                      {"--checkpoint", options.text("--checkpoint").empty() ? "none" : "given"},
                      {"--eval-only", options.text("--eval-only", "0")}});
  torch::manual_seed(static_cast<std::uint64_t>(options.integer("--seed", 17)));
  Run run(num_classes(options, data), rate);
  const auto patience = static_cast<std::uint64_t>(options.integer("--patience", 0));
  if (patience > 0) run.stop.emplace(group, sl::EarlyStop::Options{.patience = patience});
  sl::ImageLoader images(data, group, loader_options(options));
  std::optional<sl::CheckpointFile> file;
  bool is_trained = false;
  if (const std::string path = options.text("--checkpoint"); !path.empty()) {
    file.emplace(path, group);
    if (const auto last = file->read()) {
      run.load(*last);
      images.loader().restore(last->token());
      is_trained = true;
    }
  }
  sl::broadcast_parameters(*run.model, group);
  if (options.integer("--eval-only", 0) != 0) {
    if (!eval || !is_trained)
      throw std::invalid_argument("--eval-only needs --eval and an existing --checkpoint");
    return guard.run([&] { evaluate(run, eval, group, options); });
  }
  sl::GradientAverager gradients(run.model->parameters());
  const auto save = [&] { return file ? run.save(*file, images) : void(); };  // on every rank
  const auto end_epoch = [&] {
    evaluate(run, eval, group, options);
    sl::require_same_replicas(*run.model, group);
    save();
  };
  const auto work = [&] {
    if (run.is_evaluation_due) end_epoch();  // the previous run stopped before the evaluation
    for (auto epoch : images.epochs(epochs)) {
      if (guard.should_stop()) return;  // same result on all ranks
      if (run.stop && run.stop->num_since_best() >= patience) {
        if (group.is_first()) std::printf("no better for %d epochs: done\n", int(patience));
        break;
      }
      const auto loaded = images.loader().stats();
      const auto averaging = gradients.time_spent();
      double loss_sum = 0;
      std::int64_t seen = 0, passes = 0, samples = 0;
      run.model->train();
      run.optimizer.zero_grad();
      for (auto& batch : epoch) {
        loss_sum += backward(run.model, batch);
        seen += batch.size();
        samples += batch.size();
        if (++passes % accumulate != 0 && images.loader().steps_left() > 0) continue;
        gradients.average(samples, group);  // one all-reduce for all passes
        run.optimizer.step();
        run.optimizer.zero_grad();
        samples = 0;
        run.is_evaluation_due = images.loader().steps_left() == 0;
        if (run.is_evaluation_due) continue;  // the save at the end of the epoch follows
        if (guard.should_stop()) return;
        if (guard.should_save()) save();
      }
      const std::string proof = epoch.prove();  // each sample exactly once, or NotExact
      const double mean_loss = sl::reduce_exact(loss_sum, seen, group).value();
      const std::string report = sl::epoch_report(images.loader().stats(), loaded,
                                                  gradients.time_spent() - averaging, group);
      if (group.is_first()) std::printf("%s\nloss %.4f\n", proof.c_str(), mean_loss);
      if (group.is_first()) std::fputs(report.c_str(), stderr);
      end_epoch();
    }
  };
  guard.run(work, save);  // calls save() if the ranks stop within work()
}

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--help") return std::fputs(kHelp, stdout), 0;
  static sl::StopGuard* guard = nullptr;  // never destroyed: signals may come late
  try {
    const Options options(argc, argv);
    if (options.text("--train").empty()) throw std::invalid_argument("--train INDEX is required");
    using Time = std::chrono::milliseconds;
    const Time save_every(std::llround(options.number("--checkpoint-minutes", 0) * 60'000));
    const Time timeout(std::llround(options.number("--timeout", 300) * 1000));
    guard = new sl::StopGuard({.save_every = save_every});
    train(options, sl::init_process_group({.timeout = timeout, .guard = guard}), *guard);
    if (guard->reason().empty()) return 0;
    std::fprintf(stderr, "stopped: %s\n", guard->reason().c_str());
    return guard->exit_code();
  } catch (const std::exception& e) {
    const bool is_usage = dynamic_cast<const std::invalid_argument*>(&e) != nullptr;
    std::fprintf(stderr, "train_images: %s%s\n", e.what(), is_usage ? "; see --help" : "");
    if (guard != nullptr && guard->exit_code() != 0) return guard->exit_code();  // 143: SIGTERM
    return is_usage ? 2 : 1;
  }
}
