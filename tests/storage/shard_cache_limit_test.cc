#include <sys/resource.h>

#include <string>

#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::in_child;
using test::TempDir;

// Fault under test: tests/faults.md 26.
TEST(ShardCacheLimitTest, ManyShardsMakeRoomForOneWithFewDescriptors) {
  if (test::kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they use the descriptors "
                    "that it counts";
  constexpr int kShards = 150;
  constexpr std::size_t kBytes = 512;
  const TempDir dir;
  const auto cache =
      ShardCache::open({.directory = dir / "cache", .budget_bytes = kShards * kBytes});
  for (int i = 0; i < kShards; ++i) {
    const std::string path = dir / std::to_string(i);
    test::write_file(path, std::string(kBytes, 'x'));
    CacheAccess::get(*cache, {.source = {.url = path}});
  }
  ASSERT_EQ(cache->used_bytes(), kShards * kBytes);
  test::write_file(dir / "large", std::string(kShards * kBytes, 'y'));
  EXPECT_EQ(
      in_child([&]() -> std::string {
        test::set_limit(RLIMIT_NOFILE, 40);
        const CachedShard large = CacheAccess::get(*cache, {.source = {.url = dir / "large"}});
        if (cache->stats().bypassed != 0) return "no room was made";
        return test::read_file(large.path()) == std::string(kShards * kBytes, 'y') ? ""
                                                                                   : "other bytes";
      }),
      "");
  EXPECT_EQ(cache->used_bytes(), kShards * kBytes);
}

}  // namespace
}  // namespace shardwise
