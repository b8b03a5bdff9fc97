#include "shardwise/loader/loader.h"

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory_resource>
#include <random>
#include <set>
#include <thread>

#include "loader/thread_ranks.h"
#include "support/dataset.h"

namespace shardwise {
namespace {

using test::on_ranks;
using test::ThreadRanks;
using testing::AllOf;
using testing::HasSubstr;

/// Sample i has the text "i" repeated i % 7 times, and the number i; `broken` has no number.
Dataset make_numbers(const test::TempDir& dir, std::size_t count,
                     const std::set<std::size_t>& broken = {}) {
  std::vector<test::Fields> samples;
  for (std::size_t i = 0; i < count; ++i) {
    std::string text;
    for (std::size_t k = 0; k < i % 7; ++k) text += std::to_string(i);
    samples.push_back({{"txt", text}, {"cls", broken.contains(i) ? "?" : std::to_string(i)}});
  }
  return test::make_dataset(dir, "numbers", samples, 10);
}

std::vector<Column> all_columns() {
  return {columns::text("txt"), columns::integer("cls"), columns::key(),
          columns::function("random", DType::kUInt64, {2},
                            [](const Sample&, const Hash128& random, columns::Row& row) {
                              row.values<std::uint64_t>()[0] = random.high;
                              row.values<std::uint64_t>()[1] = random.low;
                            })};
}

/// What a batch says of each of its samples.
std::map<std::int64_t, std::string> rows_of(const Batch& batch) {
  std::map<std::int64_t, std::string> rows;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    std::string text;
    for (const Batch::Array& array : batch.arrays()) {
      text += array.name() + "=" + std::string(array.text(i)) + ";";
    }
    EXPECT_TRUE(rows.emplace(batch.samples()[i], text).second);
    EXPECT_EQ(batch["cls"].values<std::int64_t>()[i], batch.samples()[i]);
  }
  return rows;
}

TEST(LoaderTest, AnEpochHasEachSampleOnceAndIsProven) {
  const test::TempDir dir;
  Loader loader(make_numbers(dir, 95),
                {.columns = all_columns(), .order = {.seed = 3}, .batch_size = 8});
  std::set<std::uint64_t> epochs;
  for (auto epoch : loader.epochs(2)) {
    epochs.insert(epoch.number());
    EXPECT_EQ(epoch.steps(), 12u);
    std::map<std::int64_t, std::string> rows;
    for (const Batch& batch : epoch) rows.merge(rows_of(batch));
    EXPECT_EQ(rows.size(), 95u);
    EXPECT_THAT(epoch.prove(), HasSubstr("95 samples, each exactly once: proven"));
  }
  EXPECT_THAT(epochs, testing::ElementsAre(0u, 1u));
}

TEST(LoaderTest, TheSamplesAreTheSameForAnyThreadsBatchSizeAndWorld) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 60);
  std::map<std::int64_t, std::string> expected;
  for (const unsigned threads : {0u, 1u, 2u, 7u}) {
    for (const std::uint64_t batch_size : {1u, 5u, 64u}) {
      for (const std::uint64_t world : {1u, 3u}) {
        test::ThreadRanks ranks(world);
        std::mutex mutex;
        std::map<std::int64_t, std::string> rows;
        test::on_ranks(world, [&](std::uint64_t rank) {
          Loader loader(data,
                        {.columns = all_columns(),
                         .order = {.seed = 5},
                         .batch_size = batch_size,
                         .threads = threads},
                        ranks.rank(rank));
          loader.set_epoch(4);
          while (const auto batch = loader.next()) {
            const std::lock_guard lock(mutex);
            rows.merge(rows_of(*batch));
          }
          EXPECT_THAT(loader.epoch().prove(), HasSubstr("proven"));
        });
        EXPECT_EQ(rows.size(), 60u);
        if (expected.empty()) expected = rows;
        EXPECT_EQ(rows, expected) << threads << " threads, " << batch_size << ", " << world;
      }
    }
  }
}

TEST(LoaderTest, ResumedAtEveryStepAndOnAnotherWorldTheSamplesAreTheSame) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 29);
  const Loader::Options options{
      .columns = all_columns(), .order = {.seed = 8}, .batch_size = 4, .threads = 2};
  std::map<std::int64_t, std::string> expected;
  Loader whole(data, options);
  while (const auto batch = whole.next()) expected.merge(rows_of(*batch));
  for (std::uint64_t steps = 0; steps <= 7; ++steps) {
    std::map<std::int64_t, std::string> rows;
    Loader first(data, options);
    for (std::uint64_t i = 0; i < steps; ++i) rows.merge(rows_of(*first.next()));
    const ResumeToken token = ResumeToken::from_text(first.state().to_text());
    test::ThreadRanks ranks(2);
    std::mutex mutex;
    test::on_ranks(2, [&](std::uint64_t rank) {
      Loader::Options other = options;
      other.batch_size = 3;
      other.threads = 1;
      Loader second(data, other, ranks.rank(rank));
      second.restore(token);
      while (const auto batch = second.next()) {
        const std::lock_guard lock(mutex);
        rows.merge(rows_of(*batch));
      }
      EXPECT_THAT(second.epoch().prove(), HasSubstr("29 samples, each exactly once: proven"));
    });
    EXPECT_EQ(rows, expected) << "after " << steps << " steps";
  }
}

/// What state() and prove() of two ranks say, by rank, with these options and steps.
std::vector<std::string> what_two_ranks_say(const std::array<Dataset, 2>& data,
                                            const std::array<Loader::Options, 2>& options,
                                            const std::array<std::uint64_t, 2>& epochs,
                                            const std::array<int, 2>& steps, bool is_proof) {
  ThreadRanks ranks(2);
  std::vector<std::string> said(2);
  on_ranks(2, [&](std::uint64_t rank) {
    Loader loader(data[rank], options[rank], ranks.rank(rank));
    loader.set_epoch(epochs[rank]);
    for (int step = 0; step < steps[rank]; ++step) loader.next();
    try {
      said[rank] = is_proof ? loader.prove() : loader.state().to_text();
    } catch (const Error& error) {
      said[rank] = std::string(error_code_name(error.code())) + ": " + error.what();
    }
  });
  return said;
}

TEST(LoaderTest, ABatchSizeDoesNotCountBesideAGlobalOne) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 10);
  for (const std::uint64_t batch_size : {std::uint64_t{0}, std::uint64_t{32}, ~std::uint64_t{0}}) {
    Loader loader(
        data,
        {.columns = {columns::integer("cls")}, .batch_size = batch_size, .global_batch_size = 4});
    std::vector<std::size_t> sizes;
    while (const auto batch = loader.next()) sizes.push_back(batch->size());
    EXPECT_THAT(sizes, testing::ElementsAre(4u, 4u, 2u));
    EXPECT_THAT(loader.prove(), HasSubstr("proven"));
  }
  EXPECT_THAT(test::error_text([&] {
                Loader loader(data, {.columns = {columns::integer("cls")}, .batch_size = 0});
              }),
              HasSubstr("the batch size is out of range: 0"));
}

TEST(LoaderTest, RanksThatDifferAreToldSoOnAllOfThem) {
  const test::TempDir dir;
  const test::TempDir other_dir;
  const Dataset data = make_numbers(dir, 60);
  const Dataset other = make_numbers(other_dir, 61);
  const Loader::Options usual{.columns = all_columns(), .batch_size = 5, .threads = 0};
  const auto with = [&](auto&& change) {
    Loader::Options options = usual;
    change(options);
    return options;
  };
  struct Case {
    std::string differing;
    Dataset data;
    Loader::Options options;
    std::uint64_t epoch = 0;
  };
  const std::vector<Case> cases{
      {"batch size", data, with([](auto& o) { o.batch_size = 6; })},
      {"batch size", data, with([](auto& o) { o.global_batch_size = 10; })},
      {"batch size", data, with([](auto& o) { o.by_length = {.field = "txt"}; })},
      {"order", data, with([](auto& o) { o.order.seed = 1; })},
      {"order", data, with([](auto& o) { o.order.tail = Order::Tail::kDrop; })},
      {"point from which it goes on", data, with([](auto& o) { o.order.skip.add_sample(4); })},
      {"number of replicas", data, with([](auto& o) { o.replicas = 2; })},
      {"data set, order", other, usual},  // it has 61 samples
      {"epoch", data, usual, 3},
  };
  for (const Case& one : cases) {
    for (const bool is_proof : {false, true}) {
      const auto said = what_two_ranks_say({data, one.data}, {usual, one.options}, {0, one.epoch},
                                           {2, 2}, is_proof);
      for (const std::string& text : said) {
        EXPECT_THAT(text, testing::StartsWith("Mismatch: the loaders of the ranks differ: " +
                                              one.differing + "; give all ranks the same"));
      }
    }
  }
  // A state after different numbers of steps would lose samples; a proof says what is missing.
  for (const std::string& text :
       what_two_ranks_say({data, data}, {usual, usual}, {0, 0}, {2, 3}, false)) {
    EXPECT_THAT(text, HasSubstr("the loaders of the ranks differ: number of steps taken; "));
  }
  for (const std::string& text :
       what_two_ranks_say({data, data}, {usual, usual}, {0, 0}, {6, 5}, true)) {
    EXPECT_THAT(text, testing::StartsWith("NotExact: "));
  }
  const auto same = what_two_ranks_say({data, data}, {usual, with([](auto& o) { o.threads = 2; })},
                                       {1, 1}, {4, 4}, false);
  EXPECT_EQ(same[0], same[1]);
  EXPECT_EQ(ResumeToken::from_text(same[0]).position, 40u);
}

TEST(LoaderTest, EpochsGoOnWhereEarlierOnesEnded) {
  const test::TempDir dir;
  Loader loader(make_numbers(dir, 12), {.columns = all_columns(), .batch_size = 5});
  const auto walk = [&](auto&& epochs) {
    std::vector<std::uint64_t> numbers;
    for (auto epoch : epochs) {
      std::size_t count = 0;
      for (const Batch& batch : epoch) count += batch.size();
      EXPECT_EQ(count, 12u);
      EXPECT_THAT(epoch.prove(), HasSubstr("epoch " + std::to_string(epoch.number())));
      numbers.push_back(epoch.number());
      if (numbers.size() == 5) break;
    }
    return numbers;
  };
  EXPECT_THAT(walk(loader.epochs(2)), testing::ElementsAre(0u, 1u));
  EXPECT_THAT(walk(loader.epochs(2)), testing::ElementsAre());
  EXPECT_THAT(walk(loader.epochs(4)), testing::ElementsAre(2u, 3u));
  EXPECT_THAT(walk(loader.epochs()), testing::ElementsAre(4u, 5u, 6u, 7u, 8u));
}

TEST(LoaderTest, BadSamplesAreLeftOutListedAndExpectedByTheProof) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 50, {3, 17, 18});
  for (const unsigned threads : {0u, 3u}) {
    Loader loader(data, {.columns = all_columns(),
                         .order = {.seed = 2},
                         .batch_size = 7,
                         .threads = threads,
                         .max_bad = 3});
    std::size_t count = 0;
    while (const auto batch = loader.next()) count += rows_of(*batch).size();
    EXPECT_EQ(count, 47u);
    EXPECT_THAT(loader.epoch().prove(), HasSubstr("proven"));
    const SkipList& bad = loader.bad_samples();
    ASSERT_EQ(bad.samples().size(), 3u);
    EXPECT_THAT(bad.samples().at(17).reason, HasSubstr("whole number"));
    loader.set_epoch(1);
    count = 0;
    while (const auto batch = loader.next()) count += batch->size();
    EXPECT_EQ(count, 47u) << "they are left out from the beginning";
    EXPECT_EQ(loader.state().skip.samples().size(), 3u);

    Loader strict(data, {.columns = all_columns(),
                         .order = {.seed = 2},
                         .batch_size = 7,
                         .threads = threads,
                         .max_bad = 2});
    EXPECT_THAT(test::error_text([&] {
                  while (strict.next()) {
                  }
                }),
                HasSubstr("3 bad samples, more than the 2 that max_bad allows"));
  }
}

TEST(LoaderTest, TheFirstBadRowOfABatchIsItsErrorAndTheRestStillComes) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 40, {12, 14, 19});
  for (const unsigned threads : {0u, 1u, 4u}) {
    Loader loader(data, {.columns = all_columns(),
                         .order = {.kind = Sequential{}},
                         .batch_size = 10,
                         .threads = threads});
    std::vector<std::size_t> sizes;
    for (int step = 0; step < 4; ++step) {
      if (step != 1) {
        sizes.push_back(loader.next()->size());
      } else {
        EXPECT_THAT(test::error_text([&] { loader.next(); }), HasSubstr("s00012"));
      }
    }
    EXPECT_THAT(sizes, testing::ElementsAre(10u, 10u, 10u));
    EXPECT_FALSE(loader.next().has_value());
    EXPECT_EQ(test::error_code([&] { loader.epoch().prove(); }), ErrorCode::kNotExact);
  }
}

TEST(LoaderTest, StopFromAnotherThreadEndsAWaitAndSetEpochGoesOn) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 40);
  for (const unsigned threads : {0u, 1u, 3u}) {
    std::atomic<bool> slow{true};
    std::atomic<int> began{0};
    Loader loader(data,
                  {.columns = {columns::function("f", DType::kInt8, {},
                                                 [&](const Sample&, const Hash128&, columns::Row&) {
                                                   ++began;
                                                   while (slow) std::this_thread::yield();
                                                 })},
                   .batch_size = 10,
                   .threads = threads});
    std::thread stopper([&] {
      while (began == 0) std::this_thread::yield();
      loader.stop();
      loader.stop();
      slow = false;
    });
    EXPECT_EQ(test::error_code([&] {
                while (loader.next()) {
                }
              }),
              ErrorCode::kCancelled);
    stopper.join();
    EXPECT_EQ(test::error_code([&] { loader.next(); }), ErrorCode::kCancelled);
    loader.set_epoch(1);
    std::size_t count = 0;
    while (const auto batch = loader.next()) count += batch->size();
    EXPECT_EQ(count, 40u);
    EXPECT_THAT(loader.epoch().prove(), HasSubstr("proven"));
  }
}

TEST(LoaderTest, LeavingAnywhereEndsAtOnce) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 200, {77});
  std::mt19937 random(5);
  for (int run = 0; run < 400; ++run) {
    std::optional<Batch> kept;
    Loader loader(data, {.columns = all_columns(),
                         .order = {.seed = random()},
                         .batch_size = 1 + random() % 9,
                         .threads = static_cast<unsigned>(random() % 4),
                         .max_bad = random() % 2,
                         .prefetch = random() % 5});
    if (random() % 4 == 0) loader.start();
    try {
      for (auto steps = random() % 30; steps > 0; --steps) {
        if (random() % 16 == 0) loader.set_epoch(random() % 5);
        if (random() % 16 == 0) loader.restore(loader.state());
        if (random() % 64 == 0) loader.stop();
        kept = loader.next();
      }
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::kBadField || e.code() == ErrorCode::kCancelled ||
                  e.code() == ErrorCode::kNotExact)
          << e.what();
    }
  }
}

TEST(LoaderTest, MemoryIsUsedAgainAndABatchMayOutliveItsLoader) {
  class Counting : public std::pmr::memory_resource {
   public:
    std::atomic<int> taken{0};
    std::atomic<int> held{0};

   private:
    void* do_allocate(std::size_t size, std::size_t alignment) override {
      ++taken;
      ++held;
      return std::pmr::new_delete_resource()->allocate(size, alignment);
    }
    void do_deallocate(void* p, std::size_t size, std::size_t alignment) override {
      --held;
      std::pmr::new_delete_resource()->deallocate(p, size, alignment);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override {
      return this == &other;
    }
  };
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 100);
  const auto memory = std::make_shared<Counting>();
  std::shared_ptr<std::byte> kept;
  std::string text;
  {
    Loader loader(data,
                  {.columns = all_columns(), .batch_size = 4, .threads = 2, .memory = memory});
    for (auto epoch : loader.epochs(20)) {
      for (const Batch& batch : epoch) {
        kept = batch["txt"].memory();
        text = std::string(batch["txt"].text(1));
      }
    }
    EXPECT_LE(memory->taken, 4 * (4 + 3)) << "for 500 batches";
  }
  EXPECT_EQ(memory->held, 1);
  kept.reset();
  EXPECT_EQ(memory->held, 0);
}

TEST(LoaderTest, AnEmptyDataSetHasEpochsWithoutSteps) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 3).subset(std::vector<std::uint64_t>{});
  Loader loader(data, {.columns = all_columns()});
  EXPECT_FALSE(loader.next().has_value());
  EXPECT_THAT(loader.epoch().prove(), HasSubstr("0 samples"));
}

TEST(ReducerTest, GatherGivesTheBytesOfAllRanksInTheirOrder) {
  for (const std::uint64_t world : {1u, 2u, 5u}) {
    test::ThreadRanks ranks(world);
    std::string expected;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      expected += std::string(rank * 3 % 7, static_cast<char>('a' + rank)) + "\xFF";
    }
    test::on_ranks(world, [&](std::uint64_t rank) {
      const auto reducer = ranks.rank(rank);
      for (int again = 0; again < 3; ++again) {
        EXPECT_EQ(
            reducer->gather(std::string(rank * 3 % 7, static_cast<char>('a' + rank)) + "\xFF"),
            expected);
      }
    });
  }
}

}  // namespace
}  // namespace shardwise
