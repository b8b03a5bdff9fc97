#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "first_use.h"
#include "shardwise/base/cancel.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/index.h"
#include "shardwise/storage/fetcher.h"
#include "shardwise/storage/shard_cache.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shardwise::tools {

/// Budget of a cache: bytes, or a percentage of the bytes that all shards of the data take in a
/// cache.
struct CacheBytes {
  std::uint64_t bytes = 0;
  double percent = 0;  ///< used instead of `bytes` if not 0

  std::uint64_t of(std::uint64_t data_bytes) const;
};

/// Returns the sum of the sizes of the shards.
std::uint64_t cached_bytes(const Dataset& data);

/// Adds an option for a budget, e.g. 512M, 20G or 20%. `value` must outlive `command`.
CLI::Option* add_cache_bytes(CLI::App& command, const char* name, CacheBytes& value,
                             const char* text);

/// Options of the cache for shards that cannot be read in place, and of fetching. Shared by all
/// commands that read shards.
struct CacheArguments {
  std::string directory;
  CacheBytes budget = {.bytes = ShardCache::Options{}.budget_bytes};
  bool bypass_large = false;
  bool read_only = false;
  bool group_shared = false;
  std::string metrics_file;
  Fetchers::Options fetching = {};
  const CLI::App* command = nullptr;  ///< the command with the option --quiet
};

/// Adds --root and --accept-times, for commands that open shards. `lookup` must outlive `command`.
void add_lookup_options(CLI::App& command, Index::Lookup& lookup);

/// Adds --cache, --cache-bytes, --cache-bypass-large, --cache-read-only, --cache-group, --metrics,
/// and the options of add_fetch_options(). `arguments` must outlive `command`.
void add_cache_options(CLI::App& command, CacheArguments& arguments);

/// Adds --metrics. `file` must outlive `command`.
CLI::Option* add_metrics_option(CLI::App& command, std::string& file, const std::string& what);

/// Makes the fetchers that the options describe.
/// @param index  see fetching_of().
std::shared_ptr<const Fetchers> make_fetchers(const CacheArguments& arguments,
                                              const std::string& index = {});
/// Opens the cache, which reports on standard error when it waits. Returns null without --cache.
/// Errors: wrong usage if the budget is a percentage and the size of the data is unknown.
std::shared_ptr<ShardCache> open_cache(const CacheArguments& arguments,
                                       std::optional<std::uint64_t> data_bytes = {},
                                       const std::string& index = {});
/// Opens a data set with its cache. The last three parameters are options of Dataset::Options.
Dataset open_dataset(const FoundIndex& index, const Index::Lookup& lookup, Dataset::Access access,
                     const CacheArguments& arguments, bool allow_part,
                     const CancelToken& cancel = {}, bool wait_for_whole_shards = false);
/// Returns the samples of `data` that satisfy the condition of --where; all samples without one.
/// @param quiet  whether to show no progress.
/// Errors: those of Dataset::where.
Dataset selected(Dataset data, const std::optional<std::string>& condition, bool quiet);
/// Returns a function that calls open_dataset(). All indexes share the cache of the first index, to
/// which a budget in percent refers.
std::function<Dataset(const FoundIndex& index)> dataset_opener(const Index::Lookup& lookup,
                                                               Dataset::Access access,
                                                               const CacheArguments& arguments,
                                                               bool allow_part,
                                                               const CancelToken& cancel);

}  // namespace shardwise::tools
