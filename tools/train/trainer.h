#pragma once

#include <string>

#include "shardwise/libtorch/stop_guard.h"
#include "train_options.h"

namespace shardwise::train {

/// How the options have the ranks stop.
libtorch::StopGuard::Options guard_options(const Options& options);

/// Runs this rank, which init_process_group() makes one of several, until the last epoch, or until
/// the guard stops it. Rank 0 prints.
/// Errors: those of the library.
void train(const Options& options, libtorch::StopGuard& guard);

/// The text of --version: this program's version, LibTorch's, and how ranks communicate.
std::string version();

/// The rank and number of ranks of this process for error texts, as "rank 1 of 2: "; empty if
/// alone.
std::string rank_prefix();

}  // namespace shardwise::train
