#pragma once

#include <string>

#include "shardwise/libtorch/stop_guard.h"
#include "train_options.h"

namespace shardwise::train {

/// Returns the options of the StopGuard, which decide how the ranks stop.
libtorch::StopGuard::Options guard_options(const Options& options);

/// Runs this rank until the last epoch, or until the guard stops it. Connects it to the other ranks
/// by init_process_group(). Rank 0 prints the results.
/// Errors: those of the library.
void train(const Options& options, libtorch::StopGuard& guard);

/// Returns the text of --version: the versions of this program and of LibTorch, and how ranks
/// communicate.
std::string version();

/// Returns the rank and the number of ranks for error texts, e.g. "rank 1 of 2: ". Returns "" if
/// this process is alone.
std::string rank_prefix();

}  // namespace shardwise::train
