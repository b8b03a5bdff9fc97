#pragma once

#include <string>

#include "shardwise/libtorch/stop_guard.h"
#include "train_options.h"

namespace shardwise::train {

/// Returns the options that decide how the ranks stop.
libtorch::StopGuard::Options guard_options(const Options& options);

/// Runs this rank until the last epoch, or until the guard stops it. init_process_group() connects
/// it to other ranks. Rank 0 prints.
/// Errors: those of the library.
void train(const Options& options, libtorch::StopGuard& guard);

/// The text of --version: this program's version, LibTorch's, and how ranks communicate.
std::string version();

/// The rank and number of ranks of this process for error texts, as "rank 1 of 2: "; empty if
/// alone.
std::string rank_prefix();

}  // namespace shardwise::train
