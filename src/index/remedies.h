#pragma once

#include <string>

#include "base/file.h"
#include "base/spelling.h"
#include "base/text.h"
#include "index/origin.h"

// Remedies for errors of an index, in the names of the interface in use (spelling.h).

namespace shardwise {

/// The remedy for an index that cannot be used.
/// @param path  the path of the index.
inline std::string rebuild_remedy(const std::string& path) {
  if (const std::string folder = directory_of(path); is_fetched_folder(folder)) {
    return "remove the folder " + in_quotes(folder) +
           ", then open the index by its URL, which fetches it again";
  }
  return "build the index again with " + spelled("`shardwise index --check-index`");
}
/// The remedy for an index of another version. Its sources cannot be read from it, so the user must
/// name them.
inline std::string rebuild_from_sources_remedy() {
  return "build the index again, and name its shards: " +
         spelled("`shardwise index -o INDEX SOURCE`") + "; resume tokens stay valid";
}
/// The remedy for a function that an index made from claims does not support.
inline std::string index_descriptor_remedy() {
  return "run " + spelled("`shardwise index -o INDEX DESCRIPTOR`") + ", and open INDEX";
}

}  // namespace shardwise
