#include "order/wids_sampler.h"

#include <nlohmann/json.hpp>

#include "order/order_test_support.h"

namespace shardwise {
namespace {

using test::at_epoch;
using test::delivered;
using test::Samples;

Order chunks_of(std::uint64_t chunk_size, std::uint64_t seed = 0, bool shufflefirst = false) {
  return {.seed = seed, .kind = Wids{.chunk_size = chunk_size, .shufflefirst = shufflefirst}};
}

// docs/formats/wids-order.md, version 1.
TEST(WidsSamplerTest, EqualsEveryGivenVectorOfPythonWids) {
  const auto corpus = test::corpus_dir();
  if (!corpus)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  const auto golden =
      nlohmann::json::parse(test::read_file(*corpus / "order" / "wids_order_golden.json"));
  ASSERT_GE(golden["cases"].size(), 50U);
  for (const nlohmann::json& c : golden["cases"]) {
    Order order{.seed = c["seed"], .kind = Wids{.shufflefirst = c["shufflefirst"]}};
    const auto epoch = c["epoch"].get<std::uint64_t>();
    const auto samples = c["order"].get<Samples>();
    if (c.contains("sampler")) {
      const SampleSet shards = SampleSet::of_shards(c["lengths"].get<Samples>());
      EXPECT_EQ(delivered(at_epoch(WidsSampler::shard_list(shards, order), epoch)), samples) << c;
      continue;
    }
    std::get<Wids>(order.kind).chunk_size = c["chunksize"];
    const WidsSampler sampler = at_epoch(WidsSampler(c["n"].get<std::uint64_t>(), order,
                                                     {.rank = c["rank"], .world_size = c["world"]}),
                                         epoch);
    EXPECT_EQ(delivered(sampler), samples) << c;
    EXPECT_EQ(sampler.size(), samples.size()) << c;
  }
}

// A few vectors for machines without the file. The last two are from CPython itself.
TEST(WidsSamplerTest, EqualsAFewVectors) {
  EXPECT_EQ(delivered(at_epoch(WidsSampler(10, chunks_of(4)), 5)),
            (Samples{8, 9, 0, 2, 1, 3, 6, 4, 5, 7}));
  EXPECT_EQ(delivered(WidsSampler(10, chunks_of(4))), (Samples{2, 0, 1, 3, 4, 5, 7, 6, 8, 9}));
  EXPECT_EQ(
      delivered(at_epoch(WidsSampler(23, chunks_of(5, 42, true), {.rank = 2, .world_size = 3}), 5)),
      (Samples{21, 22, 17, 19, 18, 16, 20}));
  EXPECT_EQ(
      delivered(at_epoch(WidsSampler::shard_list(SampleSet::of_shards(Samples{3, 4, 2}),
                                                 {.seed = 3, .kind = Wids{.shufflefirst = true}}),
                         2)),
      (Samples{1, 2, 0, 5, 6, 4, 3, 8, 7}));
  EXPECT_EQ(delivered(at_epoch(WidsSampler(10, chunks_of(4, ~std::uint64_t{0}, true)), 1'000'000)),
            (Samples{3, 1, 0, 2, 8, 9, 7, 4, 6, 5}));
  const WidsSampler large = at_epoch(WidsSampler(70000, chunks_of(70000, 7)), 1);
  EXPECT_EQ((Samples{large[0], large[1], large[2], large[69999]}),
            (Samples{57557, 38236, 42783, 40720}));
}

TEST(WidsSamplerTest, HasTheDefaultsOfWids) {
  EXPECT_EQ(std::get<Wids>(WidsSampler(10).order().kind).chunk_size, 2000U);
  const WidsSampler two(10, {.kind = Wids{}}, {.world_size = 2});
  EXPECT_EQ(std::get<Wids>(two.order().kind).chunk_size, 1'000'000U);
  const WidsSampler replicas(10, {.kind = Wids{}}, {.world_size = 2, .replicas = 2});
  EXPECT_EQ(std::get<Wids>(replicas.order().kind).chunk_size, 2000U) << "one rank, twice";
  EXPECT_EQ(replicas.spec(), WidsSampler(10).spec());
  EXPECT_EQ(delivered(*replicas.for_rank(1)), delivered(WidsSampler(10)));
}

TEST(WidsSamplerTest, RefusesWhatWidsDoesNotHave) {
  EXPECT_THAT(
      test::error_text([] { WidsSampler(10, {.kind = Wids{}, .streams = 2}, {.world_size = 2}); }),
      testing::AllOf(testing::HasSubstr("streams does not apply"), testing::HasSubstr("wids")));
  EXPECT_THAT(test::error_text(
                  [] { WidsSampler::shard_list(SampleSet::of_shards(Samples{5}), chunks_of(3)); }),
              testing::HasSubstr("ShardListSampler"));
  EXPECT_THAT(test::error_text([] { WidsSampler(10, {.kind = Chunked{}}); }),
              testing::HasSubstr("Wids"));
  EXPECT_THAT(test::error_text([] { WidsSampler(10, {}, {.rank = 3}); }),
              testing::HasSubstr("[0, 1)"));
}

// A run may change its order between epochs, but samples that it leaves out must remain left out.
TEST(WidsSamplerTest, RefusesATokenThatLeavesSomethingOut) {
  Order order;
  order.skip.add_sample(3);
  const auto chunked = make_sampler(10, order);
  WidsSampler sampler(10);
  sampler.seek(4);
  EXPECT_THAT(
      test::error_text(
          [&] { sampler.resume(chunked->token(), Sampler::Changes::kAllowAtEpochBorder); }),
      testing::AllOf(testing::HasSubstr("skip does not apply"), testing::HasSubstr("wids")));
  EXPECT_EQ(sampler.position(), 4U);
  EXPECT_TRUE(sampler.skip().empty());
}

}  // namespace
}  // namespace shardwise
