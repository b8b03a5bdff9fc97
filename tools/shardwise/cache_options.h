#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shardwise/storage/fetcher.h"
#include "shardwise/storage/shard_cache.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// Where shards are kept that cannot be read where they lie, and how they are brought. The same for
/// every command that reads shards.
struct CacheArguments {
  std::string directory;
  std::uint64_t budget_bytes = ShardCacheOptions{}.budget_bytes;
  bool bypass_large = false;
  bool allow_pipe = false;
};

/// Adds --cache, --cache-bytes, --cache-bypass-large and --allow-pipe. `arguments` must live as
/// long as `command` does.
void add_cache_options(CLI::App& command, CacheArguments& arguments);

std::shared_ptr<const Fetchers> make_fetchers(const CacheArguments& arguments);
/// The cache, saying on standard error when it waits; nothing without --cache.
std::shared_ptr<ShardCache> open_cache(const CacheArguments& arguments);

}  // namespace shardwise::tools
