#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "progress.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_cache.h"

namespace shardwise::tools {

// Notes about a build on standard error, for `shardwise index` and for an index built at first use.

/// For a build that was interrupted and left a journal.
inline constexpr const char* kInterruptedAndKept =
    "interrupted; run the same command to continue, without reading finished shards again";

void show(Progress& progress, const shardwise::Progress& at);

/// "a.tar, b.tar and 12 more"
std::string some_of(const std::vector<std::string>& paths);

/// The file that `shardwise pack --images` writes beside the shards.
inline constexpr std::string_view kClassesFile = "classes.json";

/// `files` without kClassesFile and index files (`*.idx`), which may be among shards.
std::vector<std::string> unknown_files(const std::vector<std::string>& files);

// Each function writes nothing if there is nothing to report.

/// Notes how much of the shards about to be read comes from other machines.
void say_what_is_fetched(const BuildPlan::RemoteReading& remote);
/// Notes files in folders that are not named like a shard.
void say_files_left_out(const std::vector<std::string>& files);
/// Notes members that the index at `index` leaves out, and members that gave a column no value.
void say_members_left_out(std::uint64_t num_members, const std::string& index);
/// ", with the rest of 2 shards behind damage, 1.5 MiB": bytes that are in no sample; or "".
std::string rests_text(const Index& index);

}  // namespace shardwise::tools
