#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "cache_options.h"
#include "commands.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "order/spec.h"
#include "order_options.h"
#include "shardwise/base/error.h"
#include "shardwise/data/fetch_plan.h"

namespace shardwise::tools {
namespace {

/// Limit of kinds of nodes in the text for people; --json lists all nodes.
constexpr std::size_t kKindsShown = 16;

struct PlanOptions {
  std::optional<std::uint64_t> shards;
  std::uint64_t samples_per_shard = 0;
  std::uint64_t shard_bytes = 0;
  RunArguments run;
  FetchPlan::Options plan;
  CacheBytes cache_bytes;
  bool json = false;
};

/// @param has_window  set to true if a smaller --window is possible.
FetchPlan make_plan(const PlanOptions& options, bool& has_window) {
  if (options.run.rank) {
    throw_usage("--rank does not apply to a plan, which covers all ranks; leave out --rank");
  }
  try {
    Run run;
    FetchPlan::Shards shards;
    if (options.shards) {
      shards =
          FetchPlan::Shards::alike(*options.shards, options.samples_per_shard, options.shard_bytes);
      const SampleSet samples =
          SampleSet(shards.starts.back())
              .with_shards(std::make_shared<const std::vector<std::uint64_t>>(shards.starts));
      run = open_run(options.run, samples);
    } else {
      if (options.run.index.empty() && options.run.order.mix.empty()) {
        throw CLI::RequiredError("INDEX or --shards");
      }
      run = open_run(options.run);
      shards = FetchPlan::Shards::of(*run.data);
    }
    if (options.plan.nodes == 0) throw_usage("--nodes is 0; give at least 1");
    (void)ranks_per_node(run.sampler->world_size(), options.plan.nodes);
    const std::vector<std::uint64_t>& sizes = shards.sizes_bytes;
    FetchPlan::Options plan = options.plan;
    plan.cache_bytes =
        options.cache_bytes.of(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
    plan.cancel = interrupt_token();
    has_window = detail::has_smaller_window(run.sampler->order());
    if (const auto warning = shared_stream_warning(*run.sampler, shards.sizes_bytes.size())) {
      say("warning", *warning);
    }
    return plan_fetches(*run.sampler, shards, plan);
  } catch (const InvalidArgument& e) {
    throw_usage(e.what());
  }
}

nlohmann::ordered_json json_of(const FetchPlan::CacheCounts& counts) {
  return {{"misses", counts.fetches},
          {"fetched_bytes", counts.bytes_fetched},
          {"evicted", counts.evictions},
          {"bypassed", counts.bypasses},
          {"peak_bytes", counts.peak_bytes}};
}

nlohmann::ordered_json json_of(std::uint64_t number, const FetchPlan::NodeEpoch& epoch) {
  return {{"epoch", number},           {"shards", epoch.shards},
          {"bytes", epoch.bytes},      {"loads", epoch.lru.uses},
          {"lru", json_of(epoch.lru)}, {"next_use", json_of(epoch.next_use)}};
}

nlohmann::ordered_json json_of(const FetchPlan& plan, std::uint64_t node) {
  const FetchPlan::Node& kind = plan.of_node(node);
  const std::uint64_t num_ranks = plan.world_size / plan.options.nodes;
  nlohmann::ordered_json epochs = nlohmann::ordered_json::array();
  for (std::uint64_t i = 0; i < kind.epochs.size(); ++i) {
    epochs.push_back(json_of(plan.first_epoch + i, kind.epochs[i]));
  }
  return {{"node", node},
          {"first_rank", node * num_ranks},
          {"ranks", num_ranks},
          {"counts_of_node", kind.counts_of},
          {"shards", kind.shards},
          {"bytes", kind.bytes},
          {"cache_bytes_for_once_an_epoch", kind.bytes_for_once_an_epoch},
          {"cache_bytes_for_once", kind.bytes_for_once},
          {"epochs", std::move(epochs)}};
}

void print_plan_json(const FetchPlan& plan, Output& out) {
  nlohmann::ordered_json epochs = nlohmann::ordered_json::array();
  for (std::uint64_t i = 0; i < plan.options.epochs; ++i) {
    epochs.push_back(json_of(plan.first_epoch + i, plan.total(i)));
  }
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (std::uint64_t node = 0; node < plan.options.nodes; ++node) {
    nodes.push_back(json_of(plan, node));
  }
  const nlohmann::ordered_json json = {
      {"shards", plan.num_shards},
      {"shard_bytes", plan.total_bytes},
      {"world_size", plan.world_size},
      {"num_nodes", plan.options.nodes},
      {"cache_bytes", plan.options.cache_bytes},
      {"cache_bytes_for_once_an_epoch", plan.bytes_for_once_an_epoch()},
      {"cache_bytes_for_once", plan.bytes_for_once()},
      {"bytes_in_use", plan.bytes_in_use()},
      {"nodes_not_simulated", plan.num_not_simulated()},
      {"epochs", std::move(epochs)},
      {"nodes", std::move(nodes)},
  };
  print_json(out, "plan", json);
}

/// Returns e.g. "3", "0 to 7" or "0 and 3 more".
std::string names_of(const std::vector<std::uint64_t>& nodes) {
  if (nodes.size() == 1) return fmt::format("{}", nodes.front());
  if (nodes.back() - nodes.front() + 1 == nodes.size()) {
    return fmt::format("{} to {}", nodes.front(), nodes.back());
  }
  return fmt::format("{} and {} more", nodes.front(), human_count(nodes.size() - 1));
}

void print_epochs(const FetchPlan& plan, Output& out) {
  out.print("\n{}\n", out.head(fmt::format("{:<20}  {:>24}  {:>24}", "all nodes together",
                                           "LRU fetches", "next-use fetches")));
  out.print("{}\n", out.head(fmt::format("{:<8}{:>12}  {:>12}{:>12}  {:>12}{:>12}", "epoch",
                                         "loads", "shards", "bytes", "shards", "bytes")));
  for (std::uint64_t i = 0; i < plan.options.epochs; ++i) {
    const FetchPlan::NodeEpoch all = plan.total(i);
    out.print("{:<8}{:>12}  {:>12}{:>12}  {:>12}{:>12}\n", plan.first_epoch + i,
              human_count(all.lru.uses), human_count(all.lru.fetches),
              human_bytes(all.lru.bytes_fetched), human_count(all.next_use.fetches),
              human_bytes(all.next_use.bytes_fetched));
  }
}

void print_nodes(const FetchPlan& plan, Output& out) {
  out.print("\n{}\n", out.head(fmt::format("{:<16}{:>25}  {:>18}{:>18}", "per node",
                                           "distinct shards", "LRU fetches", "next-use fetches")));
  for (std::size_t i = 0; i < std::min(plan.kinds.size(), kKindsShown); ++i) {
    const FetchPlan::Node& kind = plan.kinds[i];
    FetchPlan::CacheCounts lru;
    FetchPlan::CacheCounts next_use;
    for (const FetchPlan::NodeEpoch& epoch : kind.epochs) {
      lru += epoch.lru;
      next_use += epoch.next_use;
    }
    out.print("{:<16}{:>13}{:>12}  {:>18}{:>18}\n", names_of(kind.nodes), human_count(kind.shards),
              human_bytes(kind.bytes), human_bytes(lru.bytes_fetched),
              human_bytes(next_use.bytes_fetched));
  }
  if (plan.kinds.size() > kKindsShown) {
    out.print("and {} more nodes; shardwise plan --json lists all nodes\n",
              human_count(plan.kinds.size() - kKindsShown));
  }
}

void run(const PlanOptions& options, Output& out) {
  bool has_window = false;
  const FetchPlan plan = make_plan(options, has_window);
  if (options.json) {
    print_plan_json(plan, out);
    return;
  }
  out.print("shards       {}, {}\n", human_count(plan.num_shards), human_bytes(plan.total_bytes));
  out.print("nodes        {}, with {} and a cache of {} each, empty at first\n",
            human_count(plan.options.nodes), counted(plan.world_size / plan.options.nodes, "rank"),
            human_bytes(plan.options.cache_bytes));
  print_epochs(plan, out);
  print_nodes(plan, out);
  out.print("\nwith next use, the cache of a node fetches\n");
  out.print("  each shard once per epoch      from {} on ({} bytes)\n",
            human_bytes(plan.bytes_for_once_an_epoch()),
            human_count(plan.bytes_for_once_an_epoch()));
  out.print("  nothing twice in {:<13} from {} on ({} bytes)\n",
            counted(plan.options.epochs, "epoch"), human_bytes(plan.bytes_for_once()),
            human_count(plan.bytes_for_once()));
  if (plan.bytes_in_use() > plan.options.cache_bytes) {
    out.print(
        "\nthe cache is smaller than the shards that a node uses at the same time, up to {} ({} "
        "bytes), so some shards are fetched more often; choose {}a larger cache\n",
        human_bytes(plan.bytes_in_use()), human_count(plan.bytes_in_use()),
        has_window ? "a smaller --window or " : "");
  }
  if (const std::uint64_t count = plan.num_not_simulated(); count > 0) {
    out.print(
        "\n{} of the nodes were simulated; each of the other {} nodes shows the counts of a "
        "similar node\n",
        human_count(plan.options.nodes - count), human_count(count));
  }
}

}  // namespace

void add_plan_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "plan", "Predict, before a run, what the shard cache of each node will fetch");
  const auto options = std::make_shared<PlanOptions>();
  const auto number = [&](const char* name, auto& value, const char* what, const char* type) {
    return command->add_option(name, value, what)->transform(kWholeNumber)->type_name(type);
  };
  const auto size = [&](const char* name, std::uint64_t& value, const char* what) {
    return command->add_option(name, value, what)->transform(kByteSize)->type_name(kSizeType);
  };
  CLI::Option* const shards =
      number("--shards", options->shards, "number of shards of equal size, instead of INDEX", "N");
  CLI::Option* const samples =
      number("--samples-per-shard", options->samples_per_shard, "samples per shard", "N")
          ->needs(shards);
  CLI::Option* const bytes =
      size("--shard-bytes", options->shard_bytes, "bytes per shard")->needs(shards);
  shards->needs(samples)->needs(bytes);
  number("--nodes", options->plan.nodes,
         "number of nodes; each has a cache and an equal block of the ranks", "N")
      ->required();
  add_cache_bytes(*command, "--cache-bytes", options->cache_bytes,
                  "size of each cache: a SIZE, or a percentage of the size of all shards, e.g. "
                  "20%")
      ->required();
  number("--epochs", options->plan.epochs, "number of epochs, from --epoch on", "N")
      ->capture_default_str();
  add_run_options(*command, options->run, /*with_size=*/false);
  shards->excludes(command->get_option("INDEX"));
  command->add_flag("--json", options->json, "print one JSON object");
  mark_common(*command, {"--nodes", "--cache-bytes", "--epochs", "--sampler", "--seed", "--world",
                         "--shards", "--json"});
  command->footer(
      "A load is one stretch of the order in which a node reads a shard. LRU evicts the shard that "
      "was read least recently; next use evicts the shard that is needed last. Runs evict by next "
      "use if their order is known in advance. In the table of nodes, fetches are summed over all "
      "--epochs.\n\n"
      "Examples:\n  shardwise plan train.idx --world 64 --nodes 8 --cache-bytes 200G\n"
      "  shardwise plan --shards 100000 --samples-per-shard 1000 --shard-bytes 256M "
      "--world 1024 --streams 1024 --nodes 128 --cache-bytes 2T");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
