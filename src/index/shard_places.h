#pragma once

#include <string>
#include <unordered_map>

#include "index/catalogue.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// The locations of an index's shards, by their stored URLs. Immutable. Threads: any.
class ShardPlaces {
 public:
  /// @param home  folder of the index, absolute.
  /// Errors: as Index::open with a root.
  ShardPlaces(const Catalogue& catalogue, std::string home, const Index::Lookup& lookup);

  /// The shard's path or URL. Applies the given current URLs and the root.
  std::string path_of(const std::string& url) const;

 private:
  const std::string home_;
  // Both are absolute, with a trailing slash; empty without a root.
  std::string root_;
  std::string shared_;  // folder of all shards with an absolute stored path
  std::unordered_map<std::string, std::string> urls_;  // current URLs, by stored URLs
};

}  // namespace shardwise
