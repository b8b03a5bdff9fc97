#pragma once

#include <string>
#include <vector>

namespace shardwise::detail {

/// Returns the fields of /proc/<pid>/stat that follow the program's name: state, parent, etc.
/// Returns an empty vector if the process is not visible.
std::vector<std::string> process_stat(const std::string& pid);

}  // namespace shardwise::detail
