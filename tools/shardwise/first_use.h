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

/// INDEX, where it may also be one SOURCE, whose index is built at first use. The same for every
/// command that reads an index.
struct FirstUse {
  std::string directory;  ///< --index-cache; empty: the user's
  bool refused = false;   ///< --no-index-cache
  bool quiet = false;
  Fetchers::Options fetching = {};
  CancelToken cancel = {};  ///< none: that of Ctrl-C
};

/// Adds INDEX.
CLI::Option* add_index_argument(CLI::App& command, std::string& index);
/// Adds --quiet, --index-cache and --no-index-cache; and, unless the command has them already, the
/// options of add_fetch_options(), as a SOURCE may be a URL. `first_use` must live as long as
/// `command` does.
void add_first_use_options(CLI::App& command, FirstUse& first_use);

/// An index, and the URLs by which its shards are fetched now (Index::Lookup::urls): of one that
/// was named, none.
struct FoundIndex {
  std::string path;
  std::vector<std::string> urls;
};

/// The index that `name` is, or whose shards it names, as index_for() gives it; on standard error a
/// progress bar while it is built, who builds it otherwise, and what came of it.
/// Errors: those of index_for; Interrupted.
FoundIndex find_index(const std::string& name, const FirstUse& first_use);
/// Its path alone, for what fetches no shard. Errors: wrong usage, too, for --url-base with an OLD
/// below which the index has no shard.
std::string index_path(const std::string& name, const FirstUse& first_use);

}  // namespace shardwise::tools
