// Replicas, and epochs that are not passes over the data.

#include <map>

#include "order/order_test_support.h"
#include "shardwise/order/explain.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;

/// What all ranks deliver in the epochs from the one at which `sampler` stands, in order of
/// positions: of one rank after the other at each place.
Samples by_position(Sampler& sampler, std::uint64_t num_epochs) {
  Samples all;
  for (std::uint64_t i = 0; i < num_epochs; ++i) {
    if (i > 0) sampler.set_epoch(sampler.epoch() + 1);
    std::vector<Samples> parts;
    for (std::uint64_t rank = 0; rank < sampler.world_size(); rank += sampler.replicas()) {
      parts.push_back(delivered(*sampler.for_rank(rank)));
    }
    for (std::size_t index = 0; index < parts[0].size(); ++index) {
      for (const Samples& part : parts) {
        if (index < part.size()) all.push_back(part[index]);
      }
    }
  }
  return all;
}

std::vector<OrderKind> exact_kinds() {
  return {Chunked{7, 2}, Chunked{5, 3, true}, Sharded{2}, Sequential{}};
}

SampleSet shards_of(std::uint64_t n) {
  return SampleSet::of_shards(test::some_lengths(n, 12, n)).with_fingerprint({5, 6});
}

TEST(EpochSizeTest, EachSampleComesOnceInEachPassOverConsecutiveEpochs) {
  for (const OrderKind& kind : exact_kinds()) {
    for (const std::uint64_t n : {1U, 10U, 53U}) {
      for (const std::uint64_t epoch_size : {1U, 7U, 20U, 52U, 54U, 120U}) {
        for (const std::uint64_t streams : {1U, 2U, 4U}) {
          for (const std::uint64_t world : {1U, 2U, 4U}) {
            if (n == epoch_size) continue;
            const auto sampler = make_sampler(
                shards_of(n),
                {.seed = 3, .kind = kind, .streams = streams, .epoch_size = epoch_size},
                {.world_size = world});
            EXPECT_FALSE(sampler->is_exact());
            const std::uint64_t num_epochs = 3 * n / epoch_size + 2;
            const Samples all = by_position(*sampler, num_epochs);
            ASSERT_EQ(all.size(), num_epochs * epoch_size);
            const auto whole = make_sampler(
                shards_of(n), {.seed = 3, .kind = kind, .streams = streams}, {.world_size = world});
            for (std::uint64_t pass = 0; (pass + 1) * n <= all.size(); ++pass) {
              const Samples part(all.begin() + static_cast<std::ptrdiff_t>(pass * n),
                                 all.begin() + static_cast<std::ptrdiff_t>((pass + 1) * n));
              ASSERT_TRUE(test::is_each_once(part, n))
                  << name_of(kind) << " n " << n << " epoch_size " << epoch_size << " world "
                  << world << " streams " << streams;
              whole->set_epoch(pass);
              ASSERT_EQ(part, by_position(*whole, 1)) << "the same as an epoch of its own";
            }
          }
        }
      }
    }
  }
}

TEST(EpochSizeTest, OneAsLargeAsTheDataIsNone) {
  const auto plain = make_sampler(50, {.seed = 3});
  const auto written_out = make_sampler(50, {.seed = 3, .epoch_size = 50});
  EXPECT_TRUE(written_out->is_exact());
  EXPECT_EQ(written_out->spec(), plain->spec());
  EXPECT_EQ(written_out->order().epoch_size, 0U);
  EXPECT_EQ(delivered(*written_out), delivered(*plain));
}

TEST(EpochSizeTest, RanksDifferByAtMostOneAndStepsAreAlike) {
  const auto sampler =
      make_sampler(50, {.seed = 3, .epoch_size = 21}, {.world_size = 4, .batch_size = 2});
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    sizes.push_back(sampler->for_rank(rank)->size());
    EXPECT_EQ(sampler->for_rank(rank)->steps(), 3U);
  }
  EXPECT_THAT(sizes, testing::ElementsAre(6, 5, 5, 5));
}

TEST(EpochSizeTest, ResumesInTheMiddleOnOtherWorlds) {
  for (const OrderKind& kind : exact_kinds()) {
    for (const std::uint64_t epoch_size : {9U, 64U}) {
      const Order order{.seed = 3, .kind = kind, .streams = 2, .epoch_size = epoch_size};
      const auto before = make_sampler(shards_of(25), order, {.world_size = 4, .batch_size = 2});
      const auto one = make_sampler(shards_of(25), order, {.world_size = 1});
      one->set_epoch(2);
      const Samples whole = by_position(*one, 4);
      before->set_epoch(2);
      for (std::uint64_t step = 0; step <= before->steps(); ++step) {
        const ResumeToken token = ResumeToken::from_text(before->token_after(step).to_text());
        EXPECT_EQ(token.epoch, step == before->steps() ? 3U : 2U);
        for (const std::uint64_t world : {1U, 2U, 6U}) {
          const auto after =
              make_sampler(shards_of(25), order, {.world_size = world, .batch_size = 3});
          after->resume(token);
          const std::uint64_t first = (token.epoch - 2) * epoch_size + token.position;
          const Samples rest = by_position(*after, 6 - token.epoch);
          ASSERT_EQ(rest, Samples(whole.begin() + static_cast<std::ptrdiff_t>(first), whole.end()))
              << name_of(kind) << " step " << step << " world " << world;
        }
      }
    }
  }
}

TEST(EpochSizeTest, EpochsAreProvenToBeAsOrderedAndLeaveOutWhatIsSkipped) {
  for (const std::uint64_t epoch_size : {30U, 130U}) {
    Order order{.seed = 3, .kind = Chunked{7, 2}, .epoch_size = epoch_size};
    order.skip.add_sample(11);
    order.skip.add_positions(1, 3, 6);
    const auto sampler =
        make_sampler(SampleSet(50).with_fingerprint({1, 2}), order, {.world_size = 3});
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      sampler->set_epoch(epoch);
      const Samples all = test::of_all_ranks(*sampler);
      EXPECT_EQ(std::count(all.begin(), all.end(), 11), 0);
      EpochAudit audit(sampler->fingerprint());
      audit.add(all);
      EXPECT_EQ(audit.verdict(sampler->expectation()).text(epoch),
                "epoch " + std::to_string(epoch) + ": " + std::to_string(all.size()) +
                    " samples of an exact order, as ordered: proven");
      audit.add(11);
      EXPECT_FALSE(audit.verdict(sampler->expectation()).proven);
      std::map<std::uint64_t, std::size_t> times;
      for (const std::uint64_t sample : all) ++times[sample];
      for (std::uint64_t sample = 0; sample < 50; ++sample) {
        const std::vector<Sampler::SampleTime> told = when_sample(*sampler, sample);
        EXPECT_EQ(told.size(), times[sample]);
        for (const Sampler::SampleTime& time : told) {
          const auto mine = sampler->for_rank(time.rank);
          EXPECT_EQ(mine->at(time.step), sample);
          EXPECT_EQ(mine->position_in_epoch(time.step), time.position);
        }
      }
    }
  }
}

TEST(EpochSizeTest, EpochsEndWithTheNumbers) {
  const auto sampler = make_sampler(50, {.epoch_size = std::uint64_t{1} << 40});
  EXPECT_NO_THROW(sampler->set_epoch((1 << 22) - 1));
  EXPECT_LT(sampler->at(sampler->size() - 1), 50U);
  EXPECT_THAT(test::error_text([&] { sampler->set_epoch(1 << 22); }),
              testing::HasSubstr("no epoch 4194304"));
  EXPECT_EQ(sampler->epoch(), (1U << 22) - 1);
}

TEST(ReplicasTest, RanksOfOneGroupGetTheSameAndGroupsAreExact) {
  for (const OrderKind& kind : exact_kinds()) {
    for (const std::uint64_t replicas : {1U, 2U, 4U}) {
      for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
        for (const bool balance : {false, true}) {
          const Order order{
              .seed = 3, .kind = kind, .streams = 3, .tail = tail, .balance_bytes = balance};
          const SampleSet samples = shards_of(67).with_bytes([](std::uint64_t s) { return s % 9; });
          const auto sampler = make_sampler(
              samples, order, {.world_size = 3 * replicas, .batch_size = 4, .replicas = replicas});
          const auto single = make_sampler(samples, order, {.world_size = 3, .batch_size = 4});
          EXPECT_EQ(sampler->replicas(), replicas);
          EXPECT_EQ(sampler->spec(), single->spec()) << "replicas are no part of the order";
          EXPECT_EQ(sampler->steps(), single->steps());
          for (std::uint64_t rank = 0; rank < 3 * replicas; ++rank) {
            const auto mine = sampler->for_rank(rank);
            EXPECT_EQ(mine->rank(), rank);
            EXPECT_EQ(mine->world_size(), 3 * replicas);
            EXPECT_EQ(delivered(*mine), delivered(*single->for_rank(rank / replicas)));
            EXPECT_EQ(mine->token_after(2), single->token_after(2));
            mine->seek(8);
            EXPECT_EQ(mine->token(), single->token_after(2));
          }
          EpochAudit audit(sampler->fingerprint());
          audit.add(test::of_all_ranks(*sampler));
          EXPECT_TRUE(audit.verdict(sampler->expectation()).proven);
        }
      }
    }
  }
}

TEST(ReplicasTest, ARunGoesOnWithOtherGroups) {
  const auto before =
      make_sampler(100, {.seed = 3}, {.world_size = 8, .batch_size = 2, .replicas = 2});
  Samples all;
  for (std::uint64_t rank = 0; rank < 8; rank += 2) {
    const Samples part = delivered(*before->for_rank(rank));
    all.insert(all.end(), part.begin(), part.begin() + 6);
  }
  const auto after =
      make_sampler(100, {.seed = 3}, {.world_size = 6, .batch_size = 5, .replicas = 3});
  after->resume(before->token_after(3));
  const Samples rest = test::of_all_ranks(*after);
  EXPECT_EQ(rest.size(), 76U);
  all.insert(all.end(), rest.begin(), rest.end());
  EXPECT_TRUE(test::is_each_once(all, 100));
}

}  // namespace
}  // namespace shardwise
