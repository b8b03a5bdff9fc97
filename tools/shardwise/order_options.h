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

/// ORDER: the options that decide which sample comes when. The same names for every command that
/// takes them, and for shardwise-train.
struct OrderArguments {
  std::string sampler = "chunked";
  Order order;  ///< its kind and skip list come from the other members
  /// Options that some kinds of order have, and what was given for them, by their names here.
  std::map<std::string_view, std::string> of_kind;
  bool no_shuffle = false;
  std::vector<std::string> mix;  ///< "INDEX=WEIGHT"
  std::string skip_file;
  std::optional<std::string> where;
  bool allow_part = false;
  std::uint64_t replicas = 1;

  /// The options of which --token and --checkpoint say more than the command line may.
  std::vector<CLI::Option*> order_options;
};

/// Adds the options that decide an order. `arguments` must live as long as `command` does.
void add_order_options(CLI::App& command, OrderArguments& arguments);

/// Errors: CLI::ValidationError for options that do not go together, as far as that can be told
/// without data.
void check_order_options(const OrderArguments& arguments);

/// INDEX=WEIGHT,...
struct MixedIndexes {
  std::vector<std::string> indexes;
  std::vector<double> weights;
};
/// Errors: CLI::ValidationError.
MixedIndexes parse_mix(const std::vector<std::string>& mix);

/// The order that the options say, over `data`: nothing where only the number of samples is known.
/// Errors: CLI::ValidationError for options that do not go together; those of reading --skip.
Order order_of(const OrderArguments& arguments, const MixedDataset* data);

/// Opens the data set of --mix, or of `index`, with --where. `open` opens one index.
/// Errors: CLI::RequiredError if there is neither; those of `open` and Dataset::where.
MixedDataset open_data(const OrderArguments& arguments, const std::string& index,
                       const std::function<Dataset(const std::string& index)>& open);

/// A question about a run: which order, and where in it.
struct RunArguments {
  OrderArguments order;
  std::string index;
  FirstUse first_use;
  std::optional<std::uint64_t> size;
  std::uint64_t world_size = 1;
  std::optional<std::uint64_t> rank;
  /// The ranks of this node, as go_by_launcher() found them; nothing: they are not known.
  std::optional<RankOptions::Range> node = {};
  std::optional<std::uint64_t> epoch;
  std::string token;
  std::string checkpoint;

  CLI::Option* world_option = nullptr;  ///< --world, of which go_by_launcher() asks if it was given
};

/// Adds INDEX, --size if wanted, the order's options, --epoch, --world, --rank, --token,
/// --checkpoint, and the options of add_first_use_options().
void add_run_options(CLI::App& command, RunArguments& arguments, bool with_size);

/// Under a launcher (srun, mpirun, torchrun) that started several ranks, a command that does one
/// rank's work is that rank, unless --world or --rank says otherwise. Says so on stderr.
/// Errors: kDistributed for a launcher's variables that contradict each other.
void go_by_launcher(RunArguments& arguments);

/// What is asked about.
struct Run {
  std::optional<MixedDataset> data;  ///< nothing with --size
  std::unique_ptr<Sampler> sampler;  ///< of --rank, or of rank 0, where the run stands
  std::uint64_t position = 0;        ///< of the epoch, where it stands
  std::optional<EpochAudit::Sum> delivered_before;  ///< in this epoch, as the token says
};

/// The samples of a step: as RankOptions has them.
struct StepSize {
  std::uint64_t batch_size = 1;
  std::uint64_t global_batch_size = 0;
};
/// Adds --batch and --global-batch. `step` is {0, 0} before.
void add_step_size(CLI::App& command, StepSize& step);
/// What was given. Errors: CLI::RequiredError if nothing was.
StepSize checked(const StepSize& given);

/// @param open  is given an index, also where a SOURCE was named.
/// Errors: CLI::Error for wrong usage; those of the library.
Run open_run(const RunArguments& arguments, const StepSize& step,
             const std::function<Dataset(const FoundIndex& index)>& open);
/// The same, opening indexes without a cache.
Run open_run(const RunArguments& arguments, const StepSize& step = {});
/// The same over samples of no data set.
Run open_run(const RunArguments& arguments, const SampleSet& samples);

/// The key and the shard of a sample, as lists show them.
struct SampleNames {
  std::string key;    // the bytes as they are
  std::string shard;  // its path, without secrets
};
SampleNames names_of(const MixedDataset& data, std::uint64_t sample);

}  // namespace shardwise::tools
