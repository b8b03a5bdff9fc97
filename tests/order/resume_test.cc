#include "shardwise/order/resume.h"

#include "order/algorithms.h"
#include "order/order_test_support.h"
#include "order/permutation.h"
#include "order/wids_sampler.h"
#include "support/says.h"

namespace shardwise {
namespace {

using test::Samples;
using test::SequentialSampler;
using testing::HasSubstr;

constexpr Hash128 kData{0x1111, 0x2222};

ResumeToken full_token() {
  ResumeToken token;
  token.fingerprint = kData;
  token.spec = ChunkedSampler(1'281'167, {.seed = 17, .streams = 4}).spec();
  token.epoch = 3;
  token.position = 640'000;
  token.skip.add_sample(7, "no image", {2, 500});
  token.skip.add_sample(1'000'000);
  token.skip.add_positions(3, 100, 612);
  token.audit = EpochAudit::Sum::of_range(0, 10, kData);
  ResumeToken::Stage stage;
  stage.end_epoch = 2;
  stage.fingerprint = {3, 4};
  stage.spec = SequentialSampler(9).spec();
  token.history = {stage};
  return token;
}

/// Returns a token of each kind of order.
std::vector<ResumeToken> tokens_of_all_kinds() {
  const SampleSet samples =
      SampleSet::of_shards(Samples{30, 0, 50, 20})
          .with_fingerprint(kData)
          .with_bytes([](std::uint64_t s) { return s; })
          .with_column([](const std::string&) { return std::vector<double>(100, 2); });
  std::vector<ResumeToken> tokens;
  for (const Order& order :
       {Order{.seed = 1, .kind = Chunked{300, 400, true}, .streams = 2, .tail = Order::Tail::kPad},
        Order{.seed = 2, .kind = Sharded{3}, .tail = Order::Tail::kDrop, .balance_bytes = true},
        Order{.kind = Sequential{}, .epoch_size = 1000},
        Order{.seed = 4, .kind = Resampled{Resampled::Unit::kShard}, .epoch_size = 12345},
        Order{.seed = 5, .kind = Resampled{.weights = "how often"}},
        Order{.seed = 6, .kind = Wids{.chunk_size = 9, .shufflefirst = true}},
        Order{.seed = ~std::uint64_t{0},
        .kind = Mixture{{{.num_samples = 30, .weight = 0.1, .kind = Sharded{2}},
                         {.num_samples = 50, .kind = Chunked{10, 20, true}},
                         {.num_samples = 20, .weight = 1e300, .kind = Sequential{}}}},
        .epoch_size = 777}}) {
    const auto sampler = make_sampler(samples, order);
    sampler->set_epoch(9);
    sampler->seek(5);
    tokens.push_back(sampler->token());
  }
  return tokens;
}

TEST(ResumeTokenTest, IsOneLineOfAboutAHundredBytes) {
  ChunkedSampler sampler(SampleSet(1'281'167).with_fingerprint(kData), {.seed = 0x123456789abcdef0},
                         {.world_size = 8});
  sampler.set_epoch(12);
  sampler.seek(50'000);
  const std::string text = sampler.token().to_text();
  EXPECT_LE(text.size(), 115U);
  EXPECT_THAT(text, testing::MatchesRegex("sw2\\.[A-Za-z0-9_-]*"));
}

TEST(ResumeTokenTest, ComesBackAsItWas) {
  EXPECT_EQ(ResumeToken::from_text(full_token().to_text()), full_token());
  EXPECT_EQ(ResumeToken::from_text(ResumeToken().to_text()), ResumeToken());
  for (const ResumeToken& token : tokens_of_all_kinds()) {
    EXPECT_EQ(ResumeToken::from_text(token.to_text()), token);
  }
  ResumeToken extreme;
  const std::uint64_t most = ~std::uint64_t{0};
  extreme.spec.order.seed = extreme.epoch = extreme.position = extreme.spec.layout = most;
  extreme.spec.order.streams = extreme.spec.order.epoch_size = most;
  extreme.spec.order.tail = Order::Tail::kPad;
  extreme.spec.order.kind = Chunked{most, most, true};
  extreme.skip.add_sample(most, std::string(SkipList::kMaxReason, '\xff'), {most, most});
  extreme.skip.add_positions(most, 0, most);
  extreme.audit = EpochAudit::Sum{most, {most, most}, {most, most}};
  extreme.history.resize(3);
  extreme.history[1].end_epoch = most;
  EXPECT_EQ(ResumeToken::from_text(extreme.to_text()), extreme);
}

// docs/formats/resume-token.md, version 2.
TEST(ResumeTokenTest, GoldenTokensNeverChange) {
  EXPECT_EQ(full_token().to_text(),
            "sw2."
            "AiIiAAAAAAAAEREAAAAAAAABAQAAAAABj5lOAAARBAAAAADoB0AAA4CIJwIHAvQDCG5vIGltYWdluYQ9AAAAAQ"
            "NkgAQBCh1bpcwvMtxmyZMEqWC5pfotAAAAAAAAAAAAAAAAAAAAAQIEAAAAAAAAAAMAAAAAAAAAAAAAAAAAAQkA"
            "AAABAAAAAgAe3T38oMrp");
  const std::vector<ResumeToken> tokens = tokens_of_all_kinds();
  EXPECT_EQ(tokens[0].to_text(),
            "sw2.AiIiAAAAAAAAEREAAAAAAAABAQAAAAABZAAAAQICAAAArAKQAwEJBQAAAACBOVN6vn3CGw");
  EXPECT_EQ(tokens[3].to_text(),
            "sw2.AiIiAAAAAAAAEREAAAAAAAABAAAAAQABZJfEjtyg1OuqEgAEAQAAuWADAQAJBQAAAACBe64diHkQJQ");
  EXPECT_EQ(tokens[6].to_text(),
            "sw2.AiIiAAAAAAAAEREAAAAAAAABAQACAAABZJCwjcCA15vJLAD___________"
            "8BAQAAiQYFAx6amZmZmZm5PwECMgAAAAAAAPA_AAoUARScdQCIPOQ3fgIJBQAAAABCZqC87EERDw");
}

TEST(ResumeTokenTest, EveryDamageIsNoticed) {
  const std::string text = full_token().to_text();
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = damaged[i] == 'x' ? 'y' : 'x';
    ASSERT_THROW(ResumeToken::from_text(damaged), Error) << i;
    ASSERT_THROW(ResumeToken::from_text(text.substr(0, i)), Error) << i;
  }
  EXPECT_ERROR(test::Says("checksum is wrong"), ResumeToken::from_text(text + "AAAA"));
  EXPECT_ERROR(test::Says("last character is wrong"), ResumeToken::from_text(text + "A"));
  for (const char* other : {"", "hello", "swallow", "sw2", "sw", "sw.AAAA", "swx.AAAA", "sw2.",
                            "sw2.AA", "a swallow sw2."}) {
    EXPECT_ERROR(test::Says("not a resume token"), ResumeToken::from_text(other)) << other;
    EXPECT_CODE(kInvalidArgument, ResumeToken::from_text(other));
  }
}

TEST(ResumeTokenTest, OfAnotherFormatSaysWhichAndWhatToDo) {
  const std::string of_version_1 =
      "sw1.AQBEIiIAAAAAAAAREQAAAAAAAAGPmU4R6AcBBAAAAAOAiCcCB7mEPQEDZIAECh1bpcwvMtxmyZMEqWC5pfot"
      "AAAAAAAAAAAAAAAAAAAARzuxIXPdO3A";
  for (const std::string& text : {of_version_1, std::string("sw9.AAAA"), std::string("sw12.A")}) {
    EXPECT_CODE(kVersionMismatch, ResumeToken::from_text(text));
    EXPECT_ERROR(
        test::Says("cannot read", "begins with '" + text.substr(0, text.find('.') + 1) + "'",
                   "\"sw2.\", \"sw3.\" or \"sw4.\""),
        ResumeToken::from_text(text));
  }
}

TEST(ResumeTokenTest, RefusesAnotherDataSetOrOrderAndNamesWhatDiffers) {
  const Order order{.seed = 17, .kind = Chunked{1000, 1}};
  const SampleSet samples = SampleSet(5000).with_fingerprint(kData);
  const ResumeToken token = make_sampler(samples, order, {.world_size = 2})->token_after(7);
  const auto text = [&](const SampleSet& other, const Order& changed) {
    const auto sampler = make_sampler(other, changed, {.world_size = 2});
    sampler->seek(3);
    EXPECT_CODE(kMismatch, sampler->resume(token));
    EXPECT_CODE(kMismatch, sampler->resume(token, Sampler::Changes::kAllowAtEpochBorder))
        << "it is no border";
    EXPECT_EQ(sampler->position(), 3U);
    return test::error_text([&] { sampler->resume(token); });
  };
  Order changed = order;
  changed.kind = Chunked{500, 1};
  changed.seed = 18;
  EXPECT_THAT(
      text(samples, changed),
      HasSubstr(
          "seed 17 in the token, 18 in this run, chunk_size 1000 in the token, 500 in this run"));
  EXPECT_THAT(text(samples.with_fingerprint({1, 1}), order),
              HasSubstr("data set 00000000000011110000000000002222 in the token, "
                        "00000000000000010000000000000001 in this run"));
  EXPECT_THAT(text(samples.with_fingerprint({1, 1}), changed),
              HasSubstr("0001 in this run, seed 17 in the token"));
  EXPECT_THAT(text(SampleSet(5001).with_fingerprint(kData), order),
              HasSubstr("num_samples 5000 in the token, 5001 in this run"));
  changed = order;
  changed.kind = Chunked{1000, 2, true};
  changed.streams = 2;
  changed.tail = Order::Tail::kDrop;
  EXPECT_THAT(text(samples, changed), test::Says("streams 1 in the token, 2 in this run",
                                                 "tail exact in the token, drop in this run",
                                                 "window 1 in the token, 2 in this run",
                                                 "phase false in the token, true in this run"));
  changed = order;
  changed.epoch_size = 99;
  changed.balance_bytes = true;
  EXPECT_THAT(text(samples.with_bytes([](std::uint64_t) { return 1; }), changed),
              test::Says("balance_bytes false in the token, true in this run",
                         "epoch_size 0 in the token, 99 in this run"));
  EXPECT_THAT(text(samples, {.kind = Sequential{}}),
              HasSubstr("sampler chunked in the token, sequential in this run"));
  EXPECT_NO_THROW(make_sampler(samples, order, {.world_size = 7, .batch_size = 3})->resume(token));
}

TEST(ResumeTokenTest, DifferencesAreInWords) {
  const auto spec = [](const SampleSet& samples, const OrderKind& kind,
                       const RankOptions& ranks = {}) {
    return make_sampler(samples, {.kind = kind}, ranks)->spec();
  };
  const SampleSet shards = SampleSet::of_shards(Samples{2500, 2500});
  const SampleSet others = SampleSet::of_shards(Samples{2000, 3000});
  EXPECT_EQ(difference(spec(5, Chunked{}), spec(5, Chunked{})), "");
  EXPECT_EQ(difference(spec(shards, Sharded{}), spec(others, Sharded{})), "shard lengths differ");
  EXPECT_EQ(difference(spec(shards, Sharded{1}), spec(others, Sharded{2})),
            "window 1 in the token, 2 in this run, shard lengths differ");
  EXPECT_EQ(difference(spec(shards, Sharded{}), spec(6, Chunked{})),
            "sampler sharded in the token, chunked in this run, num_samples 5000 in the token, 6 "
            "in this run");
  EXPECT_EQ(difference(spec(5, Wids{}, {.world_size = 2}), spec(5, Wids{.shuffle = false})),
            "chunk_size 1000000 in the token, 2000 in this run, shuffle true in the token, false "
            "in this run, world_size 2 "
            "in the token, 1 in this run");
  EXPECT_EQ(difference(spec(shards, Resampled{}), spec(shards, Resampled{Resampled::Unit::kShard})),
            "resample sample in the token, shard in this run, shard lengths differ");
  ResumeToken::OrderSpec old = spec(5, Chunked{});
  old.versions[0] = 9;
  EXPECT_EQ(difference(old, spec(5, Chunked{})), "") << "versions are not compared";
}

TEST(ResumeTokenTest, AnotherVersionOfAnAlgorithmIsNamed) {
  const std::array<std::string, kNumAlgorithms> names = {
      "permutation", "epoch order", "balance", "mixture", "resampled", "wids", "skip"};
  const std::array<unsigned, kNumAlgorithms> versions = {1, 1, 2, 2, 1, 1, 1};
  for (std::size_t i = 0; i < kNumAlgorithms; ++i) {
    EXPECT_EQ(algorithm_name(static_cast<Algorithm>(i)), names[i]);
    EXPECT_EQ(algorithm_version(static_cast<Algorithm>(i)), versions[i]);
  }
  for (const ResumeToken& token : tokens_of_all_kinds()) {
    EXPECT_NO_THROW(token.require(token.spec, kData));
    for (std::size_t i = 0; i < kNumAlgorithms; ++i) {
      ResumeToken other = token;
      other.spec.versions[i] += 3;
      EXPECT_CODE(kVersionMismatch, other.require(token.spec, kData));
      EXPECT_ERROR(
          test::Says(
              "cannot resume",
              "version " + std::to_string(token.spec.versions[i] + 3) + " of the " + names[i],
              "in the token, " + std::to_string(token.spec.versions[i]) + " in this run",
              "finish the epoch"),
          other.require(token.spec, kData));
      other.spec.order.seed += 1;
      EXPECT_CODE(kMismatch, other.require(token.spec, kData))
          << "an order that differs is said first";
    }
  }
  // At the beginning of an epoch, a run may change to the new version of an algorithm.
  ResumeToken old = ChunkedSampler(50).token_after(50);
  old.spec.versions[0] = 9;
  ChunkedSampler sampler(50);
  EXPECT_CODE(kVersionMismatch, sampler.resume(old));
  EXPECT_EQ(sampler.epoch(), 0U);
  sampler.resume(old, Sampler::Changes::kAllowAtEpochBorder);
  EXPECT_EQ(sampler.epoch(), 1U);
  EXPECT_EQ(sampler.token().history.at(0).spec, old.spec);
}

TEST(ResumeTokenTest, ARunMayGoOnWithOtherDataAtTheBorderOfAnEpoch) {
  Order order{.seed = 1, .kind = Chunked{10, 2}};
  order.skip.add_sample(5, "of the old numbers");
  const auto first = make_sampler(SampleSet(100).with_fingerprint(kData), order);
  first->set_epoch(2);
  const ResumeToken in_the_middle = first->token_after(30);
  const ResumeToken at_the_end = first->token_after(99);
  ASSERT_EQ(at_the_end.epoch, 3U);
  EXPECT_TRUE(at_the_end.history.empty());

  Order other{.seed = 2, .kind = Sequential{}};
  other.skip.add_sample(70);
  const auto second = make_sampler(SampleSet(80).with_fingerprint({9, 9}), other);
  EXPECT_CODE(kMismatch, second->resume(at_the_end));
  EXPECT_CODE(kMismatch, second->resume(in_the_middle, Sampler::Changes::kAllowAtEpochBorder));
  EXPECT_EQ(second->epoch(), 0U);
  second->resume(at_the_end, Sampler::Changes::kAllowAtEpochBorder);
  EXPECT_EQ(second->epoch(), 3U);
  EXPECT_EQ(second->size(), 79U) << "of the old skip list nothing is left";
  EXPECT_FALSE(second->skip().samples().contains(5));
  ResumeToken token = ResumeToken::from_text(second->token_after(40).to_text());
  ASSERT_EQ(token.history.size(), 1U);
  EXPECT_EQ(token.history[0].end_epoch, 3U);
  EXPECT_EQ(token.history[0].fingerprint, kData);
  EXPECT_EQ(token.history[0].spec, first->spec());
  EXPECT_EQ(token.position, 40U);

  // The second sampler resumes from its own tokens, and keeps the history.
  second->resume(token);
  EXPECT_EQ(second->token(), token);
  second->set_epoch(4);
  token = second->token();
  ASSERT_EQ(token.history.size(), 1U);

  // If the data is the same, the skip list is kept.
  const auto third = make_sampler(SampleSet(80).with_fingerprint({9, 9}), {.seed = 3});
  third->resume(token, Sampler::Changes::kAllowAtEpochBorder);
  EXPECT_EQ(third->size(), 79U);
  EXPECT_TRUE(third->skip().samples().contains(70));
  ASSERT_EQ(third->token().history.size(), 2U);
  EXPECT_EQ(third->token().history[1].end_epoch, 4U);
  EXPECT_EQ(third->token().history[1].spec, second->spec());
  EXPECT_EQ(third->clone()->token(), third->token());
  EXPECT_EQ(third->for_rank(0)->token().history.size(), 2U);

  // If data and order are equal, the option has no effect, and the history is unchanged.
  third->resume(third->token_after(11), Sampler::Changes::kAllowAtEpochBorder);
  EXPECT_EQ(third->token().history.size(), 2U);
}

TEST(ResumeTokenTest, SetEpochOfItsEpochKeepsThePlaceUntilTheEndWasReached) {
  const SampleSet samples = SampleSet::of_shards(std::vector<std::uint64_t>{30, 50, 20});
  for (const Order& order :
       {Order{.seed = 1, .kind = Chunked{10, 2}}, Order{.seed = 1, .kind = Sharded{2}},
        Order{.kind = Sequential{}}, Order{.seed = 1, .kind = Resampled{}},
        Order{.seed = 1, .kind = Wids{10}}, Order{.seed = 1, .kind = Chunked{}, .epoch_size = 70},
        Order{.seed = 1, .kind = Mixture{{{.num_samples = 60}, {.num_samples = 40}}}}}) {
    const auto sampler = make_sampler(samples, order);
    sampler->set_epoch(3);
    const Samples whole = test::drain(*sampler);
    const ResumeToken token = sampler->token_after(40);
    const auto resumed = make_sampler(samples, order);
    resumed->resume(token);
    const Samples rest(whole.begin() + 40, whole.end());
    resumed->set_epoch(3);
    EXPECT_EQ(resumed->next(), rest[0]);  // this must not change rest
    resumed->set_epoch(3);
    EXPECT_EQ(test::drain(*resumed), rest);
    resumed->set_epoch(3);
    EXPECT_EQ(test::drain(*resumed), whole) << "its end was reached";
    resumed->resume(token);
    resumed->reset();
    EXPECT_EQ(test::drain(*resumed), whole);
    resumed->resume(token);
    resumed->set_epoch(4);
    resumed->set_epoch(3);
    EXPECT_EQ(test::drain(*resumed), whole);
  }
}

TEST(ResumeTokenTest, AChangeThatWouldLoseTheRestOfAPassIsRefused) {
  const auto mixture = [](double first, double second, std::uint64_t seed = 7) {
    return Order{.seed = seed,
                 .kind = Mixture{{{.num_samples = 787, .weight = first, .kind = Sequential{}},
                                  {.num_samples = 213, .weight = second, .kind = Sequential{}}}}};
  };
  const Order passes{.seed = 7, .epoch_size = 300};
  const Order whole{.seed = 7};
  const auto refusal = [](const Order& there, std::uint64_t epoch, const Order& here) {
    const auto before = make_sampler(SampleSet(1000).with_fingerprint(kData), there);
    before->set_epoch(epoch);
    const auto after = make_sampler(SampleSet(1000).with_fingerprint(kData), here);
    std::string text;
    try {
      after->resume(before->token_after(0), Sampler::Changes::kAllowAtEpochBorder);
    } catch (const Mismatch& error) {
      text = error.what();
      EXPECT_EQ(after->epoch(), 0U) << "the sampler stays as it is";
    }
    return text;
  };
  EXPECT_THAT(refusal(mixture(0.9, 0.1), 1, mixture(0.1, 0.9, 8)),
              test::Says("middle of a pass", "epoch 1 begins", " of 787 samples of data set 0, ",
                         " of 213 samples of data set 1", "data sets or weights"));
  EXPECT_THAT(refusal(passes, 4, {.seed = 8, .epoch_size = 300}),
              test::Says("epoch 4 begins where 200 of 1000 samples ",
                         ": seed 7 in the token, 8 in this run"));
  EXPECT_THAT(refusal(mixture(0.9, 0.1), 4, mixture(0.9, 0.1, 8)),
              HasSubstr("data set 1 have been read"));
  EXPECT_THAT(refusal(passes, 3, mixture(0.9, 0.1)),
              HasSubstr("900 of 1000 samples have been read"));
  // These changes are allowed: no sample was delivered yet, a pass is at its end, the epochs of the
  // new order are whole passes, or only weights change.
  EXPECT_EQ(refusal(mixture(0.9, 0.1), 1, mixture(0.1, 0.9)), "");
  EXPECT_EQ(refusal(mixture(0.9, 0.1), 0, mixture(0.1, 0.9)), "");
  EXPECT_EQ(refusal(passes, 10, {.seed = 8, .epoch_size = 300}), "");
  EXPECT_EQ(refusal(mixture(0.9, 0.1), 4, whole), "");
  EXPECT_EQ(refusal(whole, 4, mixture(0.9, 0.1)), "");
  EXPECT_EQ(refusal(whole, 4, {.seed = 8, .kind = Sequential{}}), "");
}

}  // namespace
}  // namespace shardwise
