#include <set>
#include <tuple>

#include "base/hasher.h"
#include "order/order_test_support.h"
#include "order/wids_sampler.h"
#include "shardwise/order/explain.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;
using testing::HasSubstr;

std::uint64_t bytes_of(std::uint64_t sample) {
  // From 1 kB to about 1 MB, most of them small.
  const std::uint64_t x = hash64({reinterpret_cast<const char*>(&sample), sizeof sample}) % 1000;
  return 1000 + x * x;
}

SampleSet sized(std::uint64_t n) { return SampleSet(n).with_bytes(bytes_of); }

TEST(MakeSamplerTest, MakesEachKind) {
  const SampleSet shards = SampleSet::of_shards(Samples{30, 40, 30});
  EXPECT_EQ(delivered(*make_sampler(100, {.seed = 5, .kind = Chunked{.chunk_size = 7}})),
            delivered(ChunkedSampler(100, {.seed = 5, .chunk_size = 7})));
  Order order{.seed = 5, .kind = Wids{.chunk_size = 7}};
  EXPECT_EQ(delivered(*make_sampler(shards, order)), delivered(WidsSampler(100, order)));
  EXPECT_NE(dynamic_cast<const WidsSampler*>(make_sampler(shards, order).get()), nullptr);
  EXPECT_EQ(delivered(*make_sampler(100, {.kind = Sequential{}})), test::first_numbers(100));
}

TEST(MakeSamplerTest, SaysWhatIsMissingOrWrong) {
  const auto text = [](const SampleSet& samples, const Order& order,
                       const RankOptions& ranks = {}) {
    return test::error_text([&] { make_sampler(samples, order, ranks); });
  };
  EXPECT_THAT(text(10, {.kind = Sharded{}}), HasSubstr("the shards of the samples are not known"));
  EXPECT_THAT(text(10, {.balance_bytes = true}),
              HasSubstr("balance_bytes needs the sizes of the samples; give a data set, or a "
                        "function that tells the bytes"));
  EXPECT_THAT(text(sized(10), {.kind = Wids{}, .balance_bytes = true}),
              HasSubstr("balance_bytes does not apply to the wids sampler"));
  EXPECT_THAT(text(10, {.kind = Wids{}, .epoch_size = 5}),
              HasSubstr("epoch_size does not apply to the wids sampler"));
  EXPECT_THAT(text(10, {.kind = Wids{}, .tail = Order::Tail::kPad}),
              HasSubstr("tail does not apply to the wids sampler; it is for chunked, sharded, "
                        "sequential and resampled"));
  const Mixture mixture{{{.num_samples = 10}}};
  EXPECT_THAT(text(10, {.kind = mixture, .tail = Order::Tail::kDrop}),
              HasSubstr("tail does not apply to the mixture sampler"));
  EXPECT_THAT(text(10, {.kind = mixture, .streams = 2}, {.world_size = 2}),
              HasSubstr("streams does not apply to the mixture sampler"));
  Order order{.kind = Wids{}};
  order.skip.add_sample(1);
  EXPECT_THAT(text(10, order), HasSubstr("skip does not apply to the wids sampler"));
  for (const OrderKind& kind : {OrderKind(Chunked{}), OrderKind(Sequential{})}) {
    for (const Order::Tail tail : {Order::Tail::kDrop, Order::Tail::kPad}) {
      EXPECT_THAT(
          text(10, {.kind = kind, .tail = tail, .epoch_size = 7}),
          HasSubstr("tail " + std::string(tail_name(tail)) + " cannot be used with an epoch_size"));
      EXPECT_NO_THROW(make_sampler(10, {.kind = kind, .tail = tail, .epoch_size = 10}))
          << "the default, written out";
    }
  }
  EXPECT_THAT(text(0, {.epoch_size = 5}),
              HasSubstr("an epoch_size cannot be used without samples"));
}

TEST(MakeSamplerTest, KindsHaveNames) {
  for (const OrderKind& kind : {OrderKind(Chunked{}), OrderKind(Sharded{}), OrderKind(Sequential{}),
                                OrderKind(Resampled{}), OrderKind(Wids{})}) {
    EXPECT_EQ(parse_order_kind(name_of(kind)), kind);
  }
  EXPECT_EQ(name_of(Mixture{}), "mixture");
  for (const char* name : {"random", "mixture", "", "Chunked"}) {
    EXPECT_THAT(test::error_text([&] { parse_order_kind(name); }),
                HasSubstr("use chunked, sharded, sequential, resampled or wids"));
  }
}

TEST(MakeSamplerTest, TailsHaveNames) {
  for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
    EXPECT_EQ(parse_tail(tail_name(tail)), tail);
  }
  EXPECT_THAT(test::error_text([] { parse_tail("wrap"); }), HasSubstr("use exact, drop or pad"));
}

TEST(MakeSamplerTest, OrdersAreValues) {
  const Order order{.seed = 3, .kind = Chunked{.chunk_size = 10}};
  EXPECT_EQ(order, (Order{.seed = 3, .kind = Chunked{10, kDefaultWindow, false}}));
  EXPECT_NE(order, (Order{.seed = 3, .kind = Chunked{10, kDefaultWindow, true}}));
  EXPECT_NE(order, (Order{.seed = 3, .kind = Sharded{10}}));
  // Those that are the same order have the same spec, however they were written.
  EXPECT_EQ(make_sampler(100, {.kind = Sequential{}})->spec(),
            make_sampler(100, {.seed = 5, .kind = Sequential{}, .epoch_size = 100})->spec());
  EXPECT_NE(make_sampler(100, {.seed = 5})->spec(), make_sampler(100, {.seed = 6})->spec());
}

TEST(BalancedStepsTest, EachStepKeepsItsSamplesAndTheRanksTheirNumbers) {
  for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kPad, Order::Tail::kDrop}) {
    for (const std::uint64_t batch_size : {1U, 3U, 16U}) {
      Order order{.seed = 3, .kind = Chunked{.chunk_size = 10}, .tail = tail};
      const RankOptions ranks{.world_size = 4, .batch_size = batch_size};
      const auto plain = make_sampler(sized(203), order, ranks);
      order.balance_bytes = true;
      const auto balanced = make_sampler(sized(203), order, ranks);
      ASSERT_EQ(balanced->steps(), plain->steps());
      for (std::uint64_t rank = 0; rank < 4; ++rank) {
        ASSERT_EQ(balanced->for_rank(rank)->size(), plain->for_rank(rank)->size());
      }
      for (std::uint64_t step = 0; step < plain->steps(); ++step) {
        std::multiset<std::uint64_t> samples;
        std::multiset<std::uint64_t> expected;
        const auto ours = explain_step(*balanced, step);
        const auto theirs = explain_step(*plain, step);
        for (std::uint64_t rank = 0; rank < 4; ++rank) {
          EXPECT_EQ(ours[rank].samples.size(), theirs[rank].samples.size());
          samples.insert(ours[rank].samples.begin(), ours[rank].samples.end());
          expected.insert(theirs[rank].samples.begin(), theirs[rank].samples.end());
        }
        EXPECT_EQ(samples, expected) << "step " << step;
      }
    }
  }
}

TEST(BalancedStepsTest, ResumeBetweenStepsOnAnyNumberOfRanksAndBatchSize) {
  for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kPad, Order::Tail::kDrop}) {
    const Order order{
        .seed = 3, .kind = Chunked{.chunk_size = 10}, .tail = tail, .balance_bytes = true};
    Order plain_order = order;
    plain_order.balance_bytes = false;
    const auto before = make_sampler(sized(90), order, {.world_size = 3, .batch_size = 2});
    const auto plain_before =
        make_sampler(sized(90), plain_order, {.world_size = 3, .batch_size = 2});
    for (std::uint64_t step = 0; step <= before->steps(); ++step) {
      for (const std::uint64_t world : {1U, 3U, 4U, 8U}) {
        const RankOptions ranks{.world_size = world, .batch_size = 1 + step % 4};
        const auto ours = make_sampler(sized(90), order, ranks);
        const auto theirs = make_sampler(90, plain_order, ranks);
        ours->resume(before->token_after(step));
        theirs->resume(plain_before->token_after(step));
        ASSERT_EQ(test::sorted(test::of_all_ranks(*ours)),
                  test::sorted(test::of_all_ranks(*theirs)))
            << "step " << step << " world " << world;
      }
    }
  }
}

TEST(BalancedStepsTest, ATokenInTheMiddleOfAStepIsRefused) {
  const auto sampler =
      make_sampler(sized(50), {.balance_bytes = true}, {.world_size = 2, .batch_size = 4});
  sampler->seek(8);
  EXPECT_EQ(sampler->token(), sampler->token_after(2));
  sampler->seek(9);
  EXPECT_THAT(
      test::error_text([&] { static_cast<void>(sampler->token()); }),
      HasSubstr("a token cannot be taken in the middle of a step: epoch 0, sample 9 of rank 0"));
  sampler->seek(25);
  EXPECT_EQ(sampler->token().epoch, 1U) << "the last step is short";
}

TEST(BalancedStepsTest, PositionsAreThoseOfTheOrder) {
  const Samples whole = delivered(*make_sampler(77, {.seed = 2}));
  const auto sampler = make_sampler(sized(77), {.seed = 2, .balance_bytes = true},
                                    {.world_size = 4, .batch_size = 5});
  std::set<std::uint64_t> positions;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const auto mine = sampler->for_rank(rank);
    for (std::uint64_t i = 0; i < mine->size(); ++i) {
      const std::uint64_t position = mine->position_in_epoch(i);
      EXPECT_EQ(whole.at(position), mine->at(i));
      EXPECT_EQ(position / 20, i / 5) << "in its own step";
      positions.insert(position);
    }
  }
  EXPECT_EQ(positions.size(), 77U);
}

TEST(ExplainTest, SaysWhatEveryRankHadAndWhenEverySampleCame) {
  for (const bool balance : {false, true}) {
    for (const std::uint64_t replicas : {1U, 2U}) {
      for (const std::uint64_t steps_before : {0U, 3U}) {
        const RankOptions ranks{
            .rank = 2, .world_size = 3 * replicas, .batch_size = 4, .replicas = replicas};
        const auto sampler = make_sampler(
            sized(100),
            {.seed = 3, .kind = Chunked{.chunk_size = 10}, .streams = 3, .balance_bytes = balance},
            ranks);
        sampler->resume(sampler->token_after(steps_before));
        Samples seen;
        for (std::uint64_t step = 0; step < sampler->steps(); ++step) {
          const std::vector<Sampler::RankStep> all = explain_step(*sampler, step);
          ASSERT_EQ(all.size(), 3 * replicas);
          for (const Sampler::RankStep& rank : all) {
            const auto mine = sampler->for_rank(rank.rank);
            Samples batch;
            for (std::uint64_t t = 0; t <= step; ++t) {
              batch.resize(4);
              batch.resize(mine->next_batch(batch));
            }
            ASSERT_EQ(rank.samples, batch);
            for (std::uint64_t place = 0; place < batch.size(); ++place) {
              const Sampler::SampleTime here{rank.rank, step, place,
                                             mine->position_in_epoch(step * 4 + place)};
              const auto times = when_sample(*sampler, batch[place]);
              EXPECT_EQ(times.size(), replicas);
              EXPECT_THAT(times, testing::Contains(here));
              if (rank.rank % replicas == 0) seen.push_back(batch[place]);
            }
          }
        }
        EXPECT_EQ(seen.size(), 100 - steps_before * 12);
        std::size_t never = 0;
        for (std::uint64_t s = 0; s < 100; ++s) never += when_sample(*sampler, s).empty();
        EXPECT_EQ(never, steps_before * 12);
      }
    }
  }
}

TEST(ExplainTest, AnswersForWidsTooAndRefusesWhatCannotBe) {
  const WidsSampler wids(20, {.kind = Wids{.chunk_size = 4}}, {.world_size = 3, .batch_size = 4});
  const std::vector<Sampler::RankStep> ranks = explain_step(wids, 1);
  EXPECT_EQ(ranks[2].samples.size(), 2U);
  EXPECT_EQ(when_sample(wids, ranks[2].samples[1]),
            (std::vector<Sampler::SampleTime>{{2, 1, 1, 17}}));
  const ChunkedSampler chunked(20, {}, {.world_size = 3, .batch_size = 4});
  EXPECT_THAT(test::error_text([&] { explain_step(chunked, 2); }),
              HasSubstr("it has 2 steps, numbered from 0"));
  EXPECT_THAT(test::error_text([&] { explain_step(chunked, ~std::uint64_t{0}); }),
              HasSubstr("no step"));
  EXPECT_EQ(test::error_code([&] { when_sample(chunked, 20); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(test::error_code([&] { when_sample(*make_sampler(20, {.kind = Resampled{}}), 0); }),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shardwise
