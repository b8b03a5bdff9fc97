#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "model.h"
#include "shardwise/libtorch/checkpoint.h"
#include "shardwise/libtorch/data_parallel.h"
#include "shardwise/libtorch/evaluate.h"
#include "shardwise/libtorch/image_loader.h"

namespace shardwise::train {

/// The state in a checkpoint in addition to that of the loader.
struct Run {
  explicit Run(std::int64_t num_classes);

  /// Makes one step with this rank's share of the batch. Collective.
  /// Errors: BadField for a label that is not a class.
  void make_step(const libtorch::ImageLoader::Batch& batch, double learning_rate,
                 libtorch::GradientAverager& gradients, const libtorch::ProcessGroup& group);
  /// Sums the loss and the number of samples since the last call over all ranks. Collective.
  void add_up(const libtorch::ProcessGroup& group);
  /// Returns this rank's mean loss since the last add_up().
  [[nodiscard]] double loss_here() const;

  /// Writes a checkpoint.
  /// @param early  state of early stopping; nullptr without early stopping.
  /// Errors: those of CheckpointFile.
  void write(libtorch::CheckpointFile& file, const ResumeToken& token,
             const libtorch::EarlyStop* early) const;
  /// Restores the state from a checkpoint. Errors: NotFound, Mismatch.
  void restore(const libtorch::Checkpoint& checkpoint);

  std::int64_t classes;
  SmallCnn model;
  torch::optim::AdamW optimizer;
  std::uint64_t step = 0;       ///< number of steps since the run began
  std::uint64_t planned = 0;    ///< samples in this epoch's steps so far, on all ranks, including
                                ///< bad ones
  double loss_sum = 0;          ///< sum in this epoch so far, on all ranks
  std::int64_t samples = 0;     ///< good samples in this epoch so far, on all ranks
  bool evaluation_due = false;  ///< the epoch that ended last is not evaluated yet
  double loss_sum_here = 0;     ///< this rank's loss that loss_sum does not include yet
  std::int64_t samples_here = 0;
};

}  // namespace shardwise::train
