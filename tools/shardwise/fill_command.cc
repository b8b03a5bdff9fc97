// `shardwise cache fill`: before a job starts, fetches the shards that its order reads first.

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error_types.h"
#include "base/text.h"
#include "cache_options.h"
#include "commands.h"
#include "data/cache_fill.h"
#include "fetch_options.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "order_options.h"
#include "output.h"
#include "progress.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {
namespace {

struct FillOptions {
  RunArguments run;
  Index::Lookup lookup;
  CacheArguments cache;
  std::uint64_t epochs = 1;
  std::optional<std::uint64_t> nodes;
  std::optional<std::uint64_t> node;
  unsigned threads = 4;
  bool dry_run = false;
  bool json = false;
};

/// Returns the ranks whose shards are fetched: the rank of --rank, the ranks of --node, or all.
RankOptions::Range ranks_of(const FillOptions& options, const Sampler& sampler) {
  if (options.run.rank) return {.first = *options.run.rank, .count = 1};
  if (!options.nodes) return {.first = 0, .count = sampler.world_size()};
  const std::uint64_t nodes = *options.nodes;
  if (*options.node >= nodes) {
    throw_usage(fmt::format("--node {} is not below --nodes {}; nodes are numbered from 0",
                            *options.node, nodes));
  }
  const std::uint64_t count = ranks_per_node(sampler.world_size(), nodes);
  return {.first = *options.node * count, .count = count};
}

/// Returns the cache's entries. Returns an empty list if the cache does not exist, since a dry run
/// must not create it.
std::vector<ShardCache::Entry> entries_of(const std::string& directory) {
  if (!std::filesystem::exists(directory)) return {};
  return ShardCache::open({.directory = directory, .create = false, .read_only = true})->entries();
}

/// Opens the run; in a dry run without the cache, which opening would create.
Run open_fill(const FillOptions& options) {
  RunArguments arguments = options.run;
  arguments.first_use.fetching = options.cache.fetching;
  CacheArguments cache = options.cache;
  if (options.dry_run) cache.directory.clear(), cache.budget.percent = 0;
  Run run = open_run(arguments, {},
                     dataset_opener(options.lookup, Dataset::Access::kMap, cache,
                                    arguments.order.allow_part, interrupt_token()));
  check_servers(options.cache.fetching, *run.data, options.run.first_use.quiet);
  return run;
}

std::uint64_t budget_of(const FillOptions& options, const MixedDataset& data) {
  if (const auto& cache = data.part(0).cache()) return cache->options().budget_bytes;
  return options.cache.budget.of(cached_bytes(data.part(0)));
}

CacheFill::Outcome fill(const FillOptions& options, const CacheFill& wanted,
                        const MixedDataset& data) {
  if (options.dry_run) return wanted.foreseen(entries_of(options.cache.directory));
  if (data.part(0).cache()->is_read_only()) {
    throw Unsupported("this user cannot write to the shard cache",
                      in_quotes(options.cache.directory),
                      "name another directory with --cache, or ask the owner of this directory "
                      "to fill the cache");
  }
  CacheFill::Outcome outcome;
  Progress progress("filling", Unit::kBytes, options.run.first_use.quiet);
  try {
    wanted.run(data, *data.part(0).cache(), options.threads, interrupt_token(), progress.of_bytes(),
               outcome);
  } catch (const Cancelled&) {
    progress.clear();
    throw Interrupted(
        fmt::format("interrupted; {} complete in {}; run the same command to fetch the rest",
                    counted(outcome.fetched.shards + outcome.present.shards, "shard", "is", "are"),
                    in_quotes(options.cache.directory)));
  }
  return outcome;
}

nlohmann::ordered_json json_of(const FillOptions& options, const CacheFill& wanted,
                               const CacheFill::Outcome& outcome) {
  return {{"dry_run", options.dry_run},
          {"order_known", wanted.is_order_known},
          {"shards", wanted.shards.size()},
          {"fetched", outcome.fetched.shards},
          {"fetched_bytes", outcome.fetched.bytes},
          {"present", outcome.present.shards},
          {"present_bytes", outcome.present.bytes},
          {"not_fitting", outcome.left_out.shards},
          {"not_fitting_bytes", outcome.left_out.bytes}};
}

std::string text_of(const CacheFill::Count& count) {
  return fmt::format("{}, {}", counted(count.shards, "shard"), human_bytes(count.bytes));
}

void run(const FillOptions& options, Output& out) {
  if (options.run.index.empty() && options.run.order.mix.empty()) {
    throw CLI::RequiredError("INDEX");
  }
  if (options.epochs == 0) throw_usage("--epochs is 0; give at least 1");
  const Run opened = open_fill(options);
  const MixedDataset& data = *opened.data;
  const CacheFill wanted = CacheFill::of(data, *opened.sampler,
                                         {.ranks = ranks_of(options, *opened.sampler),
                                          .epochs = options.epochs,
                                          .budget_bytes = budget_of(options, data)});
  if (!wanted.is_order_known && !wanted.shards.empty()) {
    say("note",
        "it is unknown which shards this order needs first, so shards are fetched in the order of "
        "the index");
  }
  const CacheFill::Outcome outcome = fill(options, wanted, data);
  if (options.json) {
    print_json(out, "cache fill", json_of(options, wanted, outcome));
    return;
  }
  if (wanted.shards.empty()) {
    out.print("no shard needs a cache, because all shards are read in place\n");
    return;
  }
  out.print("{} {}; already in the cache {}; did not fit {}\n",
            options.dry_run ? "would fetch" : "fetched", text_of(outcome.fetched),
            text_of(outcome.present), text_of(outcome.left_out));
}

}  // namespace

void add_fill_command(CLI::App& cache_command, Output& out) {
  CLI::App* command = cache_command.add_subcommand(
      "fill", "Fetch the shards that a job will read first, until the cache is full");
  const auto options = std::make_shared<FillOptions>();
  const auto number = [&](const char* name, auto& value, const char* text) {
    return command->add_option(name, value, text)->transform(kWholeNumber)->type_name("N");
  };
  number("--epochs", options->epochs, "number of epochs to fetch for, from --epoch on")
      ->capture_default_str();
  CLI::Option* const nodes =
      number("--nodes", options->nodes, "number of nodes, each with an equal block of the ranks");
  CLI::Option* const node =
      number("--node", options->node,
             "number of the node, from 0, whose ranks read through this cache")
          ->needs(nodes);
  nodes->needs(node)->transform(kPositiveNumber);
  command->add_option("--threads", options->threads, "number of shards fetched at the same time")
      ->check(CLI::Range(1U, 256U))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run,
                    "show what would be fetched, without fetching or making a cache");
  command->add_flag("--json", options->json, "print one JSON object");
  add_lookup_options(*command, options->lookup);
  add_cache_options(*command, options->cache);
  command->get_option("--cache")->required();
  command->remove_option(command->get_option("--cache-read-only"));
  add_run_options(*command, options->run, /*with_size=*/false);
  command->get_option("--rank")->excludes(nodes);
  mark_common(*command, {"--cache", "--cache-bytes", "--threads", "--world", "--nodes", "--node",
                         "--dry-run", "--json"});
  command->footer(
      "Without --rank and --node, it fetches for all ranks; if --world is not given either, for "
      "the launcher's rank under srun, mpirun or torchrun. A shard that this or another process "
      "needs sooner is not evicted. If the order is not known in advance, e.g. resampled, shards "
      "are fetched in the order of the index.\n\n"
      "Examples:\n  shardwise cache fill train.idx --cache /scratch/cache --cache-bytes 200G\n"
      "  shardwise cache fill train.idx --cache /scratch/cache --world 64 --nodes 8 --node 3");
  command->callback([options, &out] {
    if (!options->nodes) go_by_launcher(options->run);
    run(*options, out);
  });
}

}  // namespace shardwise::tools
