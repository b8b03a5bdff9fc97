#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/support.h"

namespace shardwise::test {

inline constexpr int kShards = 20;
inline constexpr int kSamples = 50;  // per shard

/// A server with shards, an index of them, and caches.
class RemoteDatasetTest : public ::testing::Test {
 protected:
  RemoteDatasetTest() : fetchers_(std::make_shared<const Fetchers>(quick_options())) {}

  static std::string tar_body(int shard) {
    TarBuilder tar;
    for (int i = 0; i < kSamples; ++i) {
      const std::string key = "s" + std::to_string(1000 * shard + i);
      tar.file(key + ".txt", "text " + key).file(key + ".cls", std::to_string(i % 10));
    }
    return tar.end().bytes();
  }
  /// Serves shards of equal size as /<i>.tar. Returns their URLs.
  std::vector<std::string> serve(Compression compression = Compression::kNone) {
    std::vector<std::string> urls;
    for (int shard = 0; shard < kShards; ++shard) {
      const std::string path = "/" + std::to_string(shard) + ".tar";
      const std::string body = tar_body(shard);
      shard_bytes_ = body.size();
      server_.serve(path, {.body = compress(body, compression)});
      urls.push_back(server_.url(path));
    }
    return urls;
  }
  RemoteAccess remote(std::shared_ptr<ShardCache> keep = nullptr) {
    return make_remote_access(fetchers_, std::move(keep));
  }
  std::shared_ptr<ShardCache> cache(
      std::uint64_t budget_bytes = 1 << 30,
      std::chrono::milliseconds room_timeout = ShardCache::Options{}.room_timeout) {
    return ShardCache::open({.directory = dir_ / "cache",
                             .budget_bytes = budget_bytes,
                             .room_timeout = room_timeout,
                             .fetchers = fetchers_});
  }
  Dataset open_ranged() const {
    return Dataset::open(index_path(), {.access = Dataset::Access::kRange, .fetchers = fetchers_});
  }
  std::string index_path() const { return dir_ / "remote.idx"; }
  int total_gets() const {
    int gets = 0;
    for (int shard = 0; shard < kShards; ++shard) {
      gets += server_.gets("/" + std::to_string(shard) + ".tar");
    }
    return gets;
  }

  TempDir dir_;
  TestHttpServer server_;
  std::shared_ptr<const Fetchers> fetchers_;
  std::uint64_t shard_bytes_ = 0;
};

}  // namespace shardwise::test
