#pragma once

#include <cstdint>

#include "shardwise/base/cancel.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/libtorch/process_group.h"
#include "train_options.h"

namespace shardwise::train {

/// Returns the largest label plus 1. If neither the options nor the indexes give it, each rank
/// reads a part of the labels. Collective.
/// Errors: InvalidArgument if that would fetch all shards; BadField.
std::int64_t count_classes(const MixedDataset& data, const Options& options,
                           const libtorch::ProcessGroup& group, const CancelToken& cancel);

}  // namespace shardwise::train
