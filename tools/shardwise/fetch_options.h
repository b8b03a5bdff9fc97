#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/index/index.h"
#include "shardwise/storage/fetcher.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// Adds the options of fetching: credentials, certificates, connections, timeouts, retries and
/// --allow-pipe. Unless --quiet is given, retries are then reported. Shared by all commands that
/// fetch. `fetching` must outlive `command`.
void add_fetch_options(CLI::App& command, Fetchers::Options& fetching);

/// Reports on standard error a failed fetch that is retried. For Fetchers::Options::on_retry.
void say_what_is_tried_again(const std::string& url, const std::string& reason,
                             std::chrono::milliseconds left);

/// Returns true if the command has the option --quiet and it was given.
bool is_quiet(const CLI::App& command);

/// Returns the URLs of all remote shards, as stored in the index. A relative path in an index that
/// was fetched is completed.
std::vector<std::string> urls_of(const Index& index);
std::vector<std::string> urls_of(const MixedDataset& data);
/// Checks the options for servers against the URLs of all remote shards. If no shard is at http or
/// https, prints headers, tokens and users that are thus unused, unless `quiet`.
/// @param urls_of_shards  called only if there are such options, because it may read a large index.
/// Errors: wrong usage if no URL begins with an OLD of --url-base.
void check_servers(const Fetchers::Options& fetching,
                   const std::function<std::vector<std::string>()>& urls_of_shards, bool quiet);
/// Does the same with urls_of(data).
void check_servers(const Fetchers::Options& fetching, const Index& data, bool quiet);
void check_servers(const Fetchers::Options& fetching, const MixedDataset& data, bool quiet);

/// Completes the options for the shards of an index. A NEW of --url-base without OLD replaces the
/// common folder of all remote shards of this index (Index::Summary::url_base), or the folder of
/// the URL from which the index was fetched.
/// @param index  path of the index; empty without an index, or for several.
/// Errors: wrong usage; those of Index::open.
Fetchers::Options fetching_of(Fetchers::Options fetching, const std::string& index);

}  // namespace shardwise::tools
