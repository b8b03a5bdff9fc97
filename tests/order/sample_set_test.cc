#include <string>
#include <type_traits>

#include "order/order_test_support.h"
#include "order/permutation.h"
namespace shardwise {
namespace {

using test::delivered;
using test::Samples;
using testing::ElementsAre;
using testing::HasSubstr;

// A type that has a size but is not a data set must not convert to a SampleSet.
static_assert(!std::is_convertible_v<std::string, SampleSet>);
static_assert(!std::is_convertible_v<const char*, SampleSet>);
static_assert(!std::is_convertible_v<std::vector<int>, SampleSet>);
static_assert(!std::is_convertible_v<std::vector<std::uint64_t>, SampleSet>);
static_assert(!std::is_convertible_v<ShardOffsets, SampleSet>);
static_assert(!std::is_convertible_v<double, SampleSet>);
static_assert(std::is_convertible_v<int, SampleSet>);
static_assert(std::is_convertible_v<std::size_t, SampleSet>);

/// A class with all functions of a data set that an order needs.
struct SomeData {
  std::uint64_t size() const { return 6; }
  Hash128 fingerprint() const { return {7, 8}; }
  std::vector<std::uint64_t> shard_starts() const {
    ++*times_asked;
    return {0, 4, 6};
  }
  SampleBytes sample_bytes() const {
    ++*times_asked;
    return [](std::uint64_t sample) { return 10 * sample; };
  }
  std::vector<double> numbers(const std::string& column) const {
    ++*times_asked;
    if (column != "weight") throw InvalidArgument("no such column");
    return {0, 0, 0, 1, 0, 0};
  }

  std::shared_ptr<int> times_asked = std::make_shared<int>(0);
};
static_assert(std::is_convertible_v<SomeData, SampleSet>);

TEST(SampleSetTest, IsANumber) {
  const SampleSet samples(12);
  EXPECT_EQ(samples.size(), 12U);
  EXPECT_EQ(samples.fingerprint(), Hash128{});
  EXPECT_THAT(test::error_text([&] { static_cast<void>(samples.shard_starts()); }),
              testing::AllOf(HasSubstr("needs the shards"), HasSubstr("data set"),
                             HasSubstr("lengths of its shards")));
  EXPECT_THAT(test::error_text([&] { static_cast<void>(samples.sample_bytes()); }),
              HasSubstr("sizes of the samples"));
  EXPECT_THAT(test::error_text([&] { static_cast<void>(samples.column("w")); }),
              testing::AllOf(HasSubstr("no columns"), HasSubstr("column 'w'")));
  EXPECT_THAT(test::error_text([] { SampleSet(std::int8_t{-3}); }),
              testing::AllOf(HasSubstr("samples is -3"), HasSubstr("0 or more")));
  EXPECT_EQ(SampleSet(~std::uint64_t{0}).size(), ~std::uint64_t{0});
}

TEST(SampleSetTest, IsADataSetWhichIsAskedOnlyForWhatAnOrderNeeds) {
  const SomeData data;
  const SampleSet samples = data;
  EXPECT_EQ(samples.size(), 6U);
  EXPECT_EQ(samples.fingerprint(), (Hash128{7, 8}));
  EXPECT_EQ(delivered(ChunkedSampler(data, {.seed = 1})).size(), 6U);
  EXPECT_EQ(ChunkedSampler(data).fingerprint(), (Hash128{7, 8}));
  EXPECT_EQ(*data.times_asked, 0);
  EXPECT_THAT(*samples.shard_starts(), ElementsAre(0, 4, 6));
  EXPECT_EQ(samples.sample_bytes()(5), 50U);
  EXPECT_THAT(samples.column("weight"), ElementsAre(0, 0, 0, 1, 0, 0));
  EXPECT_EQ(test::error_text([&] { static_cast<void>(samples.column("x")); }), "no such column");
  EXPECT_EQ(*data.times_asked, 4);

  EXPECT_EQ(delivered(*make_sampler(data, {.seed = 2, .kind = Sharded{.window = 1}})),
            delivered(*make_sampler(SampleSet::of_shards(Samples{4, 2}),
                                    {.seed = 2, .kind = Sharded{.window = 1}})));
  EXPECT_EQ(delivered(*make_sampler(data, {.kind = Resampled{.weights = "weight"}})),
            Samples(6, 3));
  EXPECT_TRUE(test::is_each_once(
      test::of_all_ranks(*make_sampler(data, {.balance_bytes = true}, {.world_size = 2})), 6));
}

TEST(SampleSetTest, TakesShardsSizesColumnsAndAFingerprint) {
  const SampleSet plain(6);
  const SampleSet samples = plain.with_shards(test::offsets_of({1, 0, 5}))
                                .with_bytes([](std::uint64_t sample) { return sample + 1; })
                                .with_fingerprint({3, 4})
                                .with_column([](const std::string& name) {
                                  return std::vector<double>(name == "short" ? 5 : 6, 0.5);
                                });
  EXPECT_THAT(*samples.shard_starts(), ElementsAre(0, 1, 1, 6));
  EXPECT_EQ(samples.sample_bytes()(2), 3U);
  EXPECT_EQ(samples.fingerprint(), (Hash128{3, 4}));
  EXPECT_EQ(samples.column("any").size(), 6U);
  EXPECT_THAT(
      test::error_text([&] { static_cast<void>(samples.column("short")); }),
      testing::AllOf(HasSubstr("5 numbers"), HasSubstr("6 samples"), HasSubstr("column 'short'")));
  EXPECT_EQ(plain.fingerprint(), Hash128{}) << "it is a copy that has them";
  EXPECT_EQ(test::error_code([&] { static_cast<void>(plain.shard_starts()); }),
            ErrorCode::kInvalidArgument);
  // The properties of a data set can also be replaced.
  const SampleSet changed =
      SampleSet(SomeData()).with_fingerprint({}).with_shards(test::offsets_of({6}));
  EXPECT_EQ(changed.fingerprint(), Hash128{});
  EXPECT_THAT(*changed.shard_starts(), ElementsAre(0, 6));
  EXPECT_EQ(changed.sample_bytes()(5), 50U);
  EXPECT_EQ(test::error_code([&] { static_cast<void>(plain.with_bytes(nullptr).sample_bytes()); }),
            ErrorCode::kInvalidArgument);
}

TEST(SampleSetTest, RefusesShardsOfOtherSamples) {
  EXPECT_THAT(test::error_text([] {
                SampleSet(10).with_shards(test::offsets_of({4, 5}));
              }),
              HasSubstr("the shards hold 9 samples, not 10"));
  for (const Samples& starts : {Samples{}, Samples{1, 10}, Samples{0, 7, 5, 10}}) {
    EXPECT_THAT(test::error_text(
                    [&] { SampleSet(10).with_shards(std::make_shared<const Samples>(starts)); }),
                testing::AllOf(HasSubstr("shard offsets"), HasSubstr("not valid")));
  }
  EXPECT_THAT(test::error_text([] { SampleSet(10).with_shards(nullptr); }),
              testing::AllOf(HasSubstr("shard offsets"), HasSubstr("not valid")));
  EXPECT_EQ(SampleSet::of_shards(Samples{}).size(), 0U);
  EXPECT_EQ(SampleSet::of_shards(Samples{3, 0, 4}).size(), 7U);
  EXPECT_EQ(test::error_code([] {
              SampleSet::of_shards(Samples{kMaxSamples, 1});
            }),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shardwise
