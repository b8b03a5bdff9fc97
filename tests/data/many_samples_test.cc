#include <cstdint>
#include <fstream>
#include <optional>
#include <random>
#include <ranges>
#include <string>
#include <thread>
#include <vector>

#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/storage/shard_cache.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::content_of;
using test::Shards;
using testing::AllOf;
using testing::HasSubstr;

static_assert(std::ranges::input_range<detail::SampleRange>);

std::vector<std::uint64_t> random_numbers(std::uint64_t size, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> numbers(count);
  for (std::uint64_t& number : numbers) number = random() % size;
  return numbers;
}

std::string_view row(const std::vector<std::int64_t>& offsets, const std::vector<std::byte>& bytes,
                     std::size_t i) {
  return {reinterpret_cast<const char*>(bytes.data()) + offsets[i],
          static_cast<std::size_t>(offsets[i + 1] - offsets[i])};
}

/// Compares samples() and gather() with data[i]. Returns the difference, or "".
std::string differs_from_the_loop(const Dataset& data, std::span<const std::uint64_t> numbers) {
  std::size_t at = 0;
  for (const Sample& sample : data.samples(numbers)) {
    const Sample expected = data[numbers[at]];
    if (sample.index() != expected.index() || sample.key() != expected.key() ||
        sample.number_in_index() != expected.number_in_index() ||
        sample["bin"] != expected["bin"] || sample["cls"] != expected["cls"]) {
      return "sample " + std::to_string(at) + " of the range is another";
    }
    ++at;
  }
  if (at != numbers.size()) return "the range ended after " + std::to_string(at);
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> bytes;
  data.gather(numbers, "bin", offsets, bytes);
  std::vector<std::uint64_t> sizes(numbers.size());
  data.sizes(numbers, "bin", sizes);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Sample expected = data[numbers[i]];
    if (sizes[i] != expected["bin"].size()) return "size " + std::to_string(i) + " differs";
  }
  if (offsets.size() != numbers.size() + 1 || offsets[0] != 0 ||
      offsets.back() != static_cast<std::int64_t>(bytes.size())) {
    return "wrong offsets";
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Sample expected = data[numbers[i]];
    if (row(offsets, bytes, i) != expected["bin"]) return "row " + std::to_string(i) + " differs";
  }
  return {};
}

TEST(ManySamplesTest, AreThoseOfTheLoopByEveryAccess) {
  const Shards shards(40, 30);
  const Dataset all = Dataset::open(shards.index_path());
  std::vector<std::uint64_t> odd;
  for (std::uint64_t i = 1; i < all.size(); i += 2) odd.push_back(i);
  const Dataset sets[] = {all, Dataset::open(shards.index_path(), {.max_open_shards = 2}),
                          Dataset::open(shards.index_path(), {.access = Dataset::Access::kRead}),
                          Dataset::open(shards.index_path(), {.access = Dataset::Access::kRange}),
                          all.subset(odd)};
  for (const Dataset& data : sets) {
    for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 33u, 1500u}) {
      EXPECT_EQ(differs_from_the_loop(data, random_numbers(data.size(), count, 7)), "") << count;
    }
  }
}

TEST(ManySamplesTest, AreThoseOfTheLoopThroughACache) {
  const test::TempDir dir;
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < 6; ++i) {
    paths.push_back(dir / (std::to_string(i) + ".tar.gz"));
    test::write_file(paths.back(),
                     test::compress(test::shard_bytes(i * 20, 20), Compression::kGzip));
  }
  build_index(dir / "x.idx", paths);
  const auto cache = ShardCache::open({.directory = dir / "cache", .budget_bytes = 1 << 20});
  const Dataset data = Dataset::open(dir / "x.idx", {.cache = cache});
  EXPECT_EQ(differs_from_the_loop(data, random_numbers(data.size(), 300, 3)), "");
}

TEST(ManySamplesTest, ACopyOutlivesTheRangeAndTheLoopMayBeLeft) {
  const Shards shards(3, 10);
  std::optional<Sample> kept;
  {
    const Dataset data = Dataset::open(shards.index_path());
    const std::vector<std::uint64_t> numbers{3, 27, 5};
    for (const Sample& sample : data.samples(numbers)) {
      kept = sample;
      if (sample.index() == 27) break;
    }
  }
  EXPECT_EQ(kept->index(), 27u);
  EXPECT_EQ((*kept)["bin"], content_of(27));
}

TEST(ManySamplesTest, GatherAsksOnceForMemoryOfTheRightSizeAndBeforeAShardIsRead) {
  const Shards shards(2, 10);
  const Dataset data = Dataset::open(shards.index_path());
  const std::vector<std::uint64_t> numbers{12, 3, 3};
  const std::string expected = content_of(12) + content_of(3) + content_of(3);
  std::vector<std::int64_t> offsets(4);
  std::string memory;
  int asked = 0;
  data.gather(numbers, "bin", std::span(offsets), [&](std::size_t size_bytes) {
    ++asked;
    EXPECT_EQ(data.pool_stats().opened, 0u);
    memory.resize(size_bytes);
    return reinterpret_cast<std::byte*>(memory.data());
  });
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(memory, expected);
  offsets.resize(3);
  EXPECT_THAT(test::error_text([&] {
                data.gather(numbers, "bin", std::span(offsets),
                            [](std::size_t) { return static_cast<std::byte*>(nullptr); });
              }),
              AllOf(HasSubstr("3 offsets for 3 samples"), HasSubstr("one offset more")));
}

TEST(ManySamplesTest, GatherGivesNothingOfAMappedShardThatWasWrittenTo) {
  const Shards shards(3, 10);
  const Dataset data = Dataset::open(shards.index_path());
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> bytes;
  const std::vector<std::uint64_t> numbers{25, 11, 3, 12, 26, 4};
  data.gather(numbers, "bin", offsets, bytes);  // afterwards all three shards are mapped
  {
    std::fstream file(shards.path(1), std::ios::in | std::ios::out);
    file.seekp(512).put('X');  // the size and the headers stay the same
  }
  EXPECT_EQ(test::error_text([&] { data.gather(numbers, "bin", offsets, bytes); }),
            test::error_text([&] { static_cast<void>(data[12].copy("bin")); }));
  EXPECT_THROW(data.gather(numbers, "bin", offsets, bytes), StaleIndex);
  const std::vector<std::uint64_t> others{25, 3, 26};
  data.gather(others, "bin", offsets, bytes);
  EXPECT_EQ(row(offsets, bytes, 1), content_of(3));
}

TEST(ManySamplesTest, BadNumbersAndMissingFieldsAreTheErrorsOfTheLoop) {
  const Shards shards(2, 10);
  const Dataset data = Dataset::open(shards.index_path());
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> bytes;
  const std::vector<std::uint64_t> bad{4, 20};
  const std::string out_of_range = test::error_text([&] { data[20]; });
  int seen = 0;
  EXPECT_EQ(test::error_text([&] {
              for (const Sample& sample : data.samples(bad)) seen += sample.index() == 4 ? 1 : 100;
            }),
            out_of_range);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(test::error_text([&] { data.gather(bad, "bin", offsets, bytes); }), out_of_range);
  // The error is of the first sample in the list, although the second one's shard comes first.
  const std::vector<std::uint64_t> good{17, 4};
  EXPECT_EQ(test::error_text([&] { data.gather(good, "png", offsets, bytes); }),
            test::error_text([&] {
              const Sample sample = data[17];
              static_cast<void>(sample["png"]);
            }));
  EXPECT_THROW(data.gather(good, "png", offsets, bytes), NotFound);

  std::vector<std::uint64_t> sizes{1, 1};
  data.sizes(good, "png", sizes);
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{0, 0})) << "of a field that is not there";
  EXPECT_EQ(test::error_text([&] { data.sizes(bad, "bin", sizes); }), out_of_range);
  const Dataset fresh = Dataset::open(shards.index_path());
  fresh.sizes(good, "bin", sizes);
  EXPECT_GT(sizes[0], 0u);
  EXPECT_EQ(fresh.pool_stats().opened, 0u) << "the index has them";
  sizes.resize(3);
  EXPECT_THAT(test::error_text([&] { data.sizes(good, "bin", sizes); }),
              AllOf(HasSubstr("number of sizes"), HasSubstr("3 sizes for 2 samples")));
}

TEST(ManySamplesConcurrencyTest, ThreadsHaveRangesOfTheirOwn) {
  const Shards shards(20, 20);
  const Dataset data = Dataset::open(shards.index_path(), {.max_open_shards = 8});
  std::vector<std::string> wrong(3);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 5 && wrong[t].empty(); ++round) {
        wrong[t] = differs_from_the_loop(data, random_numbers(data.size(), 200, 10 * t + round));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(""));
}

}  // namespace
}  // namespace shardwise
