#pragma once

#include "shardwise/storage/fetcher.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// Adds the options of how files are brought from servers: as whom, whom to trust, how many at a
/// time; and --allow-pipe. The same for every command that fetches. `fetching` must live as long as
/// `command` does.
void add_fetch_options(CLI::App& command, Fetchers::Options& fetching);

}  // namespace shardwise::tools
