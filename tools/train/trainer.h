#pragma once

#include <atomic>
#include <string>

#include "train_options.h"

namespace shardwise::train {

/// Set by a signal handler: the run ends at the next step.
extern std::atomic<int> stop_signal;
/// Set with it: what is being read for an index ends at once.
extern std::atomic<bool> stop_requested;

/// Checks, before any rank is started, what every rank would stumble over.
/// Errors: as train().
void check(const Options& options, int world_size);

/// Runs this rank, which init_process_group() makes one of several. Rank 0 prints.
/// Errors: those of the library; Cancelled if stop_signal was set.
void train(const Options& options);

/// What `--version` says: this program's version, LibTorch's, and how ranks meet.
std::string version();

/// The rank and number of ranks of this process for error texts, as "rank 1 of 2: "; empty if
/// alone.
std::string rank_prefix();

}  // namespace shardwise::train
