// Mixtures whose weights change at positions of the run.

#include "order/mixture_schedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/error_types.h"
#include "order/key.h"
#include "order/order_test_support.h"
#include "order/slot_order.h"
#include "shardwise/order/explain.h"
#include "support/chain.h"

namespace shardwise {
namespace {

using detail::MixtureDraw;
using detail::MixtureDraws;
using detail::MixtureSchedule;
using test::delivered;
using test::Dice;
using test::MixtureSampler;
using test::Samples;
using testing::HasSubstr;
using Weights = std::vector<double>;

constexpr std::uint64_t kBlock = MixtureDraws::kBlock;

Mixture mixture_of(const Samples& sizes, const std::vector<Mixture::Change>& pieces) {
  Mixture mixture;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    mixture.parts.push_back({.num_samples = sizes[i], .weight = pieces[0].weights[i]});
  }
  mixture.schedule.assign(pieces.begin() + 1, pieces.end());
  return mixture;
}

/// A simple implementation of schedules, as a reader of the page would write it. It goes through
/// the run block by block, and counts the draws from each data set.
class PlainSchedule {
 public:
  PlainSchedule(const Mixture& mixture, std::uint64_t seed) : mixture_(mixture), seed_(seed) {
    had_.resize(mixture.parts.size());
  }

  /// Returns the draws of the first `num_blocks` blocks.
  std::vector<MixtureDraw> draws(std::uint64_t num_blocks) {
    std::vector<MixtureDraw> all;
    for (std::uint64_t block = 0; block < num_blocks; ++block) add(block, all);
    return all;
  }

 private:
  Weights weights_at(std::uint64_t block) const {
    Weights weights;
    for (const Mixture::Part& part : mixture_.parts) weights.push_back(part.weight);
    for (const Mixture::Change& change : mixture_.schedule) {
      if (change.from <= block * kBlock) weights = change.weights;
    }
    return weights;
  }

  void add(std::uint64_t block, std::vector<MixtureDraw>& all) {
    const Weights weights = weights_at(block);
    const auto found = constant_.try_emplace(weights, weights, seed_).first;
    const MixtureDraws& constant = found->second;
    // A mixture with constant weights determines from which data set each slot of the block draws.
    // Draws of a data set are numbered on from its draws in earlier blocks.
    std::vector<std::uint64_t> least(had_.size(), ~std::uint64_t{0});
    for (std::uint64_t i = 0; i < kBlock; ++i) {
      const MixtureDraw draw = constant.at(block * kBlock + i);
      least[draw.dataset] = std::min(least[draw.dataset], draw.draw);
    }
    std::vector<std::uint64_t> count(had_.size());
    for (std::uint64_t i = 0; i < kBlock; ++i) {
      const auto [dataset, draw] = constant.at(block * kBlock + i);
      all.push_back({dataset, had_[dataset] + (draw - least[dataset])});
      ++count[dataset];
    }
    for (std::size_t i = 0; i < had_.size(); ++i) had_[i] += count[i];
  }

  Mixture mixture_;
  std::uint64_t seed_;
  std::vector<std::uint64_t> had_;
  std::map<Weights, MixtureDraws> constant_;
};

/// Pieces of two or three data sets: positions, and weights from there on.
std::vector<std::vector<Mixture::Change>> some_pieces(std::size_t num_parts) {
  const auto of = [num_parts](double a, double b, double c) {
    return num_parts == 2 ? Weights{a, b} : Weights{a, b, c};
  };
  return {{{0, of(1, 3, 1)}},
          {{0, of(1, 3, 2)}, {256, of(3, 1, 0.1)}},
          {{0, of(1, 1e-9, 0)}, {1, of(0, 1, 0)}, {700, of(0.5, 0.5, 7)}},
          {{0, of(2, 0, 5)}, {512, of(0, 3, 0)}, {768, of(2, 0, 5)}, {769, of(1, 1, 1)}},
          {{0, of(0, 1, 0)}, {300, of(1, 0, 0)}, {301, of(9, 1, 0)}, {2000, of(0, 0.1, 1e9)}}};
}

TEST(MixtureScheduleTest, AgreesWithAWalkOverTheRun) {
  constexpr std::uint64_t kNumBlocks = 12;
  for (const std::size_t num_parts : {2U, 3U}) {
    for (const auto& pieces : some_pieces(num_parts)) {
      for (const std::uint64_t seed : {0U, 17U}) {
        const Mixture mixture = mixture_of(Samples(num_parts, 10), pieces);
        const MixtureSchedule schedule(mixture, seed);
        const std::vector<MixtureDraw> plain = PlainSchedule(mixture, seed).draws(kNumBlocks);
        for (const std::uint64_t stride : {1U, 2U, 3U, 255U, 300U, 3000U}) {
          for (const std::uint64_t first : {0U, 1U, 255U, 256U, 511U, 1999U}) {
            const std::size_t count = (plain.size() - 1 - first) / stride + 1;
            std::vector<std::uint32_t> dataset(count);
            std::vector<std::uint64_t> draw(count);
            schedule.locate(first, stride, dataset, draw);
            for (std::size_t i = 0; i < count; ++i) {
              ASSERT_EQ((MixtureDraw{dataset[i], draw[i]}), plain[first + i * stride]) << i;
            }
          }
        }
        std::vector<std::uint64_t> before(num_parts);
        for (std::uint64_t slot = 0; slot < plain.size(); ++slot) {
          for (std::size_t d = 0; d < num_parts; ++d) {
            ASSERT_EQ(schedule.draws_before(d, slot), before[d]) << slot;
          }
          const auto [dataset, draw] = plain[slot];
          ++before[dataset];
          ASSERT_EQ(schedule.slot_of(dataset, draw), slot);
          const auto [begin, end] = schedule.slots_of_draws(dataset, draw, draw + 1);
          ASSERT_EQ(begin, slot / kBlock * kBlock);
          ASSERT_EQ(end, begin + kBlock);
        }
      }
    }
  }
}

TEST(MixtureScheduleTest, LongPiecesAndTheEndOfTheMixture) {
  constexpr std::uint64_t kFar = std::uint64_t{1} << 61;
  const Mixture mixture =
      mixture_of({5, 5}, {{0, {1, 2}}, {kFar, {0, 1}}, {MixtureDraws::kMaxSlots, {1, 1}}});
  const MixtureSchedule schedule(mixture, 3);
  const MixtureDraws first(Weights{1, 2}, 3);
  EXPECT_EQ(schedule.draws_before(0, kFar), first.draws_before(0, kFar));
  EXPECT_EQ(schedule.draws_before(0, MixtureDraws::kMaxSlots), first.draws_before(0, kFar));
  EXPECT_EQ(schedule.draws_before(0, MixtureDraws::kMaxSlots) +
                schedule.draws_before(1, MixtureDraws::kMaxSlots),
            MixtureDraws::kMaxSlots);
  EXPECT_EQ(schedule.slot_of(0, first.draws_before(0, kFar)), std::nullopt);
  const std::uint64_t last = schedule.draws_before(1, MixtureDraws::kMaxSlots) - 1;
  EXPECT_GE(schedule.slot_of(1, last), MixtureDraws::kMaxSlots - kBlock);
  EXPECT_EQ(schedule.slots_of_draws(1, last, last + 2).second, MixtureDraws::kMaxSlots);
}

TEST(MixtureScheduleTest, EqualSchedulesHaveOneForm) {
  const auto canonical = [](const std::vector<Mixture::Change>& pieces) {
    return detail::canonical(mixture_of({5, 5}, pieces)).schedule;
  };
  using Schedule = std::vector<Mixture::Change>;
  EXPECT_EQ(canonical({{0, {1, 2}}, {1, {1, 1}}}), (Schedule{{256, {1, 1}}}));
  EXPECT_EQ(canonical({{0, {1, 2}}, {256, {1, 2}}, {257, {1, 1}}, {512, {3, 1}}}),
            (Schedule{{512, {3, 1}}}));
  EXPECT_EQ(canonical({{0, {1, 2}}, {10, {1, 1}}, {300, {1, 1}}, {600, {1, 2}}}),
            (Schedule{{256, {1, 1}}, {768, {1, 2}}}));
  EXPECT_EQ(canonical({{0, {1, 2}}, {10, {1, 1}}, {20, {1, 2}}}), Schedule{});
}

TEST(MixtureScheduleTest, RefusesAScheduleThatIsNotValid) {
  const auto text = [](const std::vector<Mixture::Change>& pieces) {
    return test::error_text([&] { make_sampler(10, {.kind = mixture_of({5, 5}, pieces)}); });
  };
  EXPECT_THAT(text({{0, {1, 2}}, {0, {1, 1}}}), HasSubstr("position 0"));
  EXPECT_THAT(text({{0, {1, 2}}, {7, {1, 1}}, {7, {1, 3}}}), HasSubstr("position 7"));
  EXPECT_THAT(text({{0, {1, 2}}, {7, {1}}}), HasSubstr("position 7"));
  EXPECT_THAT(text({{0, {1, 2}}, {kMaxSamples + 1, {1, 1}}}), HasSubstr("2^62"));
  EXPECT_THAT(text({{0, {1, 2}}, {7, {1, -1}}}), HasSubstr("from position 256, data set 1"));
  EXPECT_THAT(text({{0, {1, 2}}, {7, {0, 0}}}), HasSubstr("no weight is above 0"));
  const Mixture empty = mixture_of({5, 0}, {{0, {1, 0}}, {7, {1, 1}}});
  EXPECT_THAT(test::error_text([&] { make_sampler(5, {.kind = empty}); }), HasSubstr("is empty"));
}

/// The samples of a run by position, from the plain schedule and one order for each pass.
Samples plain_run(const Mixture& mixture, const SampleSet& samples, std::uint64_t seed,
                  std::uint64_t size) {
  Samples run;
  std::map<std::pair<std::uint64_t, std::uint64_t>, EpochOrder> passes;
  for (const auto& [dataset, draw] :
       PlainSchedule(mixture, seed).draws((size + kBlock - 1) / kBlock)) {
    std::uint64_t first = 0;
    for (std::size_t d = 0; d < dataset; ++d) first += mixture.parts[d].num_samples;
    const Mixture::Part& part = mixture.parts[dataset];
    const std::uint64_t pass = draw / part.num_samples;
    const auto made = passes.find({dataset, pass});
    if (made == passes.end()) {
      ShardOffsets starts;
      if (std::holds_alternative<Sharded>(part.kind)) {
        Samples own;
        for (const std::uint64_t start : *samples.shard_starts()) {
          if (start >= first && start <= first + part.num_samples) own.push_back(start - first);
        }
        starts = std::make_shared<const Samples>(own);
      }
      const std::uint64_t key = derive_key(seed, 0, KeyPurpose::kMixtureDataset, dataset).low;
      passes.emplace(std::pair(dataset, pass),
                     detail::Passes(part.num_samples, starts, part.kind, key)[pass]);
    }
    run.push_back(first + passes.find({dataset, pass})->second.at(draw % part.num_samples));
  }
  run.resize(size);
  return run;
}

/// Checks that `progress` describes the first `end` samples of a run: the number of samples of each
/// data set, as whole passes and a remainder. If `end` is a border of a block, also checks that the
/// counts of a data set's samples differ by at most 1.
void expect_exact_passes(const Mixture& mixture, const Samples& run, std::uint64_t end,
                         const std::vector<ResumeToken::Progress>& progress) {
  std::map<std::uint64_t, std::uint64_t> times;
  for (std::uint64_t position = 0; position < end; ++position) ++times[run[position]];
  std::uint64_t first = 0;
  ASSERT_EQ(progress.size(), mixture.parts.size());
  for (std::size_t d = 0; d < mixture.parts.size(); ++d) {
    const std::uint64_t n = mixture.parts[d].num_samples;
    std::uint64_t all = 0;
    std::uint64_t above = 0;
    for (std::uint64_t sample = first; sample < first + n; ++sample) {
      all += times[sample];
      if (end % kBlock != 0) continue;
      ASSERT_GE(times[sample], progress[d].passes) << "data set " << d;
      ASSERT_LE(times[sample], progress[d].passes + 1) << "data set " << d;
      above += times[sample] - progress[d].passes;
    }
    EXPECT_EQ(progress[d].num_samples, n);
    EXPECT_EQ(progress[d].samples, all);
    EXPECT_EQ(progress[d].passes * n + progress[d].remainder, all);
    if (end % kBlock == 0) {
      EXPECT_EQ(progress[d].remainder, above);
    }
    first += n;
  }
}

/// Checks one epoch on all ranks: the samples, their positions, and the proof.
void expect_epoch(const MixtureSampler& sampler, const Samples& expected) {
  EpochAudit audit(sampler.fingerprint());
  for (std::uint64_t rank = 0; rank < sampler.world_size(); ++rank) {
    Samples own;
    for (std::uint64_t p = rank; p < expected.size(); p += sampler.world_size()) {
      own.push_back(expected[p]);
    }
    const Samples got = delivered(*sampler.for_rank(rank));
    ASSERT_EQ(got, own);
    audit.add(got);
  }
  EXPECT_TRUE(audit.verdict(sampler.expectation()).proven);
  for (const std::uint64_t sample : {expected.front(), expected.back()}) {
    std::vector<std::uint64_t> positions;
    for (const Sampler::SampleTime& time : when_sample(sampler, sample)) {
      positions.push_back(time.position);
    }
    std::ranges::sort(positions);
    std::vector<std::uint64_t> wanted;
    for (std::uint64_t p = 0; p < expected.size(); ++p) {
      if (expected[p] == sample) wanted.push_back(p);
    }
    ASSERT_EQ(positions, wanted);
  }
}

// All small runs: data sets x orders within them x schedules x lengths of epochs x ranks.
TEST(MixtureScheduleTest, EverySmallRunIsThatOfThePlainModel) {
  const std::vector<Samples> sizes{{1, 2}, {5, 3}, {300, 41}, {7, 90, 13}};
  std::size_t runs = 0;
  for (const Samples& size : sizes) {
    Samples lengths;
    for (const std::uint64_t n : size) {
      lengths.insert(lengths.end(), {n / 2, 0, n - n / 2});
    }
    const SampleSet samples = SampleSet::of_shards(lengths).with_fingerprint({7, 9});
    for (const std::variant<Chunked, Sharded, Sequential>& kind :
         std::vector<std::variant<Chunked, Sharded, Sequential>>{Sequential{}, Chunked{1, 3, false},
                                                                 Chunked{4, 2, true}, Sharded{2}}) {
      for (const auto& pieces : some_pieces(size.size())) {
        Mixture mixture = mixture_of(size, pieces);
        for (Mixture::Part& part : mixture.parts) part.kind = kind;
        const Samples run = plain_run(mixture, samples, 5, 3000);
        for (const std::uint64_t epoch_size : {0U, 100U, 256U, 1000U}) {
          const Order order{.seed = 5, .kind = mixture, .epoch_size = epoch_size};
          const std::uint64_t length = epoch_size == 0 ? samples.size() : epoch_size;
          for (const std::uint64_t world : {1U, 2U, 3U, 5U}) {
            MixtureSampler sampler(samples, order, {.world_size = world, .batch_size = 4});
            const std::uint64_t last = std::min<std::uint64_t>(3000 / length, 12) - 1;
            for (std::uint64_t epoch = last > 2 ? last - 2 : 0; epoch <= last; ++epoch) {
              sampler.set_epoch(epoch);
              expect_epoch(
                  sampler,
                  Samples(run.begin() + static_cast<std::ptrdiff_t>(epoch * length),
                          run.begin() + static_cast<std::ptrdiff_t>((epoch + 1) * length)));
              ++runs;
            }
            const ResumeToken end = sampler.token_after(sampler.steps());
            expect_exact_passes(mixture, run, (last + 1) * length, end.progress());
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
  std::cout << runs << " epochs\n";
}

// docs/formats/order.md, Schedules of weights.
TEST(MixtureScheduleTest, GoldenScheduleNeverChanges) {
  const SampleSet samples = SampleSet(540).with_fingerprint({1, 1});
  const Mixture mixture =
      mixture_of({500, 40}, {{0, {3, 1}}, {256, {1, 3}}, {1000, {0, 1}}, {2000, {5, 1}}});
  MixtureSampler sampler(samples, {.seed = 17, .kind = mixture, .epoch_size = 16});
  const auto epoch = [&](std::uint64_t number) {
    sampler.set_epoch(number);
    return delivered(sampler);
  };
  EXPECT_EQ(epoch(0), (Samples{321, 535, 432, 533, 446, 480, 508, 143, 239, 215, 438, 410, 27, 271,
                               264, 257}));
  EXPECT_EQ(epoch(16), (Samples{466, 170, 518, 502, 516, 529, 531, 514, 282, 515, 508, 524, 517,
                                513, 405, 512}));
  EXPECT_EQ(epoch(64), (Samples{519, 519, 500, 505, 538, 532, 525, 536, 527, 519, 520, 512, 509,
                                537, 503, 534}));
  EXPECT_EQ(epoch(1'000'000),
            (Samples{483, 47, 280, 372, 43, 312, 287, 176, 145, 465, 70, 223, 536, 125, 150, 304}));
}

// Tests of runs that resume with other weights and other numbers of ranks, at any point.

Order with_weights(const Weights& weights, std::uint64_t epoch_size = 777) {
  return {.seed = 9, .kind = mixture_of({500, 41}, {{0, weights}}), .epoch_size = epoch_size};
}
constexpr auto kAllow = Sampler::Changes::kAllowAtEpochBorder;

TEST(MixtureScheduleTest, WeightsMayChangeWithinAnEpochAndNoPlaceIsLost) {
  const SampleSet samples = SampleSet(541).with_fingerprint({7, 9});
  MixtureSampler first(samples, with_weights({3, 1}), {.world_size = 5, .batch_size = 3});
  first.set_epoch(1);
  const ResumeToken token = first.token_after(20);  // position 300 of epoch 1: 1077 of the run
  MixtureSampler second(samples, with_weights({1, 3}), {.world_size = 2, .batch_size = 7});
  EXPECT_THAT(test::error_text([&] { second.resume(token); }),
              testing::AllOf(HasSubstr("weights differ"), HasSubstr("position 1077"),
                             HasSubstr("kAllowAtEpochBorder")));
  EXPECT_EQ(second.epoch(), 0U);
  second.resume(token, kAllow);
  const auto& mixture = std::get<Mixture>(second.order().kind);
  EXPECT_EQ(mixture.parts[0].weight, 3);
  EXPECT_EQ(mixture.schedule, (std::vector<Mixture::Change>{{1280, {1, 3}}}));

  // The samples are those of one run with this schedule.
  const Samples run = plain_run(mixture, samples, 9, 3 * 777);
  const auto from = [&](std::uint64_t begin, std::uint64_t end) {
    return Samples(run.begin() + static_cast<std::ptrdiff_t>(begin),
                   run.begin() + static_cast<std::ptrdiff_t>(end));
  };
  EXPECT_EQ(test::sorted(test::of_all_ranks(second)), test::sorted(from(1077, 1554)));
  EpochAudit audit({7, 9});
  audit.add(from(777, 1077));
  audit.add(test::of_all_ranks(second));
  EXPECT_TRUE(audit.verdict(second.expectation()).proven);

  // After the change, a run resumes with the new weights alone, without the schedule and without
  // kAllow.
  const ResumeToken later = second.token_after(second.steps());
  EXPECT_TRUE(later.history.empty());
  MixtureSampler third(samples, with_weights({1, 3}), {.world_size = 3});
  third.resume(ResumeToken::from_text(later.to_text()));
  EXPECT_EQ(third.spec(), second.spec());
  expect_epoch(third, from(1554, 2331));
  EXPECT_EQ(later.progress().front().samples + later.progress().back().samples, 1554U);
}

TEST(MixtureScheduleTest, AtAnEpochBorderWeightsChangeWithoutANewStage) {
  const SampleSet samples = SampleSet(541).with_fingerprint({7, 9});
  MixtureSampler first(samples, with_weights({3, 1}));
  const ResumeToken token = first.token_after(777);
  MixtureSampler second(samples, with_weights({1, 0}));
  second.resume(token, kAllow);
  EXPECT_TRUE(second.token().history.empty());
  EXPECT_EQ(std::get<Mixture>(second.order().kind).schedule,
            (std::vector<Mixture::Change>{{1024, {1, 0}}}));
  // Any other change would lose the rest of each pass, so it is refused.
  Order other = with_weights({1, 0});
  other.seed = 10;
  MixtureSampler refused(samples, other);
  EXPECT_THROW(refused.resume(token, kAllow), Mismatch);
}

TEST(MixtureScheduleTest, AChangeAtABorderOfBlocksAppliesAtOnce) {
  const SampleSet samples = SampleSet(541).with_fingerprint({7, 9});
  MixtureSampler first(samples, with_weights({3, 1}));
  MixtureSampler second(samples, with_weights({0, 1}));
  second.resume(first.token_after(512), kAllow);
  for (const std::uint64_t sample : delivered(second)) EXPECT_GE(sample, 500U);
  // At the beginning of the run nothing was read, so the new weights are those of the whole run.
  second.resume(first.token_after(0), kAllow);
  EXPECT_TRUE(std::get<Mixture>(second.order().kind).schedule.empty());
  EXPECT_EQ(std::get<Mixture>(second.order().kind).parts[0].weight, 0);
}

TEST(MixtureScheduleTest, ARunGoesBackToTheWeightsOfATokenBeforeTheChange) {
  const SampleSet samples = SampleSet(541).with_fingerprint({7, 9});
  MixtureSampler first(samples, with_weights({3, 1}));
  MixtureSampler second(samples, with_weights({1, 3}));
  second.resume(first.token_after(600), kAllow);
  second.resume(first.token_after(100), kAllow);
  EXPECT_EQ(std::get<Mixture>(second.order().kind).schedule,
            (std::vector<Mixture::Change>{{256, {1, 3}}}));
}

TEST(MixtureScheduleTest, TheFutureOfAScheduleMayChangeAndItsPastMayNot) {
  const SampleSet samples = SampleSet(541).with_fingerprint({7, 9});
  Order planned = with_weights({3, 1});
  std::get<Mixture>(planned.kind).schedule = {{512, {1, 1}}, {2048, {0, 1}}};
  MixtureSampler first(samples, planned);
  const ResumeToken token = first.token_after(700);
  // The run's own schedule has other weights in the past, which are ignored.
  Order next = with_weights({1, 1});
  std::get<Mixture>(next.kind).schedule = {{600, {1, 9}}, {5000, {2, 1}}};
  MixtureSampler second(samples, next);
  second.resume(token, kAllow);
  EXPECT_EQ(std::get<Mixture>(second.order().kind).schedule,
            (std::vector<Mixture::Change>{{512, {1, 1}}, {768, {1, 9}}, {5120, {2, 1}}}));
  EXPECT_EQ(std::get<Mixture>(second.order().kind).parts[0].weight, 3);
}

TEST(MixtureScheduleTest, OnlyMixturesWithAScheduleNeedAVersion4Token) {
  const SampleSet samples = SampleSet(541).with_fingerprint({7, 9});
  MixtureSampler constant(samples, with_weights({3, 1}));
  EXPECT_THAT(constant.token_after(5).to_text(), testing::StartsWith("sw2."));
  Order planned = with_weights({3, 1});
  std::get<Mixture>(planned.kind).schedule = {{512, {1, 1}}};
  ResumeToken token = MixtureSampler(samples, planned).token_after(5);
  EXPECT_THAT(token.to_text(), testing::StartsWith("sw4."));
  EXPECT_EQ(ResumeToken::from_text(token.to_text()), token);
  token.batches = {"rule", 3};
  EXPECT_EQ(ResumeToken::from_text(token.to_text()), token);
  ResumeToken stage = constant.token_after(5);
  stage.history.push_back({.end_epoch = 1, .fingerprint = {}, .spec = token.spec});
  EXPECT_THAT(stage.to_text(), testing::StartsWith("sw4."));
  EXPECT_EQ(ResumeToken::from_text(stage.to_text()), stage);
}

TEST(ProgressTest, OrdersOfOneDataSetAndOrdersWithoutPasses) {
  const auto progress = [](const Order& order, std::uint64_t epoch, std::uint64_t steps) {
    const auto sampler = make_sampler(10, order);
    sampler->set_epoch(epoch);
    return sampler->token_after(steps).progress();
  };
  using All = std::vector<ResumeToken::Progress>;
  EXPECT_EQ(progress({}, 3, 4), (All{{10, 34, 3, 4}}));
  EXPECT_EQ(progress({}, 3, 10), (All{{10, 40, 4, 0}}));
  EXPECT_EQ(progress({.epoch_size = 4}, 3, 1), (All{{10, 13, 1, 3}}));
  EXPECT_EQ(progress({.kind = Resampled{}}, 3, 1), All{});
  EXPECT_EQ(progress({.kind = Wids{}}, 3, 1), All{});
}

}  // namespace
}  // namespace shardwise
