#include "cache_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "options.h"
#include "output.h"
#include "shardwise/base/text.h"

namespace shardwise::tools {

void add_cache_options(CLI::App& command, CacheArguments& arguments) {
  command
      .add_option("--cache", arguments.directory,
                  "a directory of its own, in which remote and compressed shards are kept, for all "
                  "processes of this machine")
      ->type_name("DIR");
  command
      .add_option("--cache-bytes", arguments.budget_bytes,
                  "what the shards in it may take together: 512M, 20G")
      ->transform(kByteSize)
      ->type_name("SIZE")
      ->default_str("64G");
  command.add_flag("--cache-bypass-large", arguments.bypass_large,
                   "fetch a shard above that size each time, instead of failing");
  command.add_flag("--allow-pipe", arguments.allow_pipe,
                   "run the commands of pipe: URLs, without a shell");
}

std::shared_ptr<const Fetchers> make_fetchers(const CacheArguments& arguments) {
  return std::make_shared<const Fetchers>(FetchOptions{.allow_pipe = arguments.allow_pipe});
}

std::shared_ptr<ShardCache> open_cache(const CacheArguments& arguments) {
  if (arguments.directory.empty()) return nullptr;
  return ShardCache::open({.directory = arguments.directory,
                           .budget_bytes = arguments.budget_bytes,
                           .bypass_large = arguments.bypass_large,
                           .fetchers = make_fetchers(arguments),
                           .on_wait = [](const std::string& url, std::chrono::milliseconds waited) {
                             say("waiting", fmt::format("{} s for another process that fetches {}",
                                                        waited.count() / 1000, in_quotes(url)));
                           }});
}

}  // namespace shardwise::tools
