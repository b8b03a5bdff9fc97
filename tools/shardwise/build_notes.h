#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "progress.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_cache.h"

namespace shardwise::tools {

// What is said of a build on standard error, by `shardwise index` and where an index is built at
// first use.

/// Of a build that was interrupted and left a journal.
inline constexpr const char* kInterruptedAndKept =
    "interrupted; what was read is kept: run the same command to continue";

void show(Progress& progress, const shardwise::Progress& at);

/// "a.tar, b.tar and 12 more"
std::string some_of(const std::vector<std::string>& paths);

/// What `shardwise pack --images` writes beside the shards.
inline constexpr std::string_view kClassesFile = "classes.json";

/// `files` without kClassesFile and index files (`*.idx`), which other programs keep beside shards.
std::vector<std::string> unknown_files(const std::vector<std::string>& files);

// These say nothing where there is nothing to say.

/// Of shards that are about to be read: how much comes from other machines.
void say_what_is_fetched(const BuildPlan::RemoteReading& remote);
/// Of files in folders that are not named like a shard.
void say_files_left_out(const std::vector<std::string>& files);
/// Of members that `index` has left out, and of those that gave a column no value.
void say_members_left_out(std::uint64_t num_members, const std::string& index);
/// ", with the rest of 2 shards behind damage, 1.5 MiB": what no sample has either; or nothing.
std::string rests_text(const Index& index);

}  // namespace shardwise::tools
