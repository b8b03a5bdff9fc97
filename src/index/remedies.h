#pragma once

#include <string>

#include "base/spelling.h"

// Remedies of errors about an index, spelled for the program in use.

namespace shardwise {

/// For an index that cannot be used.
inline std::string rebuild_remedy() {
  return "build the index again with " + spelled("`shardwise index`");
}
/// For an index of another version, which does not reveal its sources.
inline std::string rebuild_from_sources_remedy() {
  return "build the index again, and name its shards: " +
         spelled("`shardwise index -o INDEX SOURCE`") + "; resume tokens stay valid";
}
/// For samples that a descriptor's claims number.
inline std::string index_descriptor_remedy() {
  return "run " + spelled("`shardwise index -o INDEX DESCRIPTOR`") + ", and open INDEX";
}

}  // namespace shardwise
