#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shardwise/order/skip_list.h"

namespace shardwise::tools {

/// Description of the format for --help.
inline constexpr const char* kSkipFileHelp =
    "samples to leave out, one per line: a sample number, 'key KEY', 'positions EPOCH BEGIN END' "
    "or "
    "'steps EPOCH FIRST END WORLD BATCH'; ' # ' and a reason may follow";

/// How a --bad-list file begins; the fingerprint of its data set follows. Files that begin
/// otherwise are never overwritten.
inline constexpr std::string_view kBadListBegin = "# bad samples of the data set ";

/// Returns the number of the sample with a key.
using FindKey = std::function<std::optional<std::uint64_t>(const std::string& key)>;

/// Reads a list of samples that a run leaves out, from a file or a pipe. Ignores empty lines, and
/// lines that begin with #, except for the first line of a --bad-list.
/// @param fingerprint  of the data set; empty if it is unknown.
/// Errors: InvalidArgument, with file and line; NotFound for an unknown key; Mismatch if the file
/// is the --bad-list of another data set; those of reading the file.
SkipList read_skip_file(const std::string& path, const FindKey& find_key,
                        const std::string& fingerprint);

}  // namespace shardwise::tools
