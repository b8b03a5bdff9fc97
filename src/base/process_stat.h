#pragma once

#include <string>
#include <vector>

namespace shardwise::detail {

/// The fields of /proc/<pid>/stat behind the program's name: state, parent, ... Nothing if the
/// process cannot be seen.
std::vector<std::string> process_stat(const std::string& pid);

}  // namespace shardwise::detail
