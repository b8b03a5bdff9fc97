#include "shardwise/order/wids_sampler.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "order/order_test_support.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;

TEST(WidsSamplerTest, EqualsEveryGivenVectorOfPythonWids) {
  const auto corpus = test::corpus_dir();
  if (!corpus) GTEST_SKIP() << "no corpus here";
  std::ifstream file(*corpus / "order" / "wids_order_golden.json");
  if (!file) GTEST_SKIP() << "no vectors in the corpus";
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden["cases"].size(), 50U);
  for (const nlohmann::json& c : golden["cases"]) {
    OrderOptions options;
    options.seed = c["seed"];
    options.epoch = c["epoch"];
    options.shufflefirst = c["shufflefirst"];
    const auto order = c["order"].get<Samples>();
    if (c.contains("sampler")) {
      const ShardOffsets offsets = test::offsets_of(c["lengths"].get<Samples>());
      EXPECT_EQ(delivered(WidsSampler::shard_list(offsets, options)), order) << c;
      continue;
    }
    options.world_size = c["world"];
    options.rank = c["rank"];
    options.chunk_size = c["chunksize"];
    const WidsSampler sampler(c["n"].get<std::uint64_t>(), options);
    EXPECT_EQ(delivered(sampler), order) << c;
    EXPECT_EQ(sampler.size(), order.size()) << c;
    EXPECT_EQ(sampler.wids_len(), c["len"]) << c;
  }
}

// A few vectors for those who do not have the file; the last two are CPython's own.
TEST(WidsSamplerTest, EqualsAFewVectors) {
  EXPECT_EQ(delivered(WidsSampler(10, {.epoch = 5, .chunk_size = 4})),
            (Samples{8, 9, 0, 2, 1, 3, 6, 4, 5, 7}));
  EXPECT_EQ(delivered(WidsSampler(10, {.chunk_size = 4})), (Samples{2, 0, 1, 3, 4, 5, 7, 6, 8, 9}));
  EXPECT_EQ(delivered(WidsSampler(23, {.rank = 2,
                                       .world_size = 3,
                                       .seed = 42,
                                       .epoch = 5,
                                       .chunk_size = 5,
                                       .shufflefirst = true})),
            (Samples{21, 22, 17, 19, 18, 16, 20}));
  EXPECT_EQ(delivered(WidsSampler::shard_list(test::offsets_of({3, 4, 2}),
                                              {.seed = 3, .epoch = 2, .shufflefirst = true})),
            (Samples{1, 2, 0, 5, 6, 4, 3, 8, 7}));
  EXPECT_EQ(
      delivered(WidsSampler(
          10,
          {.seed = ~std::uint64_t{0}, .epoch = 1'000'000, .chunk_size = 4, .shufflefirst = true})),
      (Samples{3, 1, 0, 2, 8, 9, 7, 4, 6, 5}));
  const WidsSampler large(70000, {.seed = 7, .epoch = 1, .chunk_size = 70000});
  EXPECT_EQ((Samples{large[0], large[1], large[2], large[69999]}),
            (Samples{57557, 38236, 42783, 40720}));
}

TEST(WidsSamplerTest, HasWidsUnevenRanksAndSaysSo) {
  std::vector<std::uint64_t> sizes;
  Samples all;
  const WidsSampler sampler(10, {.world_size = 8, .chunk_size = 4});
  for (std::uint64_t rank = 0; rank < 8; ++rank) {
    const Samples part = delivered(*sampler.for_rank(rank));
    sizes.push_back(part.size());
    all.insert(all.end(), part.begin(), part.end());
    EXPECT_EQ(sampler.for_rank(rank)->size(), part.size());
  }
  EXPECT_THAT(sizes, testing::ElementsAre(2, 2, 2, 2, 2, 0, 0, 0));
  EXPECT_EQ(sampler.wids_len(), 2U);
  EXPECT_EQ(sampler.steps(2), 1U);
  EXPECT_TRUE(test::is_each_once(all, 10));
  EpochAudit audit;
  audit.add(all);
  EXPECT_TRUE(audit.verdict(sampler.expectation({})).proven);
}

TEST(WidsSamplerTest, CanBeEnteredAnywhereAndAskedWhen) {
  WidsSampler sampler(
      100, {.rank = 1, .world_size = 3, .seed = 4, .chunk_size = 7, .shufflefirst = true});
  const Samples order = delivered(sampler);
  for (const std::size_t start : {33U, 5U, 20U, 0U}) {
    EXPECT_EQ(sampler[start], order[start]);
    sampler.seek(start);
    EXPECT_EQ(test::drain(sampler),
              Samples(order.begin() + static_cast<std::ptrdiff_t>(start), order.end()));
  }
  for (std::uint64_t index = 0; index < order.size(); ++index) {
    EXPECT_EQ(sampler.deliveries(order[index]), (std::vector<Delivery>{{1, index, index * 3 + 1}}));
  }
  EXPECT_EQ(delivered(WidsSampler(5, {.shuffle = false})), test::first_numbers(5));
  EXPECT_EQ(WidsSampler(0, {.world_size = 2}).size(), 0U);
}

TEST(WidsSamplerTest, ResumesOnTheSameNumberOfRanksOnly) {
  const OrderOptions options{.world_size = 4, .seed = 4, .chunk_size = 7};
  Samples all;
  std::string saved;
  const WidsSampler before(50, options);
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const auto mine = before.for_rank(rank);
    Samples batch(5);
    batch.resize(mine->next_batch(batch));
    all.insert(all.end(), batch.begin(), batch.end());
    if (rank == 0) saved = mine->token({}).to_text();
  }
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const auto mine = before.for_rank(rank);
    mine->resume(ResumeToken::from_text(saved), {});
    for (const std::uint64_t sample : *mine) all.push_back(sample);
  }
  EXPECT_TRUE(test::is_each_once(all, 50));
  WidsSampler other(50, {.world_size = 2, .seed = 4, .chunk_size = 7});
  EXPECT_THAT(test::error_text([&] { other.resume(ResumeToken::from_text(saved), {}); }),
              testing::HasSubstr("world_size 4 there, 2 here"));
}

TEST(WidsSamplerTest, RefusesWhatWidsDoesNotHave) {
  EXPECT_THAT(test::error_text([] { WidsSampler(10, {.window = 2}); }),
              testing::HasSubstr("window"));
  EXPECT_THAT(test::error_text([] { WidsSampler(10, {.tail = Tail::kPad}); }),
              testing::HasSubstr("tail"));
  EXPECT_THAT(test::error_text([] { WidsSampler(10, {.world_size = 2, .streams = 2}); }),
              testing::HasSubstr("streams"));
  EXPECT_THAT(
      test::error_text([] { WidsSampler::shard_list(test::offsets_of({5}), {.world_size = 2}); }),
      testing::HasSubstr("ShardListSampler"));
  SkipList skip;
  skip.add_sample(1);
  WidsSampler sampler(10);
  EXPECT_THAT(test::error_text([&] { sampler.set_skip(skip); }),
              testing::HasSubstr("cannot leave"));
}

}  // namespace
}  // namespace shardwise
