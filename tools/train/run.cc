#include "run.h"

#include <string>

#include "base/error_types.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::train {
namespace {

/// Throws BadField for a label that is not a class.
void require_classes(const libtorch::ImageLoader::Batch& batch, std::int64_t classes) {
  const auto wrong = batch.labels.lt(0).logical_or(batch.labels.ge(classes));
  if (!wrong.any().item<bool>()) return;
  const auto row = wrong.nonzero()[0].item<std::int64_t>();
  throw BadField("a label is not a class",
                 "sample " + std::to_string(batch.samples[row].item<std::int64_t>()) +
                     " has the label " + std::to_string(batch.labels[row].item<std::int64_t>()),
                 "correct the label, or give a larger --classes; class numbers begin at 0");
}

}  // namespace

Run::Run(std::int64_t num_classes)
    : classes(num_classes),
      model(num_classes),
      optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(1e-2)) {}

void Run::make_step(const libtorch::ImageLoader::Batch& batch, double learning_rate,
                    libtorch::GradientAverager& gradients, const libtorch::ProcessGroup& group) {
  for (auto& parameters : optimizer.param_groups()) parameters.options().set_lr(learning_rate);
  optimizer.zero_grad();
  double loss_sum_of_step = 0;
  if (batch.size() > 0) {
    require_classes(batch, classes);
    const auto loss = torch::nn::functional::cross_entropy(
        model->forward(batch.images), batch.labels,
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    loss.backward();
    loss_sum_of_step = loss.item<double>();
  }
  gradients.average(batch.size(), group);
  optimizer.step();
  ++step;
  loss_sum_here += loss_sum_of_step;
  samples_here += batch.size();
}

void Run::add_up(const libtorch::ProcessGroup& group) {
  const libtorch::Mean rest = libtorch::reduce_exact(loss_sum_here, samples_here, group);
  loss_sum += rest.sum;
  samples += rest.count;
  loss_sum_here = 0;
  samples_here = 0;
}

double Run::loss_here() const {
  return samples_here > 0 ? loss_sum_here / static_cast<double>(samples_here) : 0;
}

void Run::write(libtorch::CheckpointFile& file, const ResumeToken& token,
                const libtorch::EarlyStop* early) const {
  libtorch::Checkpoint checkpoint(token);
  if (early != nullptr) {
    checkpoint.put("best", early->best());
    checkpoint.put("since_best", static_cast<std::int64_t>(early->num_since_best()));
  }
  checkpoint.put("model", *model);
  checkpoint.put("optimizer", optimizer, *model);
  checkpoint.put("classes", classes);
  checkpoint.put("step", static_cast<std::int64_t>(step));
  checkpoint.put("planned", static_cast<std::int64_t>(planned));
  checkpoint.put("samples", samples);
  checkpoint.put("loss_sum", loss_sum);
  checkpoint.put("evaluation_due", int{evaluation_due});
  file.write(checkpoint);
}

void Run::restore(const libtorch::Checkpoint& checkpoint) {
  const std::int64_t there = checkpoint.integer("classes");
  if (there != classes) {
    throw Mismatch("the number of classes differs from that of the checkpoint",
                   in_quotes(checkpoint.path()) + " has " + std::to_string(there) + ", this run " +
                       std::to_string(classes),
                   "resume with the data and the --classes of the first run, or start without "
                   "--resume");
  }
  checkpoint.load("model", *model);
  checkpoint.load("optimizer", optimizer, *model);
  step = static_cast<std::uint64_t>(checkpoint.integer("step"));
  samples = checkpoint.integer("samples");
  loss_sum = checkpoint.number("loss_sum");
  // Older checkpoints lack both values. `planned` includes bad samples, and `samples` does not.
  planned = static_cast<std::uint64_t>(
      checkpoint.contains("planned") ? checkpoint.integer("planned") : samples);
  evaluation_due =
      checkpoint.contains("evaluation_due") && checkpoint.integer("evaluation_due") != 0;
}

}  // namespace shardwise::train
