#include "cache_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "fetch_options.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "shardwise/data/fetch_plan.h"

namespace shardwise::tools {

namespace {

/// Parses e.g. "20%" or "12.5%". Errors: wrong usage.
double parse_percent(const std::string& option, const std::string& text) {
  double percent = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, percent, std::chars_format::fixed);
  // The comparison is false for NaN.
  if (error != std::errc() || stop != end || !(percent > 0 && percent <= 100)) {
    throw CLI::ValidationError(option, in_quotes(text) +
                                           " is not a percentage above 0% and up to 100%; "
                                           "write e.g. 20%");
  }
  return percent;
}

CacheBytes parse_cache_bytes(const std::string& option, const std::string& text) {
  if (text.ends_with('%')) return {.percent = parse_percent(option, text)};
  if (const std::optional<std::uint64_t> bytes = parse_byte_size(text)) return {.bytes = *bytes};
  throw CLI::ValidationError(option, in_quotes(text) +
                                         " is not a size; write a number of bytes, or 512M, "
                                         "20GiB, 500MB, or a percentage of all shards, e.g. 20%");
}

/// Returns the bytes in a cache of all shards that need a cache.
}  // namespace

std::uint64_t cached_bytes(const Dataset& data) {
  const std::vector<std::uint64_t> sizes = FetchPlan::Shards::of(data).sizes_bytes;
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

std::uint64_t CacheBytes::of(std::uint64_t data_bytes) const {
  if (percent == 0) return bytes;
  return static_cast<std::uint64_t>(
      std::floor(static_cast<long double>(data_bytes) * percent / 100));
}

CLI::Option* add_cache_bytes(CLI::App& command, const char* name, CacheBytes& value,
                             const char* text) {
  return command
      .add_option_function<std::string>(
          name,
          [name, &value](const std::string& given) { value = parse_cache_bytes(name, given); },
          text)
      ->type_name(kSizeType);
}

void add_lookup_options(CLI::App& command, Index::Lookup& lookup) {
  constexpr const char* kGroup = "Shards that moved";
  command
      .add_option("--root", lookup.root,
                  "folder to which the shards moved; relative paths of the index begin in DIR; in "
                  "absolute paths, DIR replaces the deepest folder that all shards share")
      ->type_name("DIR")
      ->group(kGroup);
  command
      .add_flag(
          "--accept-times", lookup.accept_times,
          "accept changed modification times of shards, e.g. of copies, if the size, the first "
          "bytes and some tar headers agree with the index")
      ->group(kGroup);
}

void add_cache_options(CLI::App& command, CacheArguments& arguments) {
  constexpr const char* kGroup = "Remote and compressed shards";
  CLI::Option* const cache =
      command
          .add_option("--cache", arguments.directory,
                      "directory of the shard cache for remote and compressed shards; all "
                      "processes of this machine share this cache")
          ->type_name("DIR")
          ->group(kGroup);
  add_cache_bytes(
      command, "--cache-bytes", arguments.budget,
      "maximum size of the cache: a SIZE, or a percentage of the size of all shards, e.g. 20%")
      ->default_str("64G")
      ->group(kGroup)
      ->needs(cache);
  command
      .add_flag("--cache-bypass-large", arguments.bypass_large,
                "do not fail if a shard is larger than the cache, but fetch it again at each use")
      ->group(kGroup)
      ->needs(cache);
  arguments.command = &command;
  CLI::Option* const read_only =
      command
          .add_flag("--cache-read-only", arguments.read_only,
                    "write nothing to the cache; a shard that is missing from the cache is an "
                    "error")
          ->group(kGroup)
          ->needs(cache);
  command
      .add_flag("--cache-group", arguments.group_shared,
                "share the cache with the group of its directory: whatever the umask, members of "
                "the group may read and write the cache")
      ->group(kGroup)
      ->needs(cache)
      ->excludes(read_only);
  add_metrics_option(command, arguments.metrics_file,
                     "write this process's counts of cache hits, misses, fetches and evictions "
                     "to this file")
      ->group(kGroup)
      ->needs(cache);
  add_fetch_options(command, arguments.fetching);
}

CLI::Option* add_metrics_option(CLI::App& command, std::string& file, const std::string& what) {
  return command
      .add_option("--metrics", file,
                  what + ", in Prometheus' text format, for node_exporter's textfile collector")
      ->type_name("FILE");
}

std::shared_ptr<const Fetchers> make_fetchers(const CacheArguments& arguments,
                                              const std::string& index) {
  return std::make_shared<const Fetchers>(fetching_of(arguments.fetching, index));
}

std::shared_ptr<ShardCache> open_cache(const CacheArguments& arguments,
                                       std::optional<std::uint64_t> data_bytes,
                                       const std::string& index) {
  if (arguments.directory.empty()) return nullptr;
  if (arguments.budget.percent != 0 && !data_bytes) {
    throw CLI::ValidationError("--cache-bytes",
                               "a percentage needs the size of all shards, which is unknown before "
                               "they are indexed; write a number of bytes, or 512M, 20GiB, 500MB");
  }
  return ShardCache::open(
      {.directory = arguments.directory,
       .budget_bytes = arguments.budget.of(data_bytes.value_or(0)),
       .bypass_large = arguments.bypass_large,
       .fetchers = make_fetchers(arguments, index),
       .on_wait =
           [command = arguments.command](const std::string& url, auto, const std::string& holder) {
             if (command != nullptr && is_quiet(*command)) return;
             say("waiting", fmt::format("{} is being fetched by {}", in_quotes(url), holder));
           },
       .metrics_file = arguments.metrics_file,
       .read_only = arguments.read_only,
       .group_shared = arguments.group_shared});
}

namespace {

Dataset open_by(const FoundIndex& index, const Dataset::Options& options) {
  const Index::Lookup lookup{
      .root = options.root, .accept_times = options.accept_times, .urls = index.urls};
  return Dataset(Index::open(index.path, lookup), options);
}

}  // namespace

Dataset open_dataset(const FoundIndex& index, const Index::Lookup& lookup, Dataset::Access access,
                     const CacheArguments& arguments, bool allow_part, const CancelToken& cancel,
                     bool wait_for_whole_shards) {
  std::optional<std::uint64_t> data_bytes;
  if (arguments.budget.percent != 0) {
    data_bytes = cached_bytes(Dataset::open(index.path, {.allow_part = allow_part}));
  }
  return open_by(index, {.access = access,
                         .cache = open_cache(arguments, data_bytes, index.path),
                         .wait_for_whole_shards = wait_for_whole_shards,
                         .fetchers = make_fetchers(arguments, index.path),
                         .cancel = cancel,
                         .root = lookup.root,
                         .accept_times = lookup.accept_times,
                         .allow_part = allow_part});
}

Dataset selected(Dataset data, const std::optional<std::string>& condition, bool quiet) {
  if (!condition) return data;
  const Progress progress("selecting", Unit::kSamples, quiet);
  return data.where(*condition);
}

std::function<Dataset(const FoundIndex& index)> dataset_opener(const Index::Lookup& lookup,
                                                               Dataset::Access access,
                                                               const CacheArguments& arguments,
                                                               bool allow_part,
                                                               const CancelToken& cancel) {
  return [=, cache = std::shared_ptr<ShardCache>()](const FoundIndex& index) mutable {
    if (cache) {
      return open_by(index, {.access = access,
                             .cache = cache,
                             .fetchers = make_fetchers(arguments),
                             .cancel = cancel,
                             .root = lookup.root,
                             .accept_times = lookup.accept_times,
                             .allow_part = allow_part});
    }
    Dataset data = open_dataset(index, lookup, access, arguments, allow_part, cancel);
    cache = data.cache();
    return data;
  };
}

}  // namespace shardwise::tools
