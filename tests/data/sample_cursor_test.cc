#include "data/sample_cursor.h"

#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "data/field_cursor.h"
#include "data/field_sizes.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/storage/shard_cache.h"
#include "support/support.h"

namespace shardwise {
namespace {

using detail::FieldCursor;
using detail::FieldPlace;
using detail::SampleCursor;

constexpr int kSamples = 20;  // per shard

/// Makes shards of kSamples samples, indexed as <dir>/x.idx. Returns the index's path.
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
  constexpr int kShards = 70;  // more than a cursor holds
  const Dataset all = Dataset::open(make_shards(dir, kShards, Compression::kNone));
  const Dataset read = Dataset::open(dir / "x.idx", {.access = Dataset::Access::kRead});
  const Dataset few = Dataset::open(dir / "x.idx", {.max_open_shards = 2});
  std::vector<std::uint64_t> odd;
  for (std::uint64_t i = 1; i < all.size(); i += 2) odd.push_back(i);
  for (const Dataset& data : {all, read, few, all.subset(odd)}) {
    std::mt19937_64 random(3);
    std::vector<std::uint64_t> numbers;
    while (numbers.size() < 3000) numbers.push_back(random() % (data.size() + 1));
    std::optional<Sample> kept;
    std::uint64_t kept_index = 0;
    {
      SampleCursor cursor(data, numbers);
      std::size_t longest = 0;
      for (std::size_t at = 0; at < numbers.size();) {
        if (numbers[at] == data.size()) {
          EXPECT_EQ(test::error_text([&] { cursor.next_run(); }),
                    test::error_text([&] { data[data.size()]; }));
          ++at;
          continue;
        }
        const std::span<const Sample> run = cursor.next_run();
        ASSERT_FALSE(run.empty());
        ASSERT_LE(run.size(), numbers.size() - at);
        longest = std::max(longest, run.size());
        for (const Sample& sample : run) {
          expect_same(sample, data[numbers[at]]);
          if (at++ == 1500) {
            kept = sample;
            kept_index = numbers[at - 1];
          }
        }
      }
      EXPECT_TRUE(cursor.next_run().empty());
      EXPECT_LE(longest, SampleCursor::kMaxRun);
    }
    if (kept) expect_same(*kept, data[kept_index]);  // a copied sample outlives the cursor
  }
}

TEST(SampleCursorTest, ARunHasSamplesOfSeveralShardsAndOneThatIsReadIsAlone) {
  const test::TempDir dir;
  const Dataset mapped = Dataset::open(make_shards(dir, 4, Compression::kNone));
  const Dataset read = Dataset::open(dir / "x.idx", {.access = Dataset::Access::kRead});
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < mapped.size(); ++i) {
    numbers.push_back(i % 4 * kSamples + i / 4);                // alternates between the shards
    EXPECT_EQ(mapped[numbers.back()].index(), numbers.back());  // opens the shard
  }
  SampleCursor cursor(mapped, numbers);
  EXPECT_EQ(cursor.next_run().size(), SampleCursor::kMaxRun);
  EXPECT_EQ(cursor.next_run().size(), SampleCursor::kMaxRun);
  EXPECT_EQ(cursor.next_run().size(), numbers.size() - 2 * SampleCursor::kMaxRun);
  EXPECT_TRUE(cursor.next_run().empty());
  SampleCursor reader(read, numbers);
  for (const std::uint64_t number : numbers) {
    const std::span<const Sample> run = reader.next_run();
    ASSERT_EQ(run.size(), 1u);
    EXPECT_EQ(run[0].index(), number);
  }
  EXPECT_TRUE(reader.next_run().empty());
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
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 3 * data.size(); ++i) {
    numbers.push_back(i * kSamples % data.size() + i / kShards % kSamples);
  }
  SampleCursor cursor(data, numbers);
  for (std::size_t at = 0; at < numbers.size();) {
    const std::span<const Sample> run = cursor.next_run();
    ASSERT_FALSE(run.empty());
    for (const Sample& sample : run) EXPECT_EQ(sample.number_in_index(), numbers[at++]);
    EXPECT_LE(cache->used_bytes(), 5 * shard_bytes) << "of " << kShards;
  }
}

std::vector<FieldPlace> places_of(const Dataset& data, std::span<const std::uint64_t> numbers,
                                  const std::string& field) {
  std::vector<FieldPlace> places(numbers.size());
  detail::FieldSizes(data).find(numbers, std::span(&field, 1), places);
  return places;
}

/// Returns the number of rows that the cursor gives. Expects that each row has the fields of its
/// sample.
std::size_t read_fields(const Dataset& data, std::span<const std::uint64_t> numbers,
                        FieldCursor::Opening opening) {
  const std::vector<FieldPlace> places = places_of(data, numbers, "txt");
  FieldCursor cursor(data, {places, places}, opening);
  std::size_t row = 0;
  while (const std::size_t count = cursor.next_run()) {
    for (std::size_t i = 0; i < count; ++i, ++row) {
      const Sample sample = data[numbers[row]];
      EXPECT_EQ(cursor.fields(0)[i], sample["txt"]) << row;
      EXPECT_EQ(cursor.fields(1)[i], sample["txt"]) << row;
    }
  }
  EXPECT_TRUE(cursor.are_unchanged());
  return row;
}

TEST(FieldSizesTest, ManySamplesOfChangingShardsNeedLittleMemory) {
  const test::TempDir dir;
  const Dataset data = Dataset::open(make_shards(dir, 129, Compression::kNone));
  std::vector<std::uint64_t> numbers(1'000'000);  // alternately of the first and the last shard
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = i / 2 % kSamples + (i % 2 == 0 ? 0 : 128 * kSamples);
  }
  const std::string field = "txt";
  std::vector<FieldPlace> places(numbers.size());
  const auto period = std::span(numbers).first(2 * kSamples);
  const std::vector<FieldPlace> expected = places_of(data, period, field);
  const auto peak_kib = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto before = peak_kib();
  detail::FieldSizes(data).find(numbers, std::span(&field, 1), places);
  EXPECT_LT(peak_kib() - before, 20 << 10);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const FieldPlace& place = expected[i % expected.size()];
    ASSERT_EQ(places[i].shard, i % 2 == 0 ? 0U : 128U) << i;
    ASSERT_EQ(places[i].offset, place.offset) << i;
    ASSERT_EQ(places[i].size_bytes, place.size_bytes) << i;
  }
}

TEST(FieldCursorTest, GivesTheFieldsThatTheSamplesHave) {
  const test::TempDir dir;
  const Dataset all = Dataset::open(make_shards(dir, 70, Compression::kNone));
  const Dataset few = Dataset::open(dir / "x.idx", {.max_open_shards = 2});
  std::vector<std::uint64_t> odd;
  for (std::uint64_t i = 1; i < all.size(); i += 2) odd.push_back(i);
  for (const Dataset& data : {all, few, all.subset(odd)}) {
    std::mt19937_64 random(3);
    std::vector<std::uint64_t> numbers(1000);
    for (std::uint64_t& number : numbers) number = random() % data.size();
    EXPECT_EQ(read_fields(data, numbers, FieldCursor::Opening::kOpen), numbers.size());
    EXPECT_EQ(read_fields(data, {}, FieldCursor::Opening::kOpen), 0U);
  }
}

TEST(FieldCursorTest, StopsAtTheFirstFieldThatItCannotRead) {
  const test::TempDir dir;
  const Dataset data = Dataset::open(make_shards(dir, 3, Compression::kNone));
  const Dataset read = Dataset::open(dir / "x.idx", {.access = Dataset::Access::kRead});
  const std::vector<std::uint64_t> numbers{0, 1, kSamples, 2};
  EXPECT_EQ(read_fields(read, numbers, FieldCursor::Opening::kOpen), 0U);
  EXPECT_EQ(read_fields(data, numbers, FieldCursor::Opening::kOpenOnly), 0U);
  const Sample first = data[0];
  EXPECT_EQ(read_fields(data, numbers, FieldCursor::Opening::kOpenOnly), 2U);
  EXPECT_EQ(read_fields(data, numbers, FieldCursor::Opening::kOpen), 4U);
  const std::vector<FieldPlace> none = places_of(data, numbers, "none");
  EXPECT_EQ(FieldCursor(data, {none}, FieldCursor::Opening::kOpen).next_run(), 0U);
}

TEST(FieldCursorTest, HoldsOneShardOfACache) {
  const test::TempDir dir;
  const std::string index = make_shards(dir, 3, Compression::kGzip);
  const auto cache = ShardCache::open({.directory = dir / "cache"});
  const Dataset data = Dataset::open(index, {.cache = cache});
  const std::vector<std::uint64_t> numbers{0, 1, kSamples, 2, 2 * kSamples};
  EXPECT_EQ(read_fields(data, numbers, FieldCursor::Opening::kOpen), 0U);  // shards are closed
  for (const std::uint64_t number : numbers) static_cast<void>(data[number]);
  EXPECT_EQ(read_fields(data, numbers, FieldCursor::Opening::kOpen), numbers.size());
}

}  // namespace
}  // namespace shardwise
