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

/// What the command line asks for.
struct Options {
  std::string train_index;
  std::string eval_index;  ///< empty: no evaluation
  std::uint64_t epochs = 10;
  std::int64_t batch_size = 32;        ///< of a step, each rank
  std::int64_t global_batch_size = 0;  ///< of a step, all ranks together, instead; 0: batch_size
  std::uint64_t max_bad = 0;           ///< samples that may turn out bad
  std::optional<unsigned> threads;     ///< loading, a rank; nothing: chosen
  int compute_threads = 0;             ///< of LibTorch, a rank; 0: chosen
  double learning_rate = 3e-3;
  std::int64_t height = 0;  ///< 0: as stored
  std::int64_t width = 0;
  std::string image_field;
  std::string label_field = "cls";
  std::int64_t classes = 0;  ///< 0: the largest label and one
  std::string checkpoint;    ///< empty: none
  std::string sample_log;    ///< prefix of files with the samples of each step; empty: none
  int keep = 2;              ///< checkpoints
  std::uint64_t checkpoint_steps = 0;  ///< also within an epoch; 0: at its end only
  double checkpoint_minutes = 0;       ///< also after this time; 0: not
  double max_minutes = 0;              ///< the run stops after this time; 0: not
  std::uint64_t patience = 0;          ///< evaluations without improvement; 0: any number
  double timeout_seconds = 300;        ///< how long a rank waits for the others in one call
  bool resume = false;
  bool allow_changes = false;  ///< on resuming, of data or order at the border of an epoch
  int local_ranks = 0;         ///< 0: this process is a rank, or alone
  Dataset::Access access = Dataset::Access::kMap;
  Index::Lookup lookup;   ///< of the index to train on, or of all of a mixture
  std::string eval_root;  ///< the same as its root, of the index to evaluate on
  tools::CacheArguments cache;
  tools::FirstUse first_use;
  bool json = false;

  tools::OrderArguments order;  ///< of the training samples
};

/// The command line of `shardwise-train`, which fills `options`. Needs no LibTorch.
/// @param version  gives what --version prints.
std::unique_ptr<CLI::App> make_program(Options& options, std::function<std::string()> version);

/// Parses the command line.
/// @return  true if the program is to go on; otherwise `exit_code` is what to end with: help was
///          shown, or the usage was wrong and stderr says so.
bool parse_options(int argc, char** argv, std::function<std::string()> version, Options& options,
                   int& exit_code);

}  // namespace shardwise::train
