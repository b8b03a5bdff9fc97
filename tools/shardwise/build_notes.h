#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "progress.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_cache.h"

namespace shardwise::tools {

// Notes about a build on standard error, for `shardwise index` and for indexes built at first use.

/// Message of a build that was interrupted and has left a journal.
inline constexpr const char* kInterruptedAndKept =
    "interrupted; run the same command to continue, without reading finished shards again";

void show(Progress& progress, const shardwise::Progress& at);

/// Returns e.g. "a.tar, b.tar and 12 more".
std::string some_of(const std::vector<std::string>& paths);

/// Name of the file that `shardwise pack --images` writes beside the shards.
inline constexpr std::string_view kClassesFile = "classes.json";

/// Returns `files` except kClassesFile and index files (`*.idx`), which users expect among shards.
std::vector<std::string> unknown_files(const std::vector<std::string>& files);

// Each function writes nothing if there is nothing to report.

/// Prints how many shards and bytes will be read from other machines.
void say_what_is_fetched(const BuildPlan::RemoteReading& remote);
/// Prints the files in the folders whose names are not those of shards.
void say_files_left_out(const std::vector<std::string>& files);
/// Prints the shards that may lack samples, because they have no end-of-archive marker.
void say_without_end_marker(const std::vector<std::string>& shards);
/// Prints how many members the index at `index` omits, and how many gave a column no value.
void say_members_left_out(std::uint64_t num_members, const std::string& index);
/// Returns e.g. ", with the rest of 2 shards behind damage, 1.5 MiB": bytes that belong to no
/// sample. Returns "" if there are no such bytes.
std::string rests_text(const Index& index);

}  // namespace shardwise::tools
