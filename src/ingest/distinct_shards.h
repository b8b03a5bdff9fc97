#pragma once

#include <map>
#include <string>

#include "base/file.h"

namespace shardwise {

/// A list of shards in which no shard may occur twice under any name, because a repeated shard
/// would repeat its samples.
/// Threads: one.
class DistinctShards {
 public:
  /// @param identity  identity of the file that `path` leads to.
  /// Errors: InvalidArgument if the file was added before; the text contains both paths.
  void add_file(const std::string& path, const FileIdentity& identity);
  /// Adds a URL. Two URLs count as equal if canonical_url() returns the same text for both; their
  /// signatures may differ.
  /// Errors: as add_file().
  void add_url(const std::string& url);
  /// Adds a path or a URL. Does nothing if it is a path that does not exist.
  void add_if_there(const std::string& shard);

 private:
  // The whole identity is the key. If a file system's inode numbers are not unique, times and sizes
  // distinguish the files.
  std::map<FileIdentity, std::string> files_;
  std::map<std::string, std::string> urls_;
};

/// Throws the error for a shard that was named twice.
[[noreturn]] void refuse_shard_named_twice(const std::string& first, const std::string& second);

}  // namespace shardwise
