#include "shardwise/order/epoch_audit.h"

#include "order/order_test_support.h"

namespace shardwise {
namespace {

using test::Samples;

constexpr Hash128 kFingerprint{11, 22};

EpochAudit audit_of(const Samples& samples) {
  EpochAudit audit(kFingerprint);
  audit.add(samples);
  return audit;
}

TEST(EpochAuditTest, ProvesAnEpochInAnyOrder) {
  Samples samples = test::first_numbers(20000);
  std::shuffle(samples.begin(), samples.end(), std::mt19937_64(1));
  const EpochAudit::Expectation expected(20000, kFingerprint);
  const EpochAudit audit = audit_of(samples);
  EXPECT_TRUE(audit.verdict(expected).proven);
  EXPECT_EQ(audit.verdict(expected).text(3), "epoch 3: 20,000 samples, each exactly once: proven");
  EXPECT_NO_THROW(audit.prove(expected, 3));
}

// docs/formats/epoch-proof.md, version 1.
TEST(EpochAuditTest, GoldenSumNeverChanges) {
  const EpochAudit::Sum sum = EpochAudit::Sum::of_range(0, 1000, kFingerprint);
  EXPECT_EQ(sum.count, 1000U);
  EXPECT_EQ(to_string(sum.hashes), "85401c081a66200e5eb6177557a9ebd1");
  EXPECT_EQ(sum.numbers, (Hash128{0, 499500}));
}

TEST(EpochAuditTest, PartsAddUp) {
  const EpochAudit::Sum all = EpochAudit::Sum::of_range(0, 1000, kFingerprint);
  EpochAudit::Sum parts = EpochAudit::Sum::of_range(0, 300, kFingerprint);
  parts += EpochAudit::Sum::of_range(300, 1000, kFingerprint);
  EXPECT_EQ(parts, all);
  parts -= EpochAudit::Sum::of_range(500, 1000, kFingerprint);
  EXPECT_EQ(parts, EpochAudit::Sum::of(test::first_numbers(500), kFingerprint));
  EpochAudit first = audit_of({0, 2, 4});
  first.merge(audit_of({3, 1}));
  first.merge(EpochAudit::Sum::of(Samples{5}, kFingerprint));
  EXPECT_TRUE(first.verdict(EpochAudit::Expectation(6, kFingerprint)).proven);
  first.reset();
  EXPECT_EQ(first.sum(), EpochAudit::Sum{});
}

TEST(EpochAuditTest, AnOrdinarySumAllReduceMergesRanks) {
  std::mt19937_64 random(5);
  for (const std::size_t world : {1U, 2U, 7U, 1000U}) {
    std::array<std::int64_t, EpochAudit::Sum::kNumWords> reduced{};
    EpochAudit::Sum expected;
    for (std::size_t rank = 0; rank < world; ++rank) {
      // Each rank gets a large random sum, so that every limb has a carry.
      const EpochAudit::Sum sum{random() >> 12, {random(), random()}, {random(), random()}};
      expected += sum;
      const auto words = sum.to_words();
      for (std::size_t i = 0; i < words.size(); ++i) reduced[i] += words[i];
    }
    EXPECT_EQ(EpochAudit::Sum::from_words(reduced), expected) << world;
  }
  std::array<std::int64_t, EpochAudit::Sum::kNumWords> negative{};
  negative[3] = -1;
  EXPECT_THAT(test::error_text([&] { EpochAudit::Sum::from_words(negative); }),
              testing::HasSubstr("a word is negative"));
}

TEST(EpochAuditTest, NamesTheOneSampleThatExplainsTheSums) {
  const EpochAudit::Expectation expected(1000, kFingerprint);
  Samples samples = test::first_numbers(1000);
  samples.erase(samples.begin() + 17);
  EXPECT_EQ(audit_of(samples).verdict(expected).text(1),
            "epoch 1: not exact: 999 deliveries, 1,000 expected: 1 missing, 0 repeated; "
            "missing: 17");
  samples.push_back(600);
  EXPECT_EQ(audit_of(samples).verdict(expected).text(1),
            "epoch 1: not exact: 1,000 deliveries, 1,000 expected: 1 missing, 1 repeated; "
            "missing: 17; repeated: 600");
  samples.push_back(17);
  EXPECT_EQ(audit_of(samples).verdict(expected).text(1),
            "epoch 1: not exact: 1,001 deliveries, 1,000 expected: 0 missing, 1 repeated; "
            "repeated: 600");
}

TEST(EpochAuditTest, SaysAtLeastHowManyWhereSumsTellNoMore) {
  const EpochAudit::Expectation expected(1000, kFingerprint);
  Samples samples = test::first_numbers(990);
  EXPECT_EQ(audit_of(samples).verdict(expected).text(0),
            "epoch 0: not exact: 990 deliveries, 1,000 expected: at least 10 missing, 0 repeated; "
            "a debug audit lists them");
  samples.insert(samples.end(), 10, 3);
  EXPECT_THAT(test::error_text([&] { audit_of(samples).prove(expected, 0); }),
              testing::HasSubstr("at least 1 missing, 1 repeated"));
  EXPECT_EQ(test::error_code([&] { audit_of(samples).prove(expected, 0); }), ErrorCode::kNotExact);
}

TEST(EpochAuditTest, DebugModeSaysExactlyWhich) {
  EpochAudit audit = EpochAudit::with_debug(100, kFingerprint);
  Samples samples = test::first_numbers(95);
  samples.insert(samples.end(), {3, 3, 7, 1000});
  audit.add(samples);
  const EpochAudit::Expectation expected(100, kFingerprint);
  const EpochAudit::Verdict verdict = audit.verdict(expected);
  EXPECT_FALSE(verdict.proven);
  EXPECT_TRUE(verdict.complete);
  EXPECT_EQ(verdict.num_missing, 5U);
  EXPECT_EQ(verdict.num_repeated, 3U);
  EXPECT_EQ(verdict.num_unknown, 1U);
  EXPECT_THAT(verdict.repeated, testing::ElementsAre(EpochAudit::Verdict::Count{3, 2},
                                                     EpochAudit::Verdict::Count{7, 1}));
  EXPECT_EQ(verdict.text(2),
            "epoch 2: not exact: 99 deliveries, 100 expected: 5 missing, 3 repeated, 1 with "
            "unknown sample numbers; missing: 95, 96, 97, 98, 99; repeated: 3 (2 times), 7");
}

TEST(EpochAuditTest, DebugModeMergesRanksByReducingCountsToo) {
  EpochAudit first = EpochAudit::with_debug(10, kFingerprint);
  EpochAudit second = EpochAudit::with_debug(10, kFingerprint);
  first.add(Samples{0, 1, 2, 3});
  second.add(Samples{4, 5, 6, 6});
  EpochAudit::Sum sum = first.sum();
  sum += second.sum();
  first.set_sum(sum);
  for (std::size_t i = 0; i < 10; ++i) first.counts()[i] += second.counts()[i];
  const EpochAudit::Verdict verdict = first.verdict(EpochAudit::Expectation(10, kFingerprint));
  EXPECT_EQ(verdict.num_missing, 3U);
  EXPECT_EQ(verdict.num_repeated, 1U);
}

TEST(EpochAuditTest, LongListsAreCutShort) {
  EpochAudit audit = EpochAudit::with_debug(50, kFingerprint);
  EXPECT_THAT(audit.verdict(EpochAudit::Expectation(50, kFingerprint)).text(0),
              testing::EndsWith("missing: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 40 more"));
}

TEST(EpochAuditTest, ExpectsWhatTailsAndSkipListsMakeOfTheEpoch) {
  EpochAudit::Expectation expected(10, kFingerprint);
  expected.leave_out(4);
  expected.repeat(0);
  expected.repeat(0);
  EpochAudit audit = audit_of({0, 0, 0, 1, 2, 3, 5, 6, 7, 8, 9});
  EXPECT_EQ(audit.verdict(expected).text(0),
            "epoch 0: 9 samples, each exactly once, 2 repeated on purpose, 1 excluded on purpose: "
            "proven");
  EXPECT_EQ(test::error_code([&] { expected.leave_out(4); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { expected.repeat(10); }), ErrorCode::kOutOfRange);
  const EpochAudit::Expectation subset =
      EpochAudit::Expectation::of(Samples{2, 5, 9}, 10, kFingerprint);
  EXPECT_TRUE(audit_of({9, 2, 5}).verdict(subset).proven);
  EXPECT_FALSE(audit_of({9, 2, 6}).verdict(subset).proven);
}

TEST(EpochAuditTest, OfNoSampleNothingIsProven) {
  const EpochAudit::Expectation nothing(0, kFingerprint);
  const EpochAudit audit = audit_of({});
  EXPECT_FALSE(audit.verdict(nothing).proven);
  EXPECT_EQ(audit.verdict(nothing).text(3), "epoch 3: no samples, so nothing is proven");
  EXPECT_EQ(test::error_code([&] { audit.prove(nothing, 3); }), ErrorCode::kNotExact);
  EpochAudit::Expectation all_left_out(2, kFingerprint);
  all_left_out.leave_out(Samples{0, 1});
  EXPECT_EQ(audit.verdict(all_left_out).text(0),
            "epoch 0: 0 samples, each exactly once, 2 excluded on purpose: proven");
  EXPECT_FALSE(audit.verdict(EpochAudit::Expectation::as_ordered(0, kFingerprint)).proven);
}

TEST(EpochAuditTest, ManyAreExpectedOrLeftOutAtOnce) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 300; ++trial) {
    const std::uint64_t n = 1 + random() % 40;
    EpochAudit::Expectation at_once(n, kFingerprint);
    EpochAudit::Expectation one_by_one(n, kFingerprint);
    std::vector<std::uint64_t> times(n, 1);
    for (int round = 0; round < 4; ++round) {
      Samples samples(random() % 30);
      for (std::uint64_t& sample : samples) sample = random() % n;
      std::vector<std::uint64_t> changed = times;
      bool is_possible = true;
      for (const std::uint64_t sample : samples) {
        if (round % 2 == 0) {
          ++changed[sample];
        } else {
          is_possible = is_possible && changed[sample]-- > 0;
        }
      }
      if (round % 2 == 0) {
        at_once.repeat(samples);
        for (const std::uint64_t sample : samples) one_by_one.repeat(sample);
      } else if (is_possible) {
        at_once.leave_out(samples);
        for (const std::uint64_t sample : samples) one_by_one.leave_out(sample);
      } else {
        ASSERT_EQ(test::error_code([&] { at_once.leave_out(samples); }),
                  ErrorCode::kInvalidArgument);
        changed = times;  // the failed call must not have changed the expectation
      }
      times = changed;
      ASSERT_EQ(at_once.sum(), one_by_one.sum()) << trial;
      ASSERT_EQ(at_once.num_repeated(), one_by_one.num_repeated()) << trial;
      ASSERT_EQ(at_once.num_left_out(), one_by_one.num_left_out()) << trial;
      std::uint64_t total = 0;
      std::uint64_t left_out = 0;
      for (std::uint64_t sample = 0; sample < n; ++sample) {
        ASSERT_EQ(at_once.times(sample), times[sample]) << trial;
        total += times[sample];
        left_out += times[sample] == 0;
      }
      ASSERT_EQ(at_once.sum().count, total) << trial;
      ASSERT_EQ(at_once.num_left_out(), left_out) << trial;
      ASSERT_EQ(at_once.num_repeated(), total - (n - left_out)) << trial;
    }
  }
  EpochAudit::Expectation expected(10, kFingerprint);
  const EpochAudit::Sum before = expected.sum();
  EXPECT_EQ(test::error_code([&] { expected.repeat(Samples{1, 2, 10}); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(test::error_code([&] { expected.leave_out(Samples{3, 11}); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(test::error_code([&] {
              expected.leave_out(Samples{4, 4});
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(expected.sum(), before);
  EXPECT_EQ(expected.times(4), 1U);
}

TEST(EpochAuditTest, AnOrderThatIsNotExactIsProvenToBeAsOrdered) {
  EpochAudit::Expectation expected = EpochAudit::Expectation::as_ordered(100, kFingerprint);
  expected.repeat(Samples{7, 7, 99});
  expected.repeat(7);
  expected.repeat(3);
  expected.leave_out(99);
  EXPECT_FALSE(expected.knows_times());
  EXPECT_EQ(expected.sum(), EpochAudit::Sum::of(Samples{7, 7, 7, 3}, kFingerprint));
  EXPECT_EQ(audit_of({7, 3, 7, 7}).verdict(expected).text(5),
            "epoch 5: 4 samples as ordered: proven");
  expected.set_claim("drawn from a hat, as ordered");
  EXPECT_EQ(audit_of({7, 3, 7, 7}).verdict(expected).text(5),
            "epoch 5: 4 samples drawn from a hat, as ordered: proven");
  EXPECT_EQ(audit_of({7, 3, 7}).verdict(expected).text(5),
            "epoch 5: not as ordered: 3 deliveries, 4 expected: at least 1 missing, 0 repeated; "
            "a debug audit lists them");
  // This expectation does not store how often each sample is expected, so debug mode cannot name
  // samples.
  EpochAudit debug = EpochAudit::with_debug(100, kFingerprint);
  debug.add(Samples{7, 3, 7, 8});
  const EpochAudit::Verdict verdict = debug.verdict(expected);
  EXPECT_FALSE(verdict.proven);
  EXPECT_FALSE(verdict.complete);
  EXPECT_EQ(verdict.num_missing, 1U);
  EXPECT_EQ(verdict.num_repeated, 1U);
  EXPECT_EQ(test::error_code([&] { expected.repeat(100); }), ErrorCode::kOutOfRange);
}

TEST(EpochAuditTest, RefusesWhatBelongsToAnotherDataSet) {
  EpochAudit audit(kFingerprint);
  EXPECT_EQ(test::error_code([&] { audit.merge(EpochAudit()); }), ErrorCode::kMismatch);
  EXPECT_EQ(test::error_code([&] { audit.prove(EpochAudit::Expectation(1, {}), 0); }),
            ErrorCode::kMismatch);
  EXPECT_NE(EpochAudit::Sum::of_range(0, 10, {}), EpochAudit::Sum::of_range(0, 10, kFingerprint));
}

TEST(EpochAuditTest, NoneOfAMillionMutationsIsUnnoticed) {
  const std::uint64_t seed = 20240;
  std::mt19937_64 random(seed);
  const std::uint64_t n = 997;
  const EpochAudit::Sum all = EpochAudit::Sum::of_range(0, n, kFingerprint);
  std::size_t unnoticed = 0;
  for (int trial = 0; trial < 1'000'000; ++trial) {
    EpochAudit::Sum sum = all;
    const auto take = [&](std::uint64_t s) { sum -= EpochAudit::Sum::of({&s, 1}, kFingerprint); };
    const auto give = [&](std::uint64_t s) { sum += EpochAudit::Sum::of({&s, 1}, kFingerprint); };
    // Some deliveries are dropped, repeated, or replaced by other samples.
    const std::uint64_t changes = 1 + random() % 4;
    std::vector<int> net(n);
    for (std::uint64_t i = 0; i < changes; ++i) {
      const std::uint64_t x = random() % n;
      const std::uint64_t y = random() % n;
      const std::uint64_t kind = random() % 3;
      if (kind != 1) {
        take(x);
        --net[x];
      }
      if (kind != 0) {
        give(y);
        ++net[y];
      }
    }
    const bool changed = std::any_of(net.begin(), net.end(), [](int c) { return c != 0; });
    if (changed == (sum == all)) ++unnoticed;
  }
  EXPECT_EQ(unnoticed, 0U) << "seed " << seed;
}

}  // namespace
}  // namespace shardwise
