#pragma once

#include <string>
#include <unordered_map>

#include "index/catalogue.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// Maps the stored URLs of shards to their current locations. Immutable. Threads: any.
class ShardPlaces {
 public:
  /// @param home  folder of the index, absolute; or its URL, if it was fetched.
  /// Errors: those of Index::open() with a root.
  ShardPlaces(const Catalogue& catalogue, std::string home, const Index::Lookup& lookup);

  /// Returns the current path or URL of a shard, according to Lookup::urls and Lookup::root.
  std::string path_of(const std::string& url) const;

 private:
  const std::string home_;
  // root_ and shared_ are absolute, with a trailing slash. Without a root they are empty.
  std::string root_;
  std::string shared_;  // deepest common folder of all shards whose stored path is absolute
  std::unordered_map<std::string, std::string> urls_;  // from stored URLs to current URLs
};

}  // namespace shardwise
