#include <algorithm>
#include <utility>

#include "base/error_types.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "data/claimed_shards.h"
#include "data/dataset_impl.h"
#include "index/claimed_index.h"
#include "index/remedies.h"
#include "ingest/distinct_shards.h"
#include "ingest/wids_claims.h"
#include "shardwise/data/dataset.h"

namespace shardwise {
namespace {

std::vector<WidsDescriptor::Shard> shards_of(const WidsDescriptor& descriptor) {
  std::vector<WidsDescriptor::Shard> shards;
  for (const WidsDescriptor::Set& set : descriptor.datasets) {
    shards.insert(shards.end(), set.shards.begin(), set.shards.end());
  }
  return shards;
}

/// Throws if the options require an index.
void require_no_index_needed(const std::string& descriptor, const Dataset::Options& options) {
  const auto refuse = [&](std::string_view why, const std::string& remedy) {
    throw Unsupported(why, in_quotes(descriptor), remedy);
  };
  if (!options.cache) {
    refuse("the shards are remote, and there is no shard cache",
           "give a cache (" + spelled("Dataset::Options::cache") + ")");
  }
  if (options.access == Dataset::Access::kRange) {
    refuse("fetching single samples needs an index", "choose another access (" +
                                                         spelled("Dataset::Access::kMap") +
                                                         "), or " + index_descriptor_remedy());
  }
  if (!options.root.empty()) {
    refuse("the shards are remote, but a root was given",
           "leave out the root (" + spelled("Dataset::Options::root") + ")");
  }
  const Index::Content& content = options.index_cache.build.content;
  if (content.hashes || content.unique_keys || !content.columns.empty()) {
    refuse("columns, hashes and unique keys need an index",
           "leave out these options (" + spelled("IndexCacheOptions::build") + "), or " +
               index_descriptor_remedy());
  }
}

}  // namespace

Dataset Dataset::open_lazily(const std::string& descriptor, const Options& options) {
  const IndexCacheOptions how = Impl::index_cache_of(options);
  const std::string name = without_secrets(descriptor);
  SourceList sources;
  if (!names_an_index(descriptor)) sources = read_sources({descriptor}, how.build.remote);
  std::vector<WidsDescriptor::Shard> shards;
  if (sources.descriptors.size() == 1) shards = shards_of(sources.descriptors[0]);
  if (shards.empty() || shards.size() != sources.shards.size()) {
    throw InvalidArgument("the dataset cannot be opened lazily without one wids descriptor",
                          in_quotes(name),
                          "give one wids descriptor (x.json), which has the number of samples of "
                          "each shard, or open an index with " +
                              spelled("Dataset::open"));
  }
  const auto is_local = [](const std::string& shard) { return !is_fetched_url(shard); };
  if (std::ranges::any_of(sources.shards, is_local)) return open(descriptor, options);
  if (const auto index = detail::find_current_index(sources, how)) {
    return Dataset(Index::open(*index, {.root = options.root,
                                        .accept_times = options.accept_times,
                                        .urls = sources.shards}),
                   options);
  }
  require_no_index_needed(name, options);

  DistinctShards distinct;
  std::vector<detail::ClaimedShard> claims;
  for (const WidsDescriptor::Shard& shard : shards) {
    distinct.add_url(shard.path);
    claims.push_back({shard.path, shard.num_samples, shard.size_bytes.value_or(0)});
  }
  auto index =
      IndexAccess::make_claimed(name, std::move(claims), detail::claimed_fingerprint(shards),
                                options.index_cache.build.content.policies);
  auto claimed = std::make_unique<detail::ClaimedShards>(index, sources.descriptors[0].path,
                                                         std::move(shards));
  return Dataset(std::make_shared<Impl>(std::move(index), options, std::move(claimed)));
}

}  // namespace shardwise
