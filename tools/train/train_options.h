#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache_options.h"
#include "first_use.h"
#include "order_options.h"
#include "shardwise/data/dataset.h"

namespace shardwise::train {

/// Options of the command line.
struct Options {
  std::string train_index;
  std::string eval_index;  ///< empty means no evaluation
  std::uint64_t epochs = 10;
  std::int64_t batch_size = 32;        ///< samples per step on each rank
  std::int64_t global_batch_size = 0;  ///< samples per step on all ranks; 0 means batch_size
  std::uint64_t max_bad = 0;           ///< limit of bad samples in the run
  std::optional<unsigned> threads;  ///< loading threads per rank; if not set, the program chooses
  int compute_threads = 0;          ///< LibTorch's threads per rank; 0 means the program chooses
  double learning_rate = 3e-3;
  std::int64_t height = 0;  ///< 0 means the images' own size
  std::int64_t width = 0;
  std::string image_field;
  std::string label_field = "cls";
  std::int64_t classes = 0;  ///< 0 means the largest label plus 1
  std::string checkpoint;    ///< empty means no checkpoint
  std::string sample_log;    ///< prefix of the files that list the samples of each step; empty
                             ///< means no such files
  int keep = 2;              ///< number of checkpoints to keep
  std::uint64_t checkpoint_steps = 0;  ///< steps between checkpoints; 0 means only at ends of
                                       ///< epochs
  double checkpoint_minutes = 0;  ///< minutes between checkpoints; 0 means no checkpoints by time
  double max_minutes = 0;         ///< the run stops after this time; 0 means no limit
  std::uint64_t patience = 0;  ///< evaluations without improvement before a stop; 0 means no limit
  double timeout_seconds = 300;  ///< limit for waiting for other ranks in one call
  bool resume = false;
  bool allow_changes = false;  ///< accept other data or another order when resuming at an epoch's
                               ///< end
  int local_ranks = 0;         ///< 0 means start no ranks; this process is a rank, or runs alone
  Dataset::Access access = Dataset::Access::kMap;
  Index::Lookup lookup;   ///< for the training index or indexes
  std::string eval_root;  ///< root folder of the evaluation index
  tools::CacheArguments cache;
  tools::FirstUse first_use;
  bool json = false;

  tools::OrderArguments order;  ///< order of the training samples
};

/// Returns the command line of `shardwise-train`, which sets `options`. Needs no LibTorch.
/// @param version  returns the text for --version.
std::unique_ptr<CLI::App> make_program(Options& options, std::function<std::string()> version);

/// Parses the command line.
/// @return  true if the program should continue. Otherwise help was shown, or wrong usage was
/// reported on standard error; `exit_code` is set.
bool parse_options(int argc, char** argv, std::function<std::string()> version, Options& options,
                   int& exit_code);

}  // namespace shardwise::train
