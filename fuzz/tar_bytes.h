#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shardwise::fuzz {

/// Returns an archive of these files. `format` is one of libarchive's: ustar, pax, gnutar, v7tar.
std::string tar_bytes(const std::string& format,
                      const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace shardwise::fuzz
