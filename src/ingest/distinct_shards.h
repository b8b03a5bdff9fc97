#pragma once

#include <map>
#include <string>

#include "base/file.h"

namespace shardwise {

/// The shards of a list, each at most once under any name. A repeated shard would repeat its
/// samples.
/// Threads: one.
class DistinctShards {
 public:
  /// @param identity  of the file that `path` leads to.
  /// Errors: InvalidArgument if the file was added already; the text names both spellings.
  void add_file(const std::string& path, const FileIdentity& identity);
  /// Adds a URL. Two URLs are the same if canonical_url() makes them equal, whatever their
  /// signatures.
  /// Errors: as add_file().
  void add_url(const std::string& url);
  /// Adds a path or a URL. Does nothing if a path does not exist.
  void add_if_there(const std::string& shard);

 private:
  // The whole identity is the key: if a file system's inode numbers are not unique, times and sizes
  // tell files apart.
  std::map<FileIdentity, std::string> files_;
  std::map<std::string, std::string> urls_;
};

/// Throws the error for a shard named twice.
[[noreturn]] void refuse_shard_named_twice(const std::string& first, const std::string& second);

}  // namespace shardwise
