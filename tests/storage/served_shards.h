#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/support.h"

namespace shardwise::test {

/// A server with several shards of one size, /0.tar, /1.tar, ..., and a folder for a cache of them.
class ServedShardsTest : public ::testing::Test {
 protected:
  explicit ServedShardsTest(std::size_t shard_bytes, int num_shards = 8)
      : shard_bytes_(shard_bytes) {
    for (int i = 0; i < num_shards; ++i) server_.serve(path(i), {.body = body(i)});
  }

  static std::string path(int i) { return "/" + std::to_string(i) + ".tar"; }
  std::string body(int i) const {
    return some_bytes(shard_bytes_, static_cast<std::uint32_t>(i + 1));
  }
  CacheRequest request(int i) const {
    return {.source = {.url = server_.url(path(i)), .size_bytes = shard_bytes_}};
  }
  std::string cache_path() const { return dir_ / "cache"; }
  ShardCache::Options options(std::uint64_t budget_shards = 100) const {
    return {.directory = cache_path(),
            .budget_bytes = budget_shards * shard_bytes_,
            .fetchers = std::make_shared<const Fetchers>(quick_options())};
  }
  std::string read(ShardCache& cache, int i) const {
    return read_file(CacheAccess::get(cache, request(i)).path());
  }
  /// Returns the names of the files in the cache's folder of shards.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(cache_path() + "/shards")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const std::size_t shard_bytes_;
  TempDir dir_;
  TestHttpServer server_;
};

}  // namespace shardwise::test
