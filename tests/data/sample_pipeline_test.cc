#include "support/sample_pipeline.h"

#include <unistd.h>

#include <optional>
#include <vector>

#include "data/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::content_of;
using test::Shards;
using ::testing::HasSubstr;

/// Returns a function like a sampler's next(), which gives every `step`-th number from the last to
/// the first.
auto backwards(std::uint64_t size, std::uint64_t step) {
  return [at = size, step]() mutable -> std::optional<std::uint64_t> {
    if (at < step) return std::nullopt;
    return at -= step;
  };
}

TEST(SamplePipelineTest, DeliversInOrderForAnyNumberOfThreads) {
  const Shards shards(8, 25);
  const Dataset data = Dataset::open(shards.index_path(), {.max_open_shards = 2});
  for (unsigned threads = 0; threads <= 8; ++threads) {
    auto loader = test::sample_pipeline(data, backwards(data.size(), 3),
                                        [](const Sample& sample) { return sample.copy("bin"); },
                                        {.threads = threads});
    auto order = backwards(data.size(), 3);
    while (const auto i = order()) {
      const auto result = loader.next();
      ASSERT_TRUE(result.has_value());
      ASSERT_EQ(*result, content_of(*i)) << threads << " threads";
    }
    EXPECT_EQ(loader.next(), std::nullopt);
  }
}

TEST(SamplePipelineTest, SamplesThemselvesMayBeDelivered) {
  const Shards shards(4, 10);
  auto loader = test::sample_pipeline(Dataset::open(shards.index_path(), {.max_open_shards = 1}),
                                      backwards(40, 1), [](const Sample& sample) { return sample; },
                                      {.threads = 3});
  std::vector<Sample> samples;
  while (auto sample = loader.next()) samples.push_back(*std::move(sample));
  loader.stop();
  ASSERT_EQ(samples.size(), 40U);
  for (const Sample& sample : samples) EXPECT_EQ(sample["bin"], content_of(sample.index()));
}

TEST(SamplePipelineTest, ErrorsComeInTheSamplesPlaceWithShardKeyAndField) {
  const Shards shards(3, 10);
  ASSERT_EQ(::unlink(shards.path(1).c_str()), 0);
  const Dataset data = Dataset::open(shards.index_path());
  auto loader = test::sample_pipeline(
      data,
      [next = std::uint64_t{0}]() mutable {
        return next < 31 ? std::optional(next++) : std::nullopt;
      },
      [](const Sample& sample) {
        if (sample.index() == 25) static_cast<void>(sample["png"]);
        return sample.index();
      },
      {.threads = 4});
  for (std::uint64_t i = 0; i < 31; ++i) {
    try {
      const auto result = loader.next();
      EXPECT_TRUE(i < 10 || (i >= 20 && i < 30 && i != 25)) << i;
      EXPECT_EQ(result, i);
    } catch (const Error& e) {
      if (i >= 10 && i < 20) {
        EXPECT_EQ(e.code(), ErrorCode::kNotFound);
        EXPECT_THAT(e.what(), HasSubstr(shards.path(1)));
      } else if (i == 25) {
        EXPECT_THAT(e.what(), HasSubstr("no field 'png': sample 25 ('dir/000025') in shard '" +
                                        shards.path(2) + "'"));
      } else {
        EXPECT_EQ(i, 30U);
        EXPECT_EQ(e.code(), ErrorCode::kOutOfRange);
      }
    }
  }
  EXPECT_EQ(loader.next(), std::nullopt);
}

TEST(SamplePipelineTest, LeavingEarlyNeverHangs) {
  const Shards shards(4, 25);
  const Dataset data = Dataset::open(shards.index_path(), {.max_open_shards = 1});
  for (std::uint64_t taken = 0; taken < 100; taken += 3) {
    auto loader = test::sample_pipeline(
        data, backwards(100, 1), [](const Sample& sample) { return sample.copy("bin"); },
        {.threads = 1 + static_cast<unsigned>(taken % 5), .prefetch = taken % 7});
    for (std::uint64_t i = 0; i < taken; ++i) ASSERT_EQ(loader.next(), content_of(99 - i));
  }
}

TEST(SamplePipelineTest, ALoaderKeepsItsDataset) {
  const Shards shards(2, 10);
  auto data = std::make_optional(Dataset::open(shards.index_path()));
  auto loader = test::sample_pipeline(*data, backwards(20, 1),
                                      [](const Sample& sample) { return sample.copy("bin"); },
                                      {.threads = 2});
  data.reset();
  for (std::uint64_t i = 20; i-- > 0;) ASSERT_EQ(loader.next(), content_of(i));
}

}  // namespace
}  // namespace shardwise
