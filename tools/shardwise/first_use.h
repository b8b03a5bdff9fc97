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

/// Options of an argument INDEX that may be a SOURCE instead, whose index is built at first use, or
/// a URL, whose index is fetched.
/// Shared by all commands that read an index.
struct FirstUse {
  std::string directory;  ///< --index-cache; empty means: the user's cache
  bool refused = false;   ///< --no-index-cache
  bool offline = false;
  bool quiet = false;
  Fetchers::Options fetching = {};
  CancelToken cancel = {};  ///< if empty, the token of Ctrl-C is used
};

/// Adds the argument INDEX.
CLI::Option* add_index_argument(CLI::App& command, std::string& index);
/// Adds --quiet, --index-cache, --no-index-cache and --offline. Also adds the options of
/// add_fetch_options(), unless the command has them, since a SOURCE or an INDEX may be a URL.
/// `first_use` must outlive `command`.
void add_first_use_options(CLI::App& command, FirstUse& first_use);

/// An index, and the current URLs of its shards (Index::Lookup::urls). There are no URLs if the
/// argument named the index itself.
struct FoundIndex {
  std::string path;
  std::vector<std::string> urls;
};

/// Finds, fetches or builds the index that `name` means, as index_for() does.
/// Shows on standard error: a progress bar, a note while it waits for another process that builds
/// the index, and the result.
/// Errors: those of index_for(); Interrupted.
FoundIndex find_index(const std::string& name, const FirstUse& first_use);
/// Finds the index as above. Returns only its path, for commands that fetch no shard.
/// Errors: wrong usage, also if the OLD of a --url-base matches no shard of the index.
std::string index_path(const std::string& name, const FirstUse& first_use);

}  // namespace shardwise::tools
