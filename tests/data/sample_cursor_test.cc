#include "data/sample_cursor.h"

#include <numeric>
#include <optional>
#include <random>

#include "shardwise/ingest/index_builder.h"
#include "shardwise/storage/shard_cache.h"
#include "support/support.h"

namespace shardwise {
namespace {

using detail::SampleCursor;

constexpr int kSamples = 20;  // of each shard

/// Shards of kSamples samples, indexed as <dir>/x.idx.
std::string make_shards(const test::TempDir& dir, int count, Compression compression) {
  std::vector<std::string> shards;
  for (int shard = 0; shard < count; ++shard) {
    test::TarBuilder tar;
    for (int i = 0; i < kSamples; ++i) {
      const std::string name = std::to_string(shard) + "-" + std::to_string(i);
      tar.file(name + ".txt", name + std::string(3000, 'x'));
    }
    const bool is_plain = compression == Compression::kNone;
    shards.push_back(dir / (std::to_string(shard) + (is_plain ? ".tar" : ".tar.gz")));
    test::write_file(shards.back(), test::compress(tar.end().bytes(), compression));
  }
  build_index(dir / "x.idx", shards);
  return dir / "x.idx";
}

void expect_same(const Sample& a, const Sample& b) {
  EXPECT_EQ(a.index(), b.index());
  EXPECT_EQ(a.number_in_index(), b.number_in_index());
  EXPECT_EQ(a.key(), b.key());
  EXPECT_EQ(a["txt"], b["txt"]);
  EXPECT_EQ(a.shard_path(), b.shard_path());
}

TEST(SampleCursorTest, GivesTheSamplesThatTheDatasetGives) {
  const test::TempDir dir;
  constexpr int kShards = 70;  // more than it holds
  const Dataset all = Dataset::open(make_shards(dir, kShards, Compression::kNone));
  const Dataset read = Dataset::open(dir / "x.idx", {.access = Dataset::Access::kRead});
  const Dataset few = Dataset::open(dir / "x.idx", {.max_open_shards = 2});
  std::vector<std::uint64_t> odd;
  for (std::uint64_t i = 1; i < all.size(); i += 2) odd.push_back(i);
  for (const Dataset& data : {all, read, few, all.subset(odd)}) {
    std::mt19937_64 random(3);
    std::optional<Sample> kept;
    std::uint64_t kept_index = 0;
    {
      SampleCursor cursor(data);
      for (int run = 0; run < 3000; ++run) {
        const std::uint64_t index = random() % data.size();
        cursor.prefetch_records(random() % (data.size() + 2));
        cursor.prefetch_bytes(random() % (data.size() + 2));
        const Sample& sample = cursor.at(index);
        expect_same(sample, data[index]);
        if (run == 1500) {
          kept = sample;
          kept_index = index;
        }
      }
      EXPECT_EQ(test::error_text([&] { cursor.at(data.size()); }),
                test::error_text([&] { data[data.size()]; }));
    }
    expect_same(*kept, data[kept_index]);  // a copy outlives the cursor
  }
}

TEST(SampleCursorTest, HoldsOneShardOfACacheAndNotAll) {
  const test::TempDir dir;
  constexpr int kShards = 10;
  const std::string index = make_shards(dir, kShards, Compression::kGzip);
  const std::uint64_t shard_bytes = kSamples * (512 + 3072) + 1024;
  const auto cache = ShardCache::open({.directory = dir / "cache",
                                       .budget_bytes = 3 * shard_bytes + 4096,
                                       .room_timeout = std::chrono::milliseconds(1)});
  const Dataset data = Dataset::open(index, {.cache = cache});
  SampleCursor cursor(data);
  for (std::uint64_t i = 0; i < 3 * data.size(); ++i) {
    const std::uint64_t sample = i * kSamples % data.size() + i / kShards % kSamples;
    cursor.prefetch_records(sample);
    EXPECT_EQ(cursor.at(sample).number_in_index(), sample);
    EXPECT_LE(cache->used_bytes(), 5 * shard_bytes) << "of " << kShards;
  }
}

}  // namespace
}  // namespace shardwise
