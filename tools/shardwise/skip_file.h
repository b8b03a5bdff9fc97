#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shardwise/order/skip_list.h"

namespace shardwise::tools {

/// What --help says of the format.
inline constexpr const char* kSkipFileHelp =
    "samples to leave out, one per line: a sample number, 'key KEY', 'positions EPOCH BEGIN END' "
    "or "
    "'steps EPOCH FIRST END WORLD BATCH'; ' # ' and a reason may follow";

/// The file of --bad-list begins with this and the fingerprint of its data set. One that begins
/// otherwise is none of ours.
inline constexpr std::string_view kBadListBegin = "# bad samples of the data set ";

/// Finds samples by their key.
using FindKey = std::function<std::optional<std::uint64_t>(const std::string& key)>;

/// Reads a list of what a run leaves out. Empty lines, and lines that begin with #, say nothing,
/// but for the first line of a --bad-list.
/// @param fingerprint  of the data set; empty if there is none at hand.
/// Errors: InvalidArgument naming file and line; NotFound for a key that there is not; Mismatch if
/// the file is the --bad-list of another data set; those of reading the file.
SkipList read_skip_file(const std::string& path, const FindKey& find_key,
                        const std::string& fingerprint);

}  // namespace shardwise::tools
