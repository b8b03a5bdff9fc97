#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/support.h"

namespace shardwise::test {

inline constexpr std::uint64_t kSamples = 72;
inline constexpr std::size_t kSampleBytes = 128 << 10;
inline constexpr std::size_t kPauseAt = 4 << 20;

inline std::string name_of(std::uint64_t i) { return "sample" + std::to_string(100 + i); }
inline std::string content(std::uint64_t i) {
  return some_bytes(kSampleBytes, static_cast<std::uint32_t>(i + 1));
}
/// A sample whose bytes have not arrived while the server pauses.
inline constexpr std::uint64_t kLate = kSamples - 1;

/// A server with a shard of kSamples samples. It stops sending after kPauseAt bytes, until go_on()
/// is called.
class EarlyShardTest : public ::testing::Test {
 protected:
  EarlyShardTest() {
    TarBuilder tar;
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      headers_.push_back(tar.size());
      tar.file(name_of(i) + ".bin", content(i)).file(name_of(i) + ".cls", std::to_string(i));
    }
    body_ = tar.end().bytes();
  }

  /// Serves and indexes the shard. From now on the server pauses while it sends the shard.
  void serve(bool hashes = false, ServedFile how = {}) {
    how.body = body_;
    server_.serve(kPath, how);
    build_index(dir_ / "x.idx", {server_.url(kPath)},
                {.content = {.hashes = hashes}, .remote = make_remote_access()});
    gets_before_ = server_.gets(kPath);
    how_ = how;
    pause();
  }
  void pause() {
    *pauses_ = true;
    how_.pause_at = kPauseAt;
    how_.pauses = pauses_;
    server_.serve(kPath, how_);
  }
  void go_on() { *pauses_ = false; }
  int gets() const { return server_.gets(kPath) - gets_before_; }

  std::shared_ptr<ShardCache> cache(std::uint64_t budget_bytes = 1 << 30) {
    return ShardCache::open({.directory = dir_ / "cache",
                             .budget_bytes = budget_bytes,
                             .fetchers = std::make_shared<const Fetchers>(quick_options())});
  }
  Dataset open(std::shared_ptr<ShardCache> in, Dataset::Options options = {}) const {
    options.cache = std::move(in);
    return Dataset::open(dir_ / "x.idx", options);
  }
  static void wait_for_the_whole(const ShardCache& cache) {
    while (cache.stats().fetched == 0) std::this_thread::yield();
  }
  /// True if the cache has the shard under its final name.
  bool is_in_cache() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache/shards")) {
      if (entry.path().extension() == ".tar") return true;
    }
    return false;
  }

  static constexpr char kPath[] = "/a.tar";
  TempDir dir_;
  TestHttpServer server_;
  std::string body_;
  std::vector<std::size_t> headers_;  // offset of each sample's first header
  ServedFile how_;
  int gets_before_ = 0;
  std::shared_ptr<std::atomic<bool>> pauses_ = std::make_shared<std::atomic<bool>>(false);
};

inline void expect_sample(const Dataset& data, std::uint64_t i) {
  const Sample sample = data[i];
  EXPECT_EQ(sample.key(), name_of(i));
  EXPECT_TRUE(same(sample["bin"], content(i)));
  EXPECT_EQ(sample.integer("cls"), static_cast<std::int64_t>(i));
  EXPECT_TRUE(same(sample.copy("bin"), content(i)));
}

}  // namespace shardwise::test
