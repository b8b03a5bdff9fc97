// Reading many samples of remote shards at a time, in few requests.
#include "data/range_ahead.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "data/merged_ranges.h"
#include "data/remote_dataset.h"
#include "data/sample_cursor.h"
#include "shardwise/ingest/index_builder.h"
#include "support/chain.h"

namespace shardwise {
namespace {

using detail::merge_ranges;
using detail::MergedRange;
using test::Dice;
using test::error_code;
using test::kSamples;
using test::kShards;
using test::same;
using test::ServedFile;
using test::some_bytes;

struct Range {
  std::uint64_t begin, end;
};

TEST(MergedRangesTest, RangesAreMergedUpToTheGapAndTheLimit) {
  test::for_each_seed(50, 2000, [](std::uint64_t seed) {
    Dice dice(seed);
    std::vector<Range> ranges(1 + dice.below(20));
    for (Range& range : ranges) {
      range.begin = dice.below(1000);
      range.end = range.begin + dice.below(60);
    }
    std::ranges::sort(ranges, {}, &Range::begin);
    const std::uint64_t gap = dice.below(50), max = dice.below(300);
    std::uint64_t last_end = 0;
    for (std::span<const Range> left = ranges; !left.empty();) {
      const MergedRange merged = merge_ranges(left, gap, max);
      ASSERT_GE(merged.count, 1U);
      ASSERT_LE(merged.count, left.size());
      std::uint64_t end = left.front().begin;
      for (const Range& range : left.first(merged.count)) {
        ASSERT_LE(range.begin, std::max(end, left.front().end) + gap);
        end = std::max(end, range.end);
      }
      ASSERT_EQ(merged.begin, left.front().begin);
      ASSERT_EQ(merged.end, end);
      ASSERT_TRUE(end - merged.begin <= std::max(max, left.front().end - merged.begin));
      last_end = std::max(last_end, end);
      left = left.subspan(merged.count);
    }
  });
}

class RangeAheadTest : public test::RemoteDatasetTest {
 protected:
  RangeAheadTest() { build(true); }

  void build(bool hashes) {
    std::filesystem::remove(index_path());
    build_index(index_path(), serve(), {.content = {.hashes = hashes}, .remote = remote()});
    gets_before_ = total_gets();
  }
  int gets() { return total_gets() - std::exchange(gets_before_, total_gets()); }
  static std::string text(std::uint64_t sample) {
    return "text s" + std::to_string(1000 * (sample / kSamples) + sample % kSamples);
  }
  static std::vector<std::uint64_t> random_samples(Dice& dice, std::size_t count) {
    std::vector<std::uint64_t> numbers(count);
    for (std::uint64_t& number : numbers) number = dice.below(std::uint64_t{kShards} * kSamples);
    return numbers;
  }
  /// Returns the largest number of requests that reading these samples may take. One request reads
  /// samples with gaps of up to 64 KiB between them. From a fast store it also spans larger gaps.
  int max_requests(std::span<const std::uint64_t> numbers) const {
    const std::uint64_t max_distance = (std::uint64_t{64} << 10) * kSamples / shard_bytes_;
    int count = 0;
    std::optional<std::uint64_t> before;
    for (const std::uint64_t number : std::set(numbers.begin(), numbers.end())) {
      const bool is_near =
          before && number / kSamples == *before / kSamples && number - *before <= max_distance;
      count += is_near ? 0 : 1;
      before = number;
    }
    return count;
  }
  static void expect_texts(const Dataset& data, std::span<const std::uint64_t> numbers) {
    std::size_t count = 0;
    for (const Sample& sample : data.samples(numbers)) {
      const std::uint64_t number = numbers[count++];
      ASSERT_EQ(sample.index(), number);
      ASSERT_EQ(sample["txt"], text(number));
      ASSERT_EQ(sample.integer("cls"), static_cast<std::int64_t>(number % kSamples % 10));
    }
    EXPECT_EQ(count, numbers.size());
  }

  int gets_before_ = 0;
};

TEST_F(RangeAheadTest, SamplesOfAShardComeInOneRequest) {
  const Dataset data = open_ranged();
  std::vector<std::uint64_t> numbers(kSamples);
  std::iota(numbers.begin(), numbers.end(), 7 * kSamples);
  expect_texts(data, numbers);
  EXPECT_EQ(gets(), 1);
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> bytes;
  data.gather(numbers, "cls", offsets, bytes);
  EXPECT_EQ(gets(), 1);
  EXPECT_EQ(bytes.size(), numbers.size());
  std::ranges::reverse(numbers);
  expect_texts(data, numbers);
  EXPECT_EQ(gets(), 1);
}

TEST_F(RangeAheadTest, RandomSamplesOfAShardComeTogetherUnlessTheyAreFarApart) {
  test::for_each_seed(5, 50, [&](std::uint64_t seed) {
    Dice dice(seed);
    const Dataset data = open_ranged();
    const auto numbers = random_samples(dice, 1 + dice.below(200));
    expect_texts(data, numbers);
    EXPECT_LE(gets(), max_requests(numbers));
    std::vector<std::uint64_t> some = random_samples(dice, 300);
    std::ranges::sort(some);
    some.erase(std::unique(some.begin(), some.end()), some.end());
    const Dataset view = data.subset(some);
    std::vector<std::uint64_t> all(view.size());
    std::iota(all.begin(), all.end(), 0U);
    dice.shuffle(all);
    std::size_t at = 0;
    for (const Sample& sample : view.samples(all)) {
      ASSERT_EQ(sample.index(), all[at]);
      ASSERT_EQ(sample["txt"], text(some[all[at++]]));
    }
    EXPECT_LE(gets(), max_requests(some));
  });
}

TEST_F(RangeAheadTest, WithoutHashesEachShardsFirstHeaderIsComparedOnce) {
  build(false);
  const Dataset data = open_ranged();
  Dice dice(1);
  const auto numbers = random_samples(dice, 400);
  expect_texts(data, numbers);
  EXPECT_EQ(gets(), 2 * kShards);
  expect_texts(data, numbers);
  EXPECT_EQ(gets(), kShards);
}

TEST_F(RangeAheadTest, AMissingShardFailsOnlyForItsSamples) {
  const Dataset data = open_ranged();
  server_.remove("/3.tar");
  std::vector<std::uint64_t> numbers = {0, 3 * kSamples, 5 * kSamples, 3 * kSamples + 9, 1};
  std::vector<std::uint64_t> read;
  detail::SampleCursor cursor(data, numbers);
  int failures = 0;
  for (;;) {
    try {
      const auto run = cursor.next_run();
      if (run.empty()) break;
      for (const Sample& sample : run) read.push_back(sample.index());
    } catch (const NotFound&) {
      ++failures;
    }
  }
  EXPECT_THAT(read, ::testing::ElementsAre(0, 5 * kSamples, 1));
  EXPECT_EQ(failures, 2);
}

TEST_F(RangeAheadTest, AHostThatFailsIsTriedForOneShardNotForAll) {
  build(false);
  const Dataset data = open_ranged();
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t shard = 0; shard < kShards; ++shard) numbers.push_back(shard * kSamples);
  for (std::uint64_t shard = 0; shard < kShards; ++shard) {
    server_.serve("/" + std::to_string(shard) + ".tar", {.body = tar_body(static_cast<int>(shard)),
                                                         .statuses = std::vector<int>(100, 503)});
  }
  EXPECT_EQ(error_code([&] { expect_texts(data, numbers); }), ErrorCode::kFetch);
  constexpr int kAttempts = 3;  // of a fetch
  EXPECT_LE(gets(), kShards + 2 * kAttempts);
}

TEST_F(RangeAheadTest, AChangedShardIsStale) {
  const Dataset data = open_ranged();
  std::vector<std::uint64_t> numbers(kSamples);
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::string body = tar_body(0);
  server_.serve("/0.tar", {.body = body, .etag = "\"v2\""});
  EXPECT_EQ(error_code([&] { expect_texts(data, numbers); }), ErrorCode::kStaleIndex);
  // The bytes changed, but the version did not.
  body[body.find("text s17")] = 'T';
  server_.serve("/0.tar", {.body = body});
  EXPECT_EQ(error_code([&] { expect_texts(data, numbers); }), ErrorCode::kStaleIndex);
  expect_texts(data, std::span(numbers).first(17));
  // The version changes between two parts of a batch.
  server_.serve("/0.tar", {.body = tar_body(0), .before_get = [n = 0](ServedFile& file) mutable {
                             if (++n == 2) file.etag = "\"v2\"";
                           }});
  expect_texts(data, numbers);
  EXPECT_EQ(error_code([&] { expect_texts(data, numbers); }), ErrorCode::kStaleIndex);
}

TEST_F(RangeAheadTest, AServerWithoutRangesIsAnError) {
  const Dataset data = open_ranged();
  std::vector<std::uint64_t> numbers(kSamples - 1);
  std::iota(numbers.begin(), numbers.end(), 1U);
  server_.serve("/0.tar", {.body = tar_body(0), .has_ranges = false});
  EXPECT_EQ(error_code([&] { expect_texts(data, numbers); }), ErrorCode::kFetch);
}

TEST_F(RangeAheadTest, AReadCanBeCancelled) {
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  std::atomic<bool> cancel{false};
  const Dataset data = Dataset::open(
      index_path(), {.access = Dataset::Access::kRange, .fetchers = fetchers_, .cancel = &cancel});
  for (int shard = 0; shard < kShards; ++shard) {
    server_.serve("/" + std::to_string(shard) + ".tar", {.body = tar_body(shard), .hangs = hangs});
  }
  gets();
  std::thread canceller([&] {
    while (total_gets() < gets_before_ + 5) std::this_thread::yield();
    cancel = true;
  });
  Dice dice(2);
  const auto numbers = random_samples(dice, 100);
  EXPECT_EQ(error_code([&] { expect_texts(data, numbers); }), ErrorCode::kCancelled);
  canceller.join();
}

// Fault under test: tests/faults.md 10.
TEST_F(RangeAheadTest, RandomReadsWithFaultsEqualTheServersBytes) {
  test::for_each_seed(10, 400, [&](std::uint64_t seed) {
    Dice dice(seed);
    build(dice.flip());
    const Dataset data = open_ranged();
    int num_faults = 0;
    for (int turn = 0; turn < 4; ++turn) {
      for (int shard = 0; shard < kShards; ++shard) {
        ServedFile file{.body = tar_body(shard)};
        if (dice.one_in(3)) {
          const int count = static_cast<int>(1 + dice.below(2));
          num_faults += count;
          switch (dice.below(5)) {
            case 0:
              file.statuses.assign(static_cast<std::size_t>(count),
                                   dice.one_of({408, 429, 500, 503, 504}));
              break;
            case 1:
              file.cut_after = dice.below(20'000);
              file.num_cuts = count;
              break;
            case 2:
              file.delay = std::chrono::milliseconds(dice.below(3));
              break;
            case 3:
              file.is_chunked = true;
              break;
            default:
              file.drip_bytes = 5000;
              break;
          }
        }
        server_.serve("/" + std::to_string(shard) + ".tar", std::move(file));
      }
      gets();
      const auto numbers = random_samples(dice, 1 + dice.below(150));
      if (dice.flip()) {
        expect_texts(data, numbers);
      } else {
        std::vector<std::int64_t> offsets;
        std::vector<std::byte> bytes;
        data.gather(numbers, "txt", offsets, bytes);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          const std::string_view got(reinterpret_cast<const char*>(bytes.data()) + offsets[i],
                                     static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
          ASSERT_EQ(got, text(numbers[i]));
        }
      }
      EXPECT_LE(gets(), 2 * kShards + 8 * num_faults);
      if (testing::Test::HasFailure()) return;
    }
  });
}

/// A shard with large samples.
class LargeSamplesTest : public test::RemoteDatasetTest {
 protected:
  void build(std::span<const std::size_t> sizes) {
    test::TarBuilder tar;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      contents_.push_back(some_bytes(sizes[i], static_cast<std::uint32_t>(i + 1)));
      tar.file("s" + std::to_string(1000 + i) + ".bin", contents_.back());
    }
    server_.serve("/0.tar", {.body = tar.end().bytes()});
    build_index(index_path(), {server_.url("/0.tar")},
                {.content = {.hashes = true}, .remote = remote()});
    num_before_ = server_.requests().size();
  }
  void expect_samples(const Dataset& data, std::span<const std::uint64_t> numbers) const {
    std::size_t at = 0;
    for (const Sample& sample : data.samples(numbers)) {
      ASSERT_TRUE(same(sample["bin"], contents_[numbers[at++]]));
    }
    EXPECT_EQ(at, numbers.size());
  }
  /// Returns the number of requests and of bytes since the last call.
  std::pair<std::size_t, std::uint64_t> requested() {
    const auto all = server_.requests();
    std::uint64_t bytes = 0;
    for (const auto& request : std::span(all).subspan(num_before_)) {
      const std::string range = request.header("range");
      const std::size_t dash = range.find('-');
      bytes += std::stoull(range.substr(dash + 1)) - std::stoull(range.substr(6)) + 1;
    }
    return {all.size() - std::exchange(num_before_, all.size()), bytes};
  }

  std::vector<std::string> contents_;
  std::size_t num_before_ = 0;
};

TEST_F(LargeSamplesTest, LongRangesAreSharedByConnections) {
  build(std::vector<std::size_t>{20 << 20, 1 << 20, 100, 9 << 20});
  const Dataset data = open_ranged();
  const std::vector<std::uint64_t> all = {0, 1, 2, 3};
  expect_samples(data, all);
  const auto [requests, bytes] = requested();
  EXPECT_GE(requests, 4U);
  EXPECT_LE(requests, 6U);
  EXPECT_LT(bytes, (30U << 20) + 10'000);
}

TEST_F(LargeSamplesTest, ATransferThatIsCutRepeatsLittle) {
  build(std::vector<std::size_t>(60, 100'000));
  const Dataset data = open_ranged();
  std::vector<std::uint64_t> all(60);
  std::iota(all.begin(), all.end(), 0U);
  server_.serve("/0.tar", {.body =
                               [&] {
                                 test::TarBuilder tar;
                                 for (std::size_t i = 0; i < contents_.size(); ++i) {
                                   tar.file("s" + std::to_string(1000 + i) + ".bin", contents_[i]);
                                 }
                                 return tar.end().bytes();
                               }(),
                           .cut_after = 1'000'000,
                           .num_cuts = 3});
  expect_samples(data, all);
  // Each transfer that is cut delivers 9 samples. Then one request gets the next sample, and
  // another one the rest.
  const auto [requests, bytes] = requested();
  EXPECT_LE(requests, 8U);
  EXPECT_LT(bytes, 22'000'000U) << "requested, although a part of it was cut off";
}

TEST_F(LargeSamplesTest, DistantSamplesAreNotMerged) {
  build(std::vector<std::size_t>{1000, 3 << 20, 1000, 3 << 20, 1000});
  const Dataset data = open_ranged();
  expect_samples(data, std::vector<std::uint64_t>{4, 0, 2});
  const auto [requests, bytes] = requested();
  EXPECT_EQ(requests, 3U);
  EXPECT_EQ(bytes, 3000U);
}

}  // namespace
}  // namespace shardwise
