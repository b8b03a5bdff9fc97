#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shardwise/base/cancel.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/libtorch/image_loader.h"
#include "shardwise/libtorch/process_group.h"
#include "train_options.h"

namespace shardwise::train {

/// The data sets of a run, which share one cache.
struct Data {
  MixedDataset training;  ///< one index, or a mixture
  std::optional<Dataset> evaluation;
};

/// Errors: those of Index and Dataset; InvalidArgument for conflicting options.
Data open_data(const Options& options);

/// Before any rank starts, checks for errors that all ranks would report.
/// Errors: those of open_data(); CLI::ValidationError; NotFound for a checkpoint from which to
/// resume.
void check(const Options& options, int world_size);

libtorch::ImageLoader::Options loader_options(const Options& options, unsigned threads,
                                              const MixedDataset& data);

/// Returns the largest label plus 1. If neither the options nor the indexes contain it, each rank
/// reads a part of the labels. Collective.
/// Errors: InvalidArgument if reading labels would fetch all shards; BadField.
std::int64_t count_classes(const MixedDataset& data, const Options& options,
                           const libtorch::ProcessGroup& group, const CancelToken& cancel);

}  // namespace shardwise::train
