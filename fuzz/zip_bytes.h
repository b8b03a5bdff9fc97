#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shardwise::fuzz {

/// Returns a zip archive of these members, as numpy.savez() or numpy.savez_compressed() writes it.
std::string zip(const std::vector<std::pair<std::string, std::string>>& members, bool deflated);

}  // namespace shardwise::fuzz
