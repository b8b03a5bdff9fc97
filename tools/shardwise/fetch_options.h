#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/index/index.h"
#include "shardwise/storage/fetcher.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// Adds the options of how files are brought from servers: as whom, whom to trust, how many at a
/// time, how patiently; and --allow-pipe. Without --quiet it is said when a server is away. The
/// same for every command that fetches. `fetching` must live as long as `command` does.
void add_fetch_options(CLI::App& command, Fetchers::Options& fetching);

/// Says on standard error that a file cannot be fetched now, as Fetchers::Options::on_retry.
void say_what_is_tried_again(const std::string& url, const std::string& reason,
                             std::chrono::milliseconds left);

/// True if the command has an option --quiet, which was given.
bool is_quiet(const CLI::App& command);

/// The URLs of all remote shards, as the indexes have them.
std::vector<std::string> urls_of(const Index& index);
std::vector<std::string> urls_of(const MixedDataset& data);
/// Checks the options of servers against the URLs of all remote shards. Unless `quiet`, headers, a
/// token, or users and passwords are noted if no shard is at http or https.
/// Errors: wrong usage, naming an OLD of --url-base below which no URL lies.
void check_servers(const Fetchers::Options& fetching, const std::vector<std::string>& urls,
                   bool quiet);
/// True if there is something to check.
bool has_server_options(const Fetchers::Options& fetching);

/// The options for shards of an index: where --url-base gave NEW alone, it is where the folder lies
/// today that all remote shards of this index have in common (Index::Summary::url_base).
/// @param index  its path; empty: there is none, or more than one.
/// Errors: wrong usage; those of Index::open.
Fetchers::Options fetching_of(Fetchers::Options fetching, const std::string& index);

}  // namespace shardwise::tools
