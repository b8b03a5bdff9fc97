#include "shardwise/order/resume.h"

#include "order/order_test_support.h"

namespace shardwise {
namespace {

using test::Samples;

constexpr Hash128 kData{0x1111, 0x2222};

ResumeToken full_token() {
  ResumeToken token;
  token.fingerprint = kData;
  token.order = ChunkedSampler(1'281'167, {.seed = 17, .streams = 4}).spec();
  token.epoch = 3;
  token.slots = 640'000;
  token.skip.add_sample(7);
  token.skip.add_sample(1'000'000);
  token.skip.add_slots(3, 100, 612);
  token.audit = AuditSum::of_range(0, 10, kData);
  return token;
}

TEST(ResumeTokenTest, IsOneLineOfAboutAHundredBytes) {
  ChunkedSampler sampler(1'281'167,
                         {.world_size = 8, .seed = 0x123456789abcdef0, .chunk_size = 1000});
  sampler.set_epoch(12);
  sampler.seek(50'000);
  const std::string text = sampler.token(kData).to_text();
  EXPECT_LE(text.size(), 110U);
  EXPECT_THAT(text, testing::MatchesRegex("sw1\\.[A-Za-z0-9_-]*"));
  EXPECT_LE(full_token().to_text().size(), 170U);
}

TEST(ResumeTokenTest, ComesBackAsItWas) {
  EXPECT_EQ(ResumeToken::from_text(full_token().to_text()), full_token());
  EXPECT_EQ(ResumeToken::from_text(ResumeToken().to_text()), ResumeToken());
  ResumeToken extreme;
  extreme.order.seed = extreme.epoch = extreme.slots = ~std::uint64_t{0};
  extreme.order.tail = Tail::kPad;
  extreme.order.resample = ResampleUnit::kShard;
  extreme.order.shuffle = false;
  extreme.order.sampler = SamplerKind::kMixture;
  EXPECT_EQ(ResumeToken::from_text(extreme.to_text()), extreme);
}

TEST(ResumeTokenTest, GoldenTokenNeverChanges) {
  EXPECT_EQ(
      full_token().to_text(),
      "sw1.AQBEIiIAAAAAAAAREQAAAAAAAAGPmU4R6AcBBAAAAAOAiCcCB7mEPQEDZIAECh1bpcwvMtxmyZMEqWC5pfot"
      "AAAAAAAAAAAAAAAAAAAARzuxIXPdO3A");
}

TEST(ResumeTokenTest, EveryDamageIsNoticed) {
  const std::string text = full_token().to_text();
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = damaged[i] == 'x' ? 'y' : 'x';
    ASSERT_THROW(ResumeToken::from_text(damaged), Error) << i;
    ASSERT_THROW(ResumeToken::from_text(text.substr(0, i)), Error) << i;
  }
  EXPECT_THAT(test::error_text([&] { ResumeToken::from_text(text + "AAAA"); }),
              testing::HasSubstr("its checksum is wrong"));
  EXPECT_THAT(test::error_text([] { ResumeToken::from_text("hello"); }),
              testing::HasSubstr("not a resume token"));
  EXPECT_EQ(test::error_code([] { ResumeToken::from_text("sw9.AAAA"); }),
            ErrorCode::kVersionMismatch);
}

TEST(ResumeTokenTest, RefusesAnotherDataSetOrOrderAndNamesWhatDiffers) {
  const OrderOptions options{.world_size = 2, .seed = 17, .chunk_size = 1000};
  const ChunkedSampler made_by(5000, options);
  const ResumeToken token = made_by.token(kData);
  const auto text = [&](std::uint64_t n, OrderOptions changed, Hash128 fingerprint = kData) {
    ChunkedSampler sampler(n, changed);
    EXPECT_EQ(test::error_code([&] { sampler.resume(token, fingerprint); }), ErrorCode::kMismatch);
    return test::error_text([&] { sampler.resume(token, fingerprint); });
  };
  OrderOptions changed = options;
  changed.chunk_size = 500;
  changed.seed = 18;
  EXPECT_THAT(text(5000, changed),
              testing::HasSubstr("seed 17 there, 18 here, chunk_size 1000 there, 500 here"));
  EXPECT_THAT(text(5000, options, {1, 1}), testing::HasSubstr("data set 0000"));
  EXPECT_THAT(text(5001, options), testing::HasSubstr("num_samples 5000 there, 5001 here"));
  changed = options;
  changed.streams = 2;
  changed.tail = Tail::kDrop;
  changed.window = 2;
  EXPECT_THAT(text(5000, changed),
              testing::HasSubstr(
                  "window 1 there, 2 here, streams 1 there, 2 here, tail exact there, drop here"));
  SequentialSampler sequential(5000);
  EXPECT_THAT(test::error_text([&] { sequential.resume(token, kData); }),
              testing::HasSubstr("sampler chunked there, sequential here"));
  ShardedSampler shards(test::offsets_of({2500, 2500}));
  ShardedSampler others(test::offsets_of({2000, 3000}));
  EXPECT_THAT(test::error_text([&] { others.resume(shards.token(kData), kData); }),
              testing::HasSubstr("shard lengths differ"));
  ResumeToken future = token;
  future.order.order_version = 2;
  ChunkedSampler same(5000, options);
  EXPECT_THAT(test::error_text([&] { same.resume(future, kData); }),
              testing::HasSubstr("order_version 2 there, 1 here"));
}

TEST(ResumeTokenTest, CarriesARunOverToOtherRanksWithItsProofAndSkipList) {
  const std::uint64_t n = 1009;
  SkipList skip;
  skip.add_sample(500);
  skip.add_slots(2, 64, 80);
  OrderOptions options{.world_size = 8, .seed = 9, .chunk_size = 50, .window = 3, .skip = skip};
  EpochAudit audit(kData);
  const ChunkedSampler before(n, options);
  std::string saved;
  for (std::uint64_t rank = 0; rank < 8; ++rank) {
    const std::unique_ptr<Sampler> mine = before.for_rank(rank);
    mine->set_epoch(2);
    Samples batch(40);
    batch.resize(mine->next_batch(batch));
    audit.add(batch);
    if (rank == 0) saved = mine->token(kData).to_text();
  }
  ResumeToken token = ResumeToken::from_text(saved);
  token.audit = audit.sum();
  token = ResumeToken::from_text(token.to_text());

  options.world_size = 3;
  options.skip = SkipList();
  const ChunkedSampler after(n, options);
  EpochAudit rest(kData);
  rest.merge(*token.audit);
  std::unique_ptr<Sampler> last;
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    last = after.for_rank(rank);
    last->resume(token, kData);
    EXPECT_EQ(last->epoch(), 2U);
    rest.add(test::drain(*last));
  }
  EXPECT_EQ(rest.verdict(last->expectation(kData)).text(2),
            "epoch 2: 992 samples, each exactly once, 17 left out as asked: proven");
}

}  // namespace
}  // namespace shardwise
