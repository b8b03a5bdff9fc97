#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "model.h"
#include "shardwise/libtorch/checkpoint.h"
#include "shardwise/libtorch/data_parallel.h"
#include "shardwise/libtorch/evaluate.h"
#include "shardwise/libtorch/image_loader.h"

namespace shardwise::train {

/// The state that a checkpoint holds besides that of the loader.
struct Run {
  explicit Run(std::int64_t num_classes);

  /// Makes one step with this rank's share of the batch. Collective.
  /// Errors: BadField, for a label that is not a class.
  void make_step(const libtorch::ImageLoader::Batch& batch, double learning_rate,
                 libtorch::GradientAverager& gradients, const libtorch::ProcessGroup& group);
  /// Adds up the loss and samples of all ranks since the last call. Collective.
  void add_up(const libtorch::ProcessGroup& group);
  /// Returns this rank's mean loss since the last add_up().
  [[nodiscard]] double loss_here() const;

  /// @param early  state of early stopping; nullptr without early stopping.
  /// Errors: those of CheckpointFile.
  void write(libtorch::CheckpointFile& file, const ResumeToken& token,
             const libtorch::EarlyStop* early) const;
  /// Errors: NotFound, Mismatch.
  void restore(const libtorch::Checkpoint& checkpoint);

  std::int64_t classes;
  SmallCnn model;
  torch::optim::AdamW optimizer;
  std::uint64_t step = 0;       ///< steps taken since the beginning of the run
  std::uint64_t planned = 0;    ///< samples of the steps of this epoch so far, all ranks
  double loss_sum = 0;          ///< of this epoch so far, all ranks
  std::int64_t samples = 0;     ///< of this epoch so far, all ranks
  bool evaluation_due = false;  ///< of the epoch that ended last
  double loss_sum_here = 0;     ///< of this rank, not in loss_sum yet
  std::int64_t samples_here = 0;
};

}  // namespace shardwise::train
