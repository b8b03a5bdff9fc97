#pragma once

#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/storage/fetcher.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shardwise::tools {

/// Options of INDEX where it may also be a SOURCE whose index is built at first use. Shared by all
/// commands that read an index.
struct FirstUse {
  std::string directory;  ///< --index-cache; empty means: the user's cache
  bool refused = false;   ///< --no-index-cache
  bool quiet = false;
  Fetchers::Options fetching = {};
  CancelToken cancel = {};  ///< empty means: the token of Ctrl-C
};

/// Adds INDEX.
CLI::Option* add_index_argument(CLI::App& command, std::string& index);
/// Adds --quiet, --index-cache and --no-index-cache. Since a SOURCE may be a URL, adds the options
/// of add_fetch_options() unless the command has them. `first_use` must live as long as `command`
/// does.
void add_first_use_options(CLI::App& command, FirstUse& first_use);

/// An index, and the URLs by which its shards are fetched now (Index::Lookup::urls); no URLs if the
/// index itself was named.
struct FoundIndex {
  std::string path;
  std::vector<std::string> urls;
};

/// Finds the index that `name` is, or builds that of the shards it names, as index_for() does. On
/// standard error: a progress bar while it is built, another process that builds it, and the
/// result.
/// Errors: those of index_for; Interrupted.
FoundIndex find_index(const std::string& name, const FirstUse& first_use);
/// The index's path alone, for commands that fetch no shard.
/// Errors: wrong usage, also for a --url-base whose OLD matches no shard of the index.
std::string index_path(const std::string& name, const FirstUse& first_use);

}  // namespace shardwise::tools
