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

/// A cache's budget: bytes, or a percentage of the bytes that all shards of the data take in a
/// cache.
struct CacheBytes {
  std::uint64_t bytes = 0;
  double percent = 0;  ///< if not 0, used instead of bytes

  std::uint64_t of(std::uint64_t data_bytes) const;
};

/// Adds an option for a budget: 512M, 20G, 20%. `value` must live as long as `command` does.
CLI::Option* add_cache_bytes(CLI::App& command, const char* name, CacheBytes& value,
                             const char* text);

/// The cache for shards that cannot be read in place, and how they are fetched. Shared by all
/// commands that read shards.
struct CacheArguments {
  std::string directory;
  CacheBytes budget = {.bytes = ShardCache::Options{}.budget_bytes};
  bool bypass_large = false;
  bool read_only = false;
  bool group_shared = false;
  std::string metrics_file;
  Fetchers::Options fetching = {};
  const CLI::App* command = nullptr;  ///< the command whose --quiet applies
};

/// Adds --root and --accept-times, for commands that open shards. `lookup` must live as long as
/// `command` does.
void add_lookup_options(CLI::App& command, Index::Lookup& lookup);

/// Adds --cache, --cache-bytes, --cache-bypass-large, --cache-read-only, --cache-group, --metrics,
/// and the options of add_fetch_options(). `arguments` must live as long as `command` does.
void add_cache_options(CLI::App& command, CacheArguments& arguments);

/// Adds --metrics. `file` must live as long as `command` does.
CLI::Option* add_metrics_option(CLI::App& command, std::string& file, const std::string& what);

/// @param index  see fetching_of().
std::shared_ptr<const Fetchers> make_fetchers(const CacheArguments& arguments,
                                              const std::string& index = {});
/// The cache, which reports waiting on standard error; null without --cache.
/// Errors: wrong usage, if the budget is a percentage and the size of the data is unknown.
std::shared_ptr<ShardCache> open_cache(const CacheArguments& arguments,
                                       std::optional<std::uint64_t> data_bytes = {},
                                       const std::string& index = {});
/// Opens a data set with its cache. The last three arguments are those of Dataset::Options.
Dataset open_dataset(const FoundIndex& index, const Index::Lookup& lookup, Dataset::Access access,
                     const CacheArguments& arguments, bool allow_part,
                     const CancelToken& cancel = {}, bool wait_for_whole_shards = false);
/// Opens indexes as open_dataset() does, all with the cache of the first. A budget in percent
/// refers to the first index.
std::function<Dataset(const FoundIndex& index)> dataset_opener(const Index::Lookup& lookup,
                                                               Dataset::Access access,
                                                               const CacheArguments& arguments,
                                                               bool allow_part,
                                                               const CancelToken& cancel);

}  // namespace shardwise::tools
