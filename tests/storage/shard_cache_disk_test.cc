// Compressed shards in a cache, and full disks.
#include <fcntl.h>

#include <random>

#include "base/fault_point.h"
#include "base/hasher.h"
#include "shardwise/base/hash.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/served_shards.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::size_t kBytes = 100'000;  // size of a shard

class ShardCacheDiskTest : public test::ServedShardsTest {
 protected:
  ShardCacheDiskTest() : ServedShardsTest(kBytes) {}
};

class CompressedShardCacheTest : public ShardCacheDiskTest,
                                 public ::testing::WithParamInterface<Compression> {};

TEST_P(CompressedShardCacheTest, IsExpandedOnTheWayIn) {
  const std::string bytes = std::string(1 << 20, 'a') + body(0);
  const std::string stored = test::compress(bytes, GetParam());
  server_.serve("/x", {.body = stored});
  test::write_file(dir_ / "local", stored);
  const auto cache = ShardCache::open(options());
  for (const std::string& url : {server_.url("/x"), dir_ / "local"}) {
    const CacheRequest wanted{.source = {.url = url,
                                         .compression = GetParam(),
                                         .size_bytes = bytes.size(),
                                         .source_bytes = stored.size(),
                                         .source_hash = hash128(stored)}};
    EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), bytes);
    EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), bytes);
  }
  EXPECT_EQ(server_.gets("/x"), 1);
  EXPECT_EQ(cache->stats().fetched_bytes, 2 * stored.size());
  EXPECT_EQ(cache->used_bytes(), 2 * bytes.size());

  server_.serve("/cut", {.body = stored.substr(0, stored.size() / 2)});
  EXPECT_EQ(error_code([&] {
              CacheAccess::get(*cache,
                               {.source = {.url = server_.url("/cut"), .compression = GetParam()}});
            }),
            ErrorCode::kCorruptShard);
  EXPECT_THAT(cache->entries(), SizeIs(2));
}

TEST_P(CompressedShardCacheTest, IsRefusedWithAFlippedBitOrBytesBehindIt) {
  const std::uint64_t seed = test::random_seed();
  std::mt19937_64 random(seed);
  const std::string bytes = std::string(5000, 'a') + body(0);
  const std::string stored = test::compress(bytes, GetParam());
  const auto cache = ShardCache::open(options());
  const auto get = [&](const std::string& name, const std::string& damaged) {
    test::write_file(dir_ / name, damaged);
    return test::read_file(CacheAccess::get(*cache, {.source = {.url = dir_ / name,
                                                                .compression = GetParam(),
                                                                .size_bytes = bytes.size()}})
                               .path());
  };
  for (int trial = 0; trial < 100; ++trial) {
    std::string flipped = stored;
    const std::uint64_t bit = random() % (flipped.size() * 8);
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    try {
      EXPECT_EQ(get("flipped" + std::to_string(trial), flipped), bytes) << "bit " << bit;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("flipped" + std::to_string(trial)));
    }
  }
  EXPECT_EQ(error_code([&] { get("behind", stored + "rubbish"); }), ErrorCode::kCorruptShard);
  EXPECT_EQ(error_code([&] { get("cut", stored.substr(0, stored.size() - 1)); }),
            ErrorCode::kCorruptShard);
}
INSTANTIATE_TEST_SUITE_P(All, CompressedShardCacheTest,
                         ::testing::Values(Compression::kGzip, Compression::kZstd, Compression::kXz,
                                           Compression::kBzip2, Compression::kLz4));

// Fault under test: tests/faults.md 5.
TEST_F(ShardCacheDiskTest, AFullDiskIsATypedErrorAndNothingIsLeft) {
  const auto cache = ShardCache::open(options());
  read(*cache, 0);
  EXPECT_EQ(test::in_child([&]() -> std::string {
              ::signal(SIGXFSZ, SIG_IGN);
              test::set_limit(RLIMIT_FSIZE, kBytes / 2);
              const auto code = error_code([&] { CacheAccess::get(*cache, request(1)); });
              if (code != ErrorCode::kNoSpace) return "no NoSpace";
              return read(*cache, 0) == body(0) ? "" : "the other shard cannot be read";
            }),
            "");
  EXPECT_THAT(files(), SizeIs(2));
  EXPECT_EQ(read(*cache, 1), body(1)) << "room returned";
}

/// Simulates a disk with room for three shards.
struct SmallDisk {
  static inline std::string folder;
  static void handle(const char* point) {
    if (std::string_view(point) == "shard_cache.temporary_made") require_space();
  }
  static void require_space() {
    int shards = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      shards += entry.path().extension() == ".tar" ? 1 : 0;
    }
    if (shards >= 3) throw Error(ErrorCode::kNoSpace, "the disk is full", "", "");
  }
};

// Fault under test: tests/faults.md 5.
TEST_F(ShardCacheDiskTest, AFullDiskMakesRoomAndTheRunGoesOn) {
  const auto cache = ShardCache::open(options());
  SmallDisk::folder = dir_ / "cache/shards";
  set_fault_handler(&SmallDisk::handle);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(read(*cache, i), body(i));
  EXPECT_EQ(cache->stats().evicted, 5u);
  EXPECT_EQ(cache->used_bytes(), 3 * kBytes);

  std::vector<CachedShard> used;
  for (const int i : {5, 6, 7}) used.push_back(CacheAccess::get(*cache, request(i)));
  EXPECT_THAT(
      error_text([&] { read(*cache, 0); }),
      AllOf(HasSubstr("shard cache is full"), HasSubstr(dir_ / "cache"), HasSubstr("free space")));
  CacheRequest wanted = request(0);
  wanted.may_read_uncached = [] { return true; };
  EXPECT_FALSE(CacheAccess::get(*cache, wanted).is_pinned())
      << "its samples can be read all the same";
  set_fault_handler(nullptr);
  EXPECT_EQ(read(*cache, 0), body(0)) << "room returned";
}

// Fault under test: tests/faults.md 5.
TEST_P(CompressedShardCacheTest, AFullDiskMakesRoomForTheCompressedFileToo) {
  const auto cache = ShardCache::open(options());
  for (int i = 0; i < 3; ++i) read(*cache, i);
  static std::string full_at;
  SmallDisk::folder = dir_ / "cache/shards";
  const std::string stored = test::compress(body(4), GetParam());
  server_.serve("/x", {.body = stored});
  for (const bool is_known : {true, false}) {
    for (const char* point : {"shard_cache.stored", "shard_cache.record"}) {
      full_at = point;
      set_fault_handler([](const char* reached) {
        if (full_at == reached) SmallDisk::require_space();
      });
      CacheRequest wanted{
          .source = {.url = server_.url("/x"), .compression = GetParam(), .size_bytes = kBytes}};
      if (is_known) wanted.source.source_bytes = stored.size();
      EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), body(4)) << point;
      set_fault_handler(nullptr);
      EXPECT_THAT(cache->entries(), SizeIs(testing::AllOf(testing::Ge(1), testing::Le(3))));
      EXPECT_TRUE(cache->remove(CacheAccess::name_of(wanted)));
      for (int i = 0; i < 3; ++i) read(*cache, i);
    }
  }
}

}  // namespace
}  // namespace shardwise
