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

/// Adds the options of fetching: credentials, certificates, connections, timeouts and retries; and
/// --allow-pipe. Without --quiet, unreachable servers are reported. Shared by all commands that
/// fetch. `fetching` must live as long as `command` does.
void add_fetch_options(CLI::App& command, Fetchers::Options& fetching);

/// Reports a failed fetch and its retry on standard error, as Fetchers::Options::on_retry.
void say_what_is_tried_again(const std::string& url, const std::string& reason,
                             std::chrono::milliseconds left);

/// True if --quiet was given; false if the command lacks it.
bool is_quiet(const CLI::App& command);

/// The URLs of all remote shards, as stored in the indexes.
std::vector<std::string> urls_of(const Index& index);
std::vector<std::string> urls_of(const MixedDataset& data);
/// Checks the options of servers against the URLs of all remote shards. Unless `quiet`, notes
/// headers, tokens and users that are unused because no shard is at http or https.
/// Errors: wrong usage, naming an OLD of --url-base that no URL begins with.
void check_servers(const Fetchers::Options& fetching, const std::vector<std::string>& urls,
                   bool quiet);
/// True if there are options to check.
bool has_server_options(const Fetchers::Options& fetching);

/// The options for shards of an index. A NEW of --url-base without OLD replaces the common folder
/// of all remote shards of this index (Index::Summary::url_base).
/// @param index  its path; empty means: no index, or several.
/// Errors: wrong usage; those of Index::open.
Fetchers::Options fetching_of(Fetchers::Options fetching, const std::string& index);

}  // namespace shardwise::tools
