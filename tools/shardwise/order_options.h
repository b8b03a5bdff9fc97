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

/// ORDER: the options that decide the order of samples. All commands with an order, and
/// shardwise-train, use the same names.
struct OrderArguments {
  std::string sampler = "chunked";
  Order order;  ///< without its kind and skip list, which come from other members
  /// Given options that only some kinds of order have, by name.
  std::map<std::string_view, std::string> of_kind;
  bool no_shuffle = false;
  std::vector<std::string> mix;  ///< "INDEX=WEIGHT"
  std::string skip_file;
  std::optional<std::string> where;
  bool allow_part = false;
  std::uint64_t replicas = 1;

  /// Options that a token sets: --token and --checkpoint exclude them.
  std::vector<CLI::Option*> order_options;
};

/// Adds the options that decide an order. `arguments` must live as long as `command` does.
void add_order_options(CLI::App& command, OrderArguments& arguments);

/// Errors: CLI::ValidationError for options that exclude each other, as far as they can be checked
/// without data.
void check_order_options(const OrderArguments& arguments);

/// INDEX=WEIGHT,...
struct MixedIndexes {
  std::vector<std::string> indexes;
  std::vector<double> weights;
};
/// Errors: CLI::ValidationError.
MixedIndexes parse_mix(const std::vector<std::string>& mix);

/// The order that the options select, over `data`; null if only the number of samples is known.
/// Errors: CLI::ValidationError for options that exclude each other; those of reading --skip.
Order order_of(const OrderArguments& arguments, const MixedDataset* data);

/// Opens the data sets of --mix, or `index`, with --where. `open` opens one index.
/// Errors: CLI::RequiredError if neither is given; those of `open` and Dataset::where.
MixedDataset open_data(const OrderArguments& arguments, const std::string& index,
                       const std::function<Dataset(const std::string& index)>& open);

/// Options that select a run: its order, and a position in it.
struct RunArguments {
  OrderArguments order;
  std::string index;
  FirstUse first_use;
  std::optional<std::uint64_t> size;
  std::uint64_t world_size = 1;
  std::optional<std::uint64_t> rank;
  /// The ranks of this node, from go_by_launcher(); nullopt means: unknown.
  std::optional<RankOptions::Range> node = {};
  std::optional<std::uint64_t> epoch;
  std::string token;
  std::string checkpoint;

  CLI::Option* world_option = nullptr;  ///< --world; go_by_launcher() checks whether it was given
};

/// Adds INDEX, --size if `with_size`, the order's options, --epoch, --world, --rank, --token,
/// --checkpoint, and the options of add_first_use_options().
void add_run_options(CLI::App& command, RunArguments& arguments, bool with_size);

/// Takes the rank from a launcher (srun, mpirun, torchrun) that started several ranks, unless
/// --world or --rank is given. For commands that do one rank's work. Reports the rank on standard
/// error.
/// Errors: kDistributed if the launcher's variables contradict each other.
void go_by_launcher(RunArguments& arguments);

/// The selected run.
struct Run {
  std::optional<MixedDataset> data;  ///< nullopt with --size
  std::unique_ptr<Sampler> sampler;  ///< of --rank, or of rank 0, at the run's position
  std::uint64_t position = 0;        ///< position in the epoch
  std::optional<EpochAudit::Sum> delivered_before;  ///< in this epoch, from the token
};

/// The samples of a step, as in RankOptions.
struct StepSize {
  std::uint64_t batch_size = 1;
  std::uint64_t global_batch_size = 0;
};
/// Adds --batch and --global-batch. `step` must be {0, 0}.
void add_step_size(CLI::App& command, StepSize& step);
/// The given step size. Errors: CLI::RequiredError if neither option was given.
StepSize checked(const StepSize& given);

/// @param open  opens an index; called with its path even if a SOURCE was named.
/// Errors: CLI::Error for wrong usage; those of the library.
Run open_run(const RunArguments& arguments, const StepSize& step,
             const std::function<Dataset(const FoundIndex& index)>& open);
/// Opens indexes without a cache.
Run open_run(const RunArguments& arguments, const StepSize& step = {});
/// Opens the run over samples without a data set.
Run open_run(const RunArguments& arguments, const SampleSet& samples);

/// The key and the shard of a sample, as lists show them.
struct SampleNames {
  std::string key;          // unchanged bytes
  std::uint64_t shard = 0;  // number in its index
  std::string url;          // the shard's path or URL, without secrets
};
SampleNames names_of(const MixedDataset& data, std::uint64_t sample);

}  // namespace shardwise::tools
