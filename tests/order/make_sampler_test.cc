
#include "base/hasher.h"
#include "order/order_test_support.h"
#include "order/wids_sampler.h"
#include "shardwise/order/explain.h"
#include "support/says.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;
using testing::HasSubstr;

std::uint64_t bytes_of(std::uint64_t sample) {
  // Sizes are from 1 kB to about 1 MB, most of them small.
  const std::uint64_t x = hash64({reinterpret_cast<const char*>(&sample), sizeof sample}) % 1000;
  return 1000 + x * x;
}

SampleSet sized(std::uint64_t n) { return SampleSet(n).with_bytes(bytes_of); }

TEST(MakeSamplerTest, SaysWhatIsMissingOrWrong) {
  const auto text = [](const SampleSet& samples, const Order& order,
                       const RankOptions& ranks = {}) {
    return test::error_text([&] { make_sampler(samples, order, ranks); });
  };
  EXPECT_THAT(text(10, {.kind = Sharded{}}), HasSubstr("needs the shards"));
  EXPECT_THAT(text(10, {.balance_bytes = true}),
              test::Says("balance_bytes", "sizes of the samples"));
  EXPECT_THAT(text(sized(10), {.kind = Wids{}, .balance_bytes = true}),
              test::Says("balance_bytes does not apply", "wids"));
  EXPECT_THAT(text(10, {.kind = Wids{}, .epoch_size = 5}),
              test::Says("epoch_size does not apply", "wids"));
  EXPECT_THAT(
      text(10, {.kind = Wids{}, .tail = Order::Tail::kPad}),
      test::Says("tail does not apply", "wids", "chunked, sharded, sequential or resampled"));
  const Mixture mixture{{{.num_samples = 10}}};
  EXPECT_THAT(text(10, {.kind = mixture, .tail = Order::Tail::kDrop}),
              test::Says("tail does not apply", "mixture"));
  EXPECT_THAT(text(10, {.kind = mixture, .streams = 2}, {.world_size = 2}),
              test::Says("streams does not apply", "mixture"));
  Order order{.kind = Wids{}};
  order.skip.add_sample(1);
  EXPECT_THAT(text(10, order), test::Says("skip does not apply", "wids"));
  for (const OrderKind& kind : {OrderKind(Chunked{}), OrderKind(Sequential{})}) {
    for (const Order::Tail tail : {Order::Tail::kDrop, Order::Tail::kPad}) {
      EXPECT_THAT(
          text(10, {.kind = kind, .tail = tail, .epoch_size = 7}),
          test::Says("tail " + std::string(tail_name(tail)), "cannot be used", "epoch_size"));
      EXPECT_NO_THROW(make_sampler(10, {.kind = kind, .tail = tail, .epoch_size = 10}))
          << "the default, written out";
    }
  }
  EXPECT_THAT(text(0, {.epoch_size = 5}),
              test::Says("epoch_size cannot be used", "without samples"));
}

TEST(MakeSamplerTest, KindsHaveNames) {
  for (const OrderKind& kind : {OrderKind(Chunked{}), OrderKind(Sharded{}), OrderKind(Sequential{}),
                                OrderKind(Resampled{}), OrderKind(Wids{})}) {
    EXPECT_EQ(parse_order_kind(name_of(kind)), kind);
  }
  EXPECT_EQ(name_of(Mixture{}), "mixture");
  for (const char* name : {"random", "mixture", "", "Chunked"}) {
    EXPECT_ERROR(test::Says("chunked, sharded, sequential, resampled or wids"),
                 parse_order_kind(name));
  }
}

TEST(MakeSamplerTest, TailsHaveNames) {
  for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
    EXPECT_EQ(parse_tail(tail_name(tail)), tail);
  }
  EXPECT_ERROR(test::Says("use exact, drop or pad"), parse_tail("wrap"));
}

TEST(MakeSamplerTest, OrdersAreValues) {
  const Order order{.seed = 3, .kind = Chunked{.chunk_size = 10}};
  EXPECT_EQ(order, (Order{.seed = 3, .kind = Chunked{10, kDefaultWindow, false}}));
  EXPECT_NE(order, (Order{.seed = 3, .kind = Chunked{10, kDefaultWindow, true}}));
  EXPECT_NE(order, (Order{.seed = 3, .kind = Sharded{10}}));
  // Equal orders have equal specs, even if their options are written differently.
  EXPECT_EQ(make_sampler(100, {.kind = Sequential{}})->spec(),
            make_sampler(100, {.seed = 5, .kind = Sequential{}, .epoch_size = 100})->spec());
  EXPECT_NE(make_sampler(100, {.seed = 5})->spec(), make_sampler(100, {.seed = 6})->spec());
}

TEST(EpochSizeTest, AnEpochThatIsNoPassIsProvenAsOrdered) {
  const auto sampler = make_sampler(50, {.seed = 3, .epoch_size = 21}, {.world_size = 4});
  EpochAudit audit;
  audit.add(test::of_all_ranks(*sampler));
  EXPECT_EQ(audit.verdict(sampler->expectation()).text(0),
            "epoch 0: 21 samples of an exact order, as ordered: proven");
}

TEST(EpochSizeTest, OneAsLargeAsTheDataIsNone) {
  const auto plain = make_sampler(50, {.seed = 3});
  const auto written_out = make_sampler(50, {.seed = 3, .epoch_size = 50});
  EXPECT_TRUE(written_out->is_exact());
  EXPECT_EQ(written_out->spec(), plain->spec());
  EXPECT_EQ(written_out->order().epoch_size, 0U);
  EXPECT_EQ(delivered(*written_out), delivered(*plain));
}

TEST(EpochSizeTest, EpochsEndWithTheNumbers) {
  const auto sampler = make_sampler(50, {.epoch_size = std::uint64_t{1} << 40});
  EXPECT_NO_THROW(sampler->set_epoch((1 << 22) - 1));
  EXPECT_LT(sampler->at(sampler->size() - 1), 50U);
  EXPECT_ERROR(test::Says("epoch 4194304 is too large"), sampler->set_epoch(1 << 22));
  EXPECT_EQ(sampler->epoch(), (1U << 22) - 1);
}

TEST(BalancedStepsTest, ATokenInTheMiddleOfAStepIsRefused) {
  const auto sampler =
      make_sampler(sized(50), {.balance_bytes = true}, {.world_size = 2, .batch_size = 4});
  sampler->seek(8);
  EXPECT_EQ(sampler->token(), sampler->token_after(2));
  sampler->seek(9);
  EXPECT_ERROR(test::Says("token cannot be taken", "epoch 0, sample 9 of rank 0"),
               sampler->token());
  sampler->seek(25);
  EXPECT_EQ(sampler->token().epoch, 1U) << "the last step is short";
}

TEST(ExplainTest, AnswersForWidsTooAndRefusesWhatCannotBe) {
  const WidsSampler wids(20, {.kind = Wids{.chunk_size = 4}}, {.world_size = 3, .batch_size = 4});
  const std::vector<Sampler::RankStep> ranks = explain_step(wids, 1);
  EXPECT_EQ(ranks[2].samples.size(), 2U);
  EXPECT_EQ(when_sample(wids, ranks[2].samples[1]),
            (std::vector<Sampler::SampleTime>{{2, 1, 1, 17}}));
  const ChunkedSampler chunked(20, {}, {.world_size = 3, .batch_size = 4});
  EXPECT_ERROR(test::Says("[0, 2)"), explain_step(chunked, 2));
  EXPECT_ERROR(test::Says("no step"), explain_step(chunked, ~std::uint64_t{0}));
  EXPECT_CODE(kOutOfRange, when_sample(chunked, 20));
  EXPECT_CODE(kInvalidArgument, when_sample(*make_sampler(20, {.kind = Resampled{}}), 0));
}

}  // namespace
}  // namespace shardwise
