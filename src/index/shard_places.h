#pragma once

#include <string>
#include <unordered_map>

#include "index/catalogue.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// Where the shards of an index are, by the urls that it stores. Immutable; any thread.
class ShardPlaces {
 public:
  /// @param home  the folder of the index, absolute.
  /// Errors: as Index::open with a root.
  ShardPlaces(const Catalogue& catalogue, std::string home, const Index::Lookup& lookup);

  /// A path, or the URL of a remote shard: the one by which it is known now, if there is one; below
  /// the root, if there is one.
  std::string path_of(const std::string& url) const;

 private:
  const std::string home_;
  // Both absolute, with a slash at the end; empty without a root.
  std::string root_;
  std::string shared_;  // by all shards that are stored by an absolute path
  std::unordered_map<std::string, std::string> urls_;  // as they are now, by those that are stored
};

}  // namespace shardwise
