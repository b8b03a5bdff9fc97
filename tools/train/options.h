#pragma once

#include <cstdint>
#include <string>

#include "cache_options.h"
#include "shardwise/data/dataset.h"
#include "shardwise/order/options.h"

namespace shardwise::train {

/// What the command line asks for.
struct Options {
  std::string train_index;
  std::string eval_index;  ///< empty: no evaluation
  std::uint64_t epochs = 10;
  std::int64_t batch_size = 64;  ///< of a step, all ranks together
  unsigned threads = 0;          ///< loading, a rank; 0: chosen
  int compute_threads = 0;       ///< of LibTorch, a rank; 0: chosen
  double learning_rate = 3e-3;
  std::int64_t height = 0;  ///< 0: as stored
  std::int64_t width = 0;
  std::uint64_t seed = 0;
  std::string image_field;
  std::string label_field = "cls";
  std::int64_t classes = 0;            ///< 0: the largest label and one
  std::string checkpoint;              ///< empty: none
  std::uint64_t checkpoint_steps = 0;  ///< also within an epoch; 0: at its end only
  bool resume = false;
  int local_ranks = 0;  ///< 0: this process is a rank, or alone
  Access access = Access::kMap;
  tools::CacheArguments cache;
  bool json = false;
  bool quiet = false;

  // The order of the training samples.
  SamplerKind sampler = SamplerKind::kChunked;
  std::uint64_t chunk_size = kDefaultChunkSize;
  std::uint64_t window = 64;
  std::uint64_t streams = 1;
  Tail tail = Tail::kExact;
  bool shuffle = true;
  bool shufflefirst = false;

  /// Samples a step of each of `world_size` ranks.
  /// Errors: InvalidArgument if batch_size is no multiple of it.
  std::int64_t rank_batch_size(int world_size) const;
};

/// @return  true if the program is to go on; otherwise `exit_code` is what to end with: help was
///          shown, or the usage was wrong and stderr says so.
bool parse_options(int argc, char** argv, Options& options, int& exit_code);

}  // namespace shardwise::train
