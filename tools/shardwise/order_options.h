#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "first_use.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shardwise::tools {

/// The options that decide the order of samples. They have the same names in all commands with an
/// order, and in shardwise-train.
struct OrderArguments {
  std::string sampler = "chunked";
  Order order;  ///< without kind and skip list, which other members contain
  /// Given options that only some kinds of order have, by name.
  std::map<std::string_view, std::string> of_kind;
  bool no_shuffle = false;
  std::vector<std::string> mix;       ///< "INDEX=WEIGHT" each
  std::vector<std::string> schedule;  ///< "POSITION=WEIGHT,..." each
  std::string skip_file;
  std::optional<std::string> where;
  bool allow_part = false;
  std::uint64_t replicas = 1;

  /// Options that a token determines: --token and --checkpoint exclude them.
  std::vector<CLI::Option*> order_options;
};

/// Adds the options that decide an order. `arguments` must outlive `command`.
void add_order_options(CLI::App& command, OrderArguments& arguments);

/// Throws CLI::ValidationError for options that exclude each other, as far as this needs no data.
void check_order_options(const OrderArguments& arguments);

/// Returns the order that the options select.
/// @param data  null if only the number of samples is known.
/// Errors: CLI::ValidationError for options that exclude each other; those of reading --skip.
Order order_of(const OrderArguments& arguments, const MixedDataset* data);

/// Opens the data sets of --mix, or else `index`, and applies --where. `open` opens one index.
/// @param quiet  whether to show no progress.
/// Errors: CLI::RequiredError if neither is given; those of `open` and Dataset::where.
MixedDataset open_data(const OrderArguments& arguments, const std::string& index, bool quiet,
                       const std::function<Dataset(const std::string& index)>& open);

/// Options that select a run and a position in it.
struct RunArguments {
  OrderArguments order;
  std::string index;
  FirstUse first_use;
  std::optional<std::uint64_t> size;
  std::uint64_t world_size = 1;
  std::optional<std::uint64_t> rank;
  /// The ranks of this node, set by go_by_launcher(); nullopt if unknown.
  std::optional<RankOptions::Range> node = {};
  std::optional<std::uint64_t> epoch;
  std::string token;
  std::string checkpoint;
  /// Whether the token may be within a window of batches by group; see Run::batches.
  bool takes_batches = false;

  CLI::Option* world_option = nullptr;  ///< --world, for go_by_launcher(), which checks whether it
                                        ///< was given
};

/// Adds INDEX, --size if `with_size`, the options of the order, --epoch, --world, --rank, --token,
/// --checkpoint, and the options of add_first_use_options().
void add_run_options(CLI::App& command, RunArguments& arguments, bool with_size);

/// For commands that do the work of one rank: if a launcher (srun, mpirun, torchrun) started
/// several ranks, and neither --world nor --rank is given, takes the rank from the launcher's
/// variables, and prints it on standard error.
/// Errors: kDistributed if the variables contradict each other.
void go_by_launcher(RunArguments& arguments);

/// The selected run.
struct Run {
  std::optional<MixedDataset> data;  ///< not set with --size
  std::unique_ptr<Sampler> sampler;  ///< of --rank, or else rank 0, at the run's position
  std::uint64_t position = 0;        ///< position in the epoch
  /// The token's progress within a window of batches; the sampler is at the window's beginning.
  std::optional<ResumeToken::Batches> batches;
  std::optional<EpochAudit::Sum> delivered_before;  ///< sum of the epoch's earlier deliveries, from
                                                    ///< the token
};

/// The number of samples in a step, as in RankOptions.
struct StepSize {
  std::uint64_t batch_size = 1;
  std::uint64_t global_batch_size = 0;
};
/// Adds --batch and --global-batch. `step` must be {0, 0}.
void add_step_size(CLI::App& command, StepSize& step);
/// Returns the given step size. Errors: CLI::RequiredError if neither option was given.
StepSize checked(const StepSize& given);

/// Opens the run.
/// @param open  opens an index by its path, even if a SOURCE was named.
/// Errors: CLI::Error for wrong usage; those of the library.
Run open_run(const RunArguments& arguments, const StepSize& step,
             const std::function<Dataset(const FoundIndex& index)>& open);
/// Opens the run with indexes, without a cache.
Run open_run(const RunArguments& arguments, const StepSize& step = {});
/// Opens the run for samples without a data set.
Run open_run(const RunArguments& arguments, const SampleSet& samples);

/// Returns the number of ranks of each node. Errors: wrong usage if it is not the same.
std::uint64_t ranks_per_node(std::uint64_t world, std::uint64_t nodes);

/// A sample's key and shard, as shown in lists.
struct SampleNames {
  std::string key;          // unchanged bytes
  std::uint64_t shard = 0;  // number in its index
  std::string url;          // the shard's path or URL, without secrets
};
SampleNames names_of(const MixedDataset& data, std::uint64_t sample);

}  // namespace shardwise::tools
