#pragma once

#include <map>
#include <string>

#include "base/file.h"

namespace shardwise {

/// The shards of a list, each of which may come once, under any name: if a shard came twice, so
/// would its samples. One thread.
class DistinctShards {
 public:
  /// @param identity  of the file that `path` leads to.
  /// Errors: InvalidArgument if it is there already, naming both spellings.
  void add_file(const std::string& path, const FileIdentity& identity);
  /// Adds a URL. Spellings that canonical_url() makes equal are one, and so are signatures of one.
  void add_url(const std::string& url);
  /// Adds a path or a URL; does nothing if there is no such file.
  void add_if_there(const std::string& shard);

 private:
  // By the whole identity: where a file system's inode numbers are not unique, times and sizes are.
  std::map<FileIdentity, std::string> files_;
  std::map<std::string, std::string> urls_;
};

/// Throws the InvalidArgument that DistinctShards does.
[[noreturn]] void refuse_shard_named_twice(const std::string& first, const std::string& second);

}  // namespace shardwise
