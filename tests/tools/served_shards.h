#pragma once

#include "shardwise_program.h"
#include "storage/test_http_server.h"

namespace shardwise::test {

/// Shards 0.tar, 1.tar, ... with the same number of samples, behind a server. Also a folder for
/// indexes and caches.
class ServedShards {
 public:
  static constexpr int kShards = 10;
  static constexpr int kSamples = 20;

  ServedShards() {
    for (int i = 0; i < kShards; ++i) server.serve(path(i), {.body = body(i)});
  }

  static std::string path(int shard) { return "/" + std::to_string(shard) + ".tar"; }
  /// Returns a shard's bytes. All shards have the same size.
  static std::string body(int shard) { return small_shard(100 + kSamples * shard, kSamples); }
  static std::size_t shard_bytes() { return body(0).size(); }
  /// Returns a pattern for all shards' URLs.
  std::string pattern() const { return server.url("/{0..9}.tar"); }
  std::string index() const { return dir / "x.idx"; }
  std::string cache() const { return dir / "cache"; }
  int gets() const {
    int count = 0;
    for (int i = 0; i < kShards; ++i) count += server.gets(path(i));
    return count;
  }
  /// Returns the names of files in the cache that do not belong to complete shards.
  std::vector<std::string> half_written() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(cache() + "/shards")) return names;
    for (const auto& entry : std::filesystem::directory_iterator(cache() + "/shards")) {
      if (entry.path().extension() == ".tmp") names.push_back(entry.path().filename());
    }
    return names;
  }

  TempDir dir;
  TestHttpServer server;
};

}  // namespace shardwise::test
