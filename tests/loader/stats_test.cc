#include <atomic>
#include <numeric>
#include <optional>
#include <thread>

#include "loader/load_meter.h"
#include "loader/loader_access.h"
#include "shardwise/loader/loader.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Loader::Stats run_of(unsigned threads, int waited_percent) {
  Loader::Stats stats;
  stats.batches = 100;
  stats.threads = threads;
  stats.prefetch = 4;
  stats.cores = 16;
  stats.elapsed = milliseconds(1000);
  stats.waited = milliseconds(10) * waited_percent;
  return stats;
}

TEST(StatsSummaryTest, NamesTheLimitAndARemedy) {
  using Change = void (*)(Loader::Stats&);
  struct Case {
    unsigned threads;
    int waited_percent;
    Change change;
    const char* limit;
    std::vector<const char*> parts;
  };
  const std::vector<Case> cases = {
      {2,
       0,
       [](Loader::Stats& s) {
         s.elapsed = {};
         s.batches = 0;
       },
       "no batch",
       {"loaded"}},
      {2, 0, [](Loader::Stats& s) { s.elapsed = {}; }, "consumer-bound: ", {"ready 100 %"}},
      {0,
       2,
       [](Loader::Stats& s) { s.decoding = milliseconds(20); },
       "consumer-bound: ",
       {"no threads", "by itself, 2 %"}},
      {2,
       2,
       [](Loader::Stats& s) { s.decoding = milliseconds(900); },
       "consumer-bound: ",
       {"ready 98 %"}},
      {2,
       61,
       [](Loader::Stats& s) {
         s.decoding = milliseconds(1552);
         s.transforming = milliseconds(388);
         s.idle = milliseconds(60);
       },
       "decode-bound: ",
       {"2 threads at 97 %", "80 % of it decoding", "waited 61 %", "threads = 4"}},
      {4,
       20,
       [](Loader::Stats& s) { s.decoding = milliseconds(4000); },
       "decode-bound: ",
       {"4 threads at 100 %", "100 % of it decoding", "waited 20 %", "threads = 5"}},
      {16,
       90,
       [](Loader::Stats& s) { s.decoding = milliseconds(16000); },
       "decode-bound: ",
       {"16 threads at 100 %", "100 % of it decoding", "waited 90 %", "smaller images",
        "ImageDecoding::Scaling::kFast", "all 16 are busy"}},
      {1,
       100,
       [](Loader::Stats& s) { s.transforming = milliseconds(1000); },
       "transform-bound: ",
       {"1 thread at 100 %", "100 % of it transforming", "waited 100 %", "threads = 2"}},
      {2,
       50,
       [](Loader::Stats& s) { s.functions = milliseconds(2000); },
       "function-bound: ",
       {"2 threads at 100 %", "100 % of it in column", "waited 50 %", "threads = 4"}},
      {2,
       50,
       [](Loader::Stats& s) {
         s.collating = milliseconds(800);
         s.planning = milliseconds(300);
         s.reading = milliseconds(900);
       },
       "batch-bound: ",
       {"2 threads at 100 %", "55 % of it putting batches", "waited 50 %", "threads = 4"}},
      {2,
       70,
       [](Loader::Stats& s) {
         s.fetch_threads = 2;
         s.opening = milliseconds(1800);
         s.decoding = milliseconds(200);
       },
       "fetch-bound: ",
       {"2 threads at 100 %", "90 % of it opening shards", "waited 70 %", "fetch_threads = 4",
        "larger cache"}},
      {2,
       70,
       [](Loader::Stats& s) { s.opening = milliseconds(2000); },
       "opening-bound: ",
       {"2 threads at 100 %", "100 % of it opening shards", "waited 70 %", "more samples per shard",
        "Dataset::Options::max_open_shards"}},
      {16,
       70,
       [](Loader::Stats& s) {
         s.reading = milliseconds(16000);
         s.bytes_read = 100'000'000;
         s.sample_times[14] = 1000;
       },
       "read-bound (cold storage): ",
       {"16 threads at 100 %", "100 % of it reading", "waited 70 %", "threads = 32"}},
      {16,
       70,
       [](Loader::Stats& s) {
         s.reading = milliseconds(16000);
         s.bytes_read = 100'000'000'000;
         s.sample_times[0] = 100'000'000;
       },
       "read-bound: ",
       {"16 threads at 100 %", "100 % of it reading", "waited 70 %", "more cores",
        "all 16 are busy"}},
      {4,
       40,
       [](Loader::Stats& s) {
         s.decoding = milliseconds(1600);
         s.idle = milliseconds(2400);
       },
       "prefetch-bound: ",
       {"4 threads at 40 %", "waited 40 %", "prefetch = 8"}},
      {0,
       61,
       [](Loader::Stats& s) { s.decoding = milliseconds(610); },
       "decode-bound: ",
       {"no threads", "by itself, 61 %", "threads = 2"}},
  };
  for (const Case& one : cases) {
    Loader::Stats stats = run_of(one.threads, one.waited_percent);
    one.change(stats);
    EXPECT_THAT(stats.summary(), testing::StartsWith(one.limit));
    for (const char* part : one.parts) EXPECT_THAT(stats.summary(), HasSubstr(part));
  }
}

TEST(StatsSummaryTest, AFewBatchesDoNotTellThatMoreAheadWouldHelp) {
  Loader::Stats stats = run_of(2, 80);
  stats.batches = 3;
  stats.decoding = milliseconds(200);
  stats.idle = milliseconds(1800);
  EXPECT_THAT(stats.summary(), testing::StartsWith("decode-bound: 2 threads at 10 %"));
}

TEST(SampleTimesTest, BucketsArePowersOfTwoOfMicroseconds) {
  using std::chrono::nanoseconds;
  EXPECT_EQ(detail::sample_time_bucket(nanoseconds(0)), 0u);
  EXPECT_EQ(detail::sample_time_bucket(nanoseconds(999)), 0u);
  EXPECT_EQ(detail::sample_time_bucket(nanoseconds(1000)), 1u);
  EXPECT_EQ(detail::sample_time_bucket(nanoseconds(1999)), 1u);
  EXPECT_EQ(detail::sample_time_bucket(nanoseconds(2000)), 2u);
  EXPECT_EQ(detail::sample_time_bucket(milliseconds(1)), 10u);
  EXPECT_EQ(detail::sample_time_bucket(std::chrono::hours(24)), 31u);
}

std::uint64_t sum(const std::array<std::uint64_t, 32>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

Dataset make_data(const test::TempDir& dir, std::size_t count, std::size_t broken) {
  std::vector<test::Fields> samples;
  const std::string image = test::encode_jpeg(test::test_picture(200, 150));
  for (std::size_t i = 0; i < count; ++i) {
    samples.push_back({{"jpg", i < broken ? "broken" : image}, {"txt", "twelve bytes"}});
  }
  return test::make_dataset(dir, "stats", samples, 10);
}

void load_all(Loader& loader) {
  while (loader.next()) {
  }
}

TEST(LoaderStatsTest, CountWhatWasHandedOutOverAllEpochs) {
  const test::TempDir dir;
  make_data(dir, 40, 0);
  for (const unsigned threads : {0u, 1u, 3u}) {
    Loader loader(Dataset::open(dir / "stats.idx"),
                  {.columns = {columns::text("txt")}, .batch_size = 8, .threads = threads});
    EXPECT_EQ(loader.stats().summary(), "no batch was loaded yet");
    for (auto epoch : loader.epochs(2)) {
      for (const Batch& batch : epoch) EXPECT_EQ(batch.size(), 8u);
    }
    const Loader::Stats stats = loader.stats();
    EXPECT_EQ(stats.batches, 10u);
    EXPECT_EQ(stats.samples, 80u);
    EXPECT_EQ(stats.bad_samples, 0u);
    EXPECT_EQ(stats.bytes_made, 80u * 12);
    EXPECT_EQ(stats.bytes_read, 80u * 12);
    EXPECT_EQ(sum(stats.sample_times), 80u);
    EXPECT_GT(stats.opening.count(), 0);
    EXPECT_GT(stats.reading.count(), 0);
    EXPECT_GT(stats.planning.count(), 0);
    EXPECT_GT(stats.collating.count(), 0);
    EXPECT_EQ(stats.decoding.count(), 0);
    EXPECT_EQ(stats.functions.count(), 0);
    EXPECT_GE(stats.elapsed, stats.waited);
    EXPECT_EQ(stats.threads, threads);
    EXPECT_EQ(stats.prefetch, threads == 0 ? 1u : 2u * threads);
    EXPECT_GE(stats.cores, 1u);
    EXPECT_THAT(stats.slowest_sample, HasSubstr("stats-"));
    if (threads == 0) {
      EXPECT_GT(stats.waited.count(), 0);
      EXPECT_EQ(stats.idle.count(), 0);
      EXPECT_EQ(stats.batches_ready, 0u);
      EXPECT_EQ(stats.mean_ready, 0);
    }
  }
}

TEST(LoaderStatsTest, ImagesAreDecodedAndTransformedAndBadOnesAreCounted) {
  const test::TempDir dir;
  const Dataset data = make_data(dir, 20, 3);
  Loader loader(
      data,
      {.columns = {columns::image("jpg", {.resize = {32, 32}})}, .batch_size = 5, .max_bad = 3});
  load_all(loader);
  const Loader::Stats stats = loader.stats();
  EXPECT_EQ(stats.samples, 17u);
  EXPECT_EQ(stats.bad_samples, 3u);
  EXPECT_EQ(stats.bytes_made, 17u * 32 * 32 * 3);
  EXPECT_EQ(stats.bytes_read, 17 * data[5].copy("jpg").size() + 3 * 6);
  EXPECT_EQ(sum(stats.sample_times), 20u);
  EXPECT_GT(stats.decoding.count(), 0);
  EXPECT_GT(stats.transforming.count(), 0);
}

TEST(LoaderStatsTest, TheSlowestSampleIsNamed) {
  const test::TempDir dir;
  const Dataset data = make_data(dir, 12, 0);
  for (const unsigned threads : {0u, 1u}) {
    std::optional<Loader> loader;
    const auto slow = columns::function(
        "slow", DType::kUInt8, {1}, [&](const Sample& sample, const Hash128&, columns::Row& row) {
          row.values<std::uint8_t>()[0] = 0;
          if (sample.key() != "s00011") return;
          // The last sample takes longer than all samples before.
          const auto slowest = loader->stats().slowest_time + milliseconds(20);
          const auto end = std::chrono::steady_clock::now() + slowest;
          while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
        });
    loader.emplace(data, Loader::Options{.columns = {slow},
                                         .order = {.kind = Sequential{}},
                                         .batch_size = 4,
                                         .threads = threads});
    load_all(*loader);
    const Loader::Stats stats = loader->stats();
    EXPECT_GE(stats.slowest_time, milliseconds(20));
    EXPECT_GE(stats.functions, milliseconds(20));
    EXPECT_THAT(stats.slowest_sample,
                testing::AllOf(HasSubstr("stats-1.tar"), HasSubstr("s00011")));
  }
}

TEST(LoaderStatsTest, BatchesThatWereReadyAreTold) {
  const test::TempDir dir;
  const Dataset data = make_data(dir, 40, 0);
  std::atomic<int> made = 0;
  const auto counted = columns::function("n", DType::kUInt8, {1},
                                         [&](const Sample&, const Hash128&, columns::Row& row) {
                                           row.values<std::uint8_t>()[0] = 0;
                                           ++made;
                                         });
  Loader loader(data, {.columns = {counted}, .batch_size = 8, .threads = 1, .prefetch = 3});
  for (int batches = 0; loader.next(); ++batches) {
    // Wait until the rows of all batches that may be made ahead exist. The last of these batches
    // may not be complete yet.
    const int ahead = std::min(40, 8 * (batches + 4));
    while (made < ahead) std::this_thread::yield();
  }
  const Loader::Stats stats = loader.stats();
  EXPECT_EQ(stats.batches, 5u);
  EXPECT_GE(stats.batches_ready, 3u) << "all but the first, and perhaps the last";
  EXPECT_GE(stats.mean_ready, 1);
  EXPECT_LE(stats.mean_ready, 3);
}

TEST(LoaderStatsTest, TheFirstNextOfAnEpochWaitsForItsThreads) {
  const test::TempDir dir;
  const Dataset data = make_data(dir, 4, 0);
  for (const unsigned threads : {0u, 1u, 4u}) {
    Loader loader(data, {.columns = {columns::key()}, .batch_size = 4, .threads = threads});
    for (auto epoch : loader.epochs(3)) {
      const Loader::Stats before = loader.stats();
      // The first next() counts as a wait, even if a thread has made the batch before.
      for (const Batch& batch : epoch) {
        EXPECT_EQ(batch.size(), 4u);
        const Loader::Stats stats = loader.stats();
        EXPECT_EQ(stats.batches, epoch.number() + 1);
        EXPECT_EQ(stats.batches_ready, 0u);
        EXPECT_GT(stats.waited, before.waited);
        EXPECT_EQ(stats.waited - before.waited, stats.elapsed - before.elapsed);
      }
    }
  }
}

TEST(LoaderStatsTest, WhatTheConsumerDoesWithTheLastBatchIsOfItsTime) {
  using Clock = std::chrono::steady_clock;
  const test::TempDir dir;
  const Dataset data = make_data(dir, 4, 0);
  for (const unsigned threads : {0u, 1u}) {
    Loader loader(data, {.columns = {columns::key()}, .batch_size = 4, .threads = threads});
    std::chrono::nanoseconds used{};
    for (auto epoch : loader.epochs(2)) {
      for (const Batch& batch : epoch) {
        const auto start = Clock::now();
        while (Clock::now() - start < std::chrono::milliseconds(2)) EXPECT_EQ(batch.size(), 4u);
        used += Clock::now() - start;
      }
    }
    const Loader::Stats stats = loader.stats();
    EXPECT_GE(stats.elapsed - stats.waited, used);
    EXPECT_FALSE(loader.next());
    EXPECT_EQ(loader.stats().elapsed, stats.elapsed) << "the epoch had ended";
  }
}

TEST(LoaderStatsTest, AnyThreadMayAskWhileItRuns) {
  const test::TempDir dir;
  Loader loader(make_data(dir, 60, 0),
                {.columns = {columns::image("jpg", {.resize = {8, 8}})}, .batch_size = 2});
  std::atomic<bool> ended = false;
  std::thread watcher([&] {
    std::uint64_t samples = 0;
    while (!ended) {
      const std::uint64_t now = loader.stats().samples;
      EXPECT_GE(now, samples);
      samples = now;
    }
  });
  load_all(loader);
  ended = true;
  watcher.join();
  EXPECT_EQ(loader.stats().samples, 60u);
}

TEST(LoaderEventsTest, RowsAndWaitsAreKeptTheLastOnes) {
  const test::TempDir dir;
  const Dataset data = make_data(dir, 20, 0);
  Loader loader(data, {.columns = {columns::image("jpg", {.resize = {8, 8}})}, .batch_size = 5});
  EXPECT_TRUE(detail::LoaderAccess::events(loader).empty()) << "unless they are asked for";
  detail::LoaderAccess::keep_events(loader, 1000);
  load_all(loader);
  std::uint64_t rows = 0;
  std::uint64_t batches = 0;
  using Kind = detail::TraceEvent::Kind;
  const auto all = detail::LoaderAccess::events(loader);
  for (const detail::TraceEvent& event : all) {
    rows += event.rows;
    if (event.kind == Kind::kCollate) ++batches;
    if (event.kind == Kind::kWait) {
      EXPECT_EQ(event.thread, 0u);
    }
    if (event.kind == Kind::kRows) {
      EXPECT_TRUE(event.thread == 1 || event.thread == 2);
      EXPECT_LE(
          std::accumulate(event.stages.begin(), event.stages.end(), std::chrono::nanoseconds{}),
          event.duration);
    }
  }
  EXPECT_EQ(rows, 20u);
  EXPECT_EQ(batches, 4u);

  detail::LoaderAccess::keep_events(loader, 3);
  loader.set_epoch(1);
  load_all(loader);
  const auto last = detail::LoaderAccess::events(loader);
  ASSERT_EQ(last.size(), 3u);
  for (std::size_t i = 1; i < last.size(); ++i) {
    EXPECT_GE(last[i].begin + last[i].duration, all.back().begin);
  }
}

// ------------------------------------------------------------------------ tolerated damage

/// Returns a truncated JPEG: only part of the last row is missing.
std::string jpeg_that_ends_early(unsigned seed) {
  const std::string jpeg = test::encode_jpeg(test::test_picture(40, 30, seed));
  return jpeg.substr(0, jpeg.size() - 40) + "\xFF\xD9";
}

/// Returns a JPEG whose restart markers are out of order.
std::string jpeg_with_wrong_markers() {
  std::string jpeg = test::encode_jpeg_as(test::test_picture(200, 200), {.restart_interval = 1});
  const std::size_t scan = jpeg.find("\xFF\xDA");
  for (std::size_t at = scan; at + 1 < jpeg.size(); ++at) {
    if (jpeg[at] == '\xFF' && jpeg[at + 1] == '\xD1') jpeg[at + 1] = '\xD5';
  }
  return jpeg;
}

TEST(ForgivenTest, AKindIsATextWithoutItsNumbers) {
  using detail::LoadMeter;
  EXPECT_EQ(LoadMeter::kind_of("JPEG: found marker 0xd5 instead of RST1"),
            "JPEG: found marker 0xN instead of RSTN");
  EXPECT_EQ(LoadMeter::kind_of("PNG: 12 of 34 rows"), "PNG: N of N rows");
  EXPECT_EQ(LoadMeter::kind_of("7"), "N");
  EXPECT_EQ(LoadMeter::kind_of("0x"), "0xN");
  EXPECT_EQ(LoadMeter::kind_of("no number"), "no number");
  EXPECT_EQ(LoadMeter::kind_of(""), "");
}

TEST(ForgivenTest, DamageThatIsForgivenIsCountedByKind) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (unsigned i = 0; i < 30; ++i) {
    samples.push_back({{"jpg", test::encode_jpeg(test::test_picture(40, 30, i + 1))}});
    if (i % 10 == 4) samples.back()[0].second = jpeg_that_ends_early(i + 1);
    if (i == 7) samples.back()[0].second = jpeg_with_wrong_markers();
  }
  const Dataset data = test::make_dataset(dir, "d", samples, 8);
  for (const unsigned threads : {0U, 1U, 7U}) {
    Loader loader(data, {.columns = {columns::image("jpg", {.resize = {8, 8}})},
                         .order = {.seed = 3},
                         .batch_size = 4,
                         .threads = threads});
    for (int epoch = 1; epoch <= 2; ++epoch) {
      while (loader.next()) continue;
      const auto forgiven = loader.stats().forgiven;
      ASSERT_EQ(forgiven.size(), 2U);
      EXPECT_THAT(forgiven[0].kind, testing::AllOf(HasSubstr("JPEG: Corrupt"),
                                                   HasSubstr("marker 0xN"), HasSubstr("RSTN")));
      EXPECT_EQ(forgiven[0].images, static_cast<unsigned>(epoch));
      EXPECT_THAT(forgiven[0].first_sample, HasSubstr("sample 7 ('s00007') in shard"));
      EXPECT_THAT(forgiven[1].kind,
                  testing::AllOf(HasSubstr("JPEG: Corrupt"), HasSubstr("premature end")));
      EXPECT_EQ(forgiven[1].images, 3U * static_cast<unsigned>(epoch));
      EXPECT_THAT(forgiven[1].first_sample, HasSubstr("sample 4 ('s00004') in shard"));
      EXPECT_THAT(forgiven[1].first_sample, HasSubstr("d-0.tar"));
      if (epoch == 1) loader.set_epoch(1);
    }
  }
}

TEST(ForgivenTest, NothingIsForgivenWhereItIsStrictOrWhole) {
  const test::TempDir dir;
  const Dataset data =
      test::make_dataset(dir, "d",
                         {{{"jpg", jpeg_that_ends_early(1)}},
                          {{"jpg", test::encode_jpeg(test::test_picture(40, 30))}}});
  Loader loader(
      data,
      {.columns = {columns::image("jpg", {}, {.strict = true})}, .batch_size = 2, .max_bad = 1});
  EXPECT_EQ(loader.next().value().size(), 1U);
  EXPECT_TRUE(loader.stats().forgiven.empty());
  EXPECT_EQ(loader.stats().bad_samples, 1U);
}

TEST(ForgivenTest, KindsBeyondTheLimitAreOthers) {
  detail::LoadMeter meter{Loader::Stats{}};
  for (std::uint64_t i = 0; i < 100; ++i) {
    detail::StageTimes times;
    const auto letter = [](std::uint64_t n) { return static_cast<char>('a' + n % 10); };
    const std::string name{letter(i / 10), letter(i)};
    times.add_forgiven(
        {{name + " 1", name + " 2"}, 1000 - i, "sample " + std::to_string(1000 - i)});
    meter.add(times, 1, 0);
  }
  const auto forgiven = meter.stats().forgiven;
  ASSERT_EQ(forgiven.size(), 33U);
  EXPECT_EQ(forgiven[0].kind, "aa N");
  EXPECT_EQ(forgiven[0].images, 1U) << "an image counts once";
  EXPECT_EQ(forgiven[32].kind, "others");
  EXPECT_EQ(forgiven[32].images, 68U);
  EXPECT_EQ(forgiven[32].first_sample, "sample 901");
}

class LoaderWaitTest : public testing::TestWithParam<unsigned> {};

TEST_P(LoaderWaitTest, WaitingTakesNoBatch) {
  const test::TempDir dir;
  std::vector<test::Fields> samples(30, {{"txt", "text"}});
  Loader loader(test::make_dataset(dir, "texts", samples, 10),
                {.columns = {columns::text("txt")}, .batch_size = 4, .threads = GetParam()});
  std::uint64_t num_samples = 0;
  for (;;) {
    while (!detail::LoaderAccess::wait(loader, milliseconds(5))) {
    }
    EXPECT_TRUE(detail::LoaderAccess::wait(loader, {}));
    const std::uint64_t left = loader.steps_left();
    const auto batch = loader.next();
    if (!batch) break;
    EXPECT_EQ(loader.steps_left(), left - 1);
    num_samples += batch->size();
  }
  EXPECT_EQ(num_samples, 30);
  EXPECT_THAT(loader.prove(), HasSubstr("30 samples, each exactly once: proven"));
  EXPECT_EQ(loader.stats().batches, 8);
  if (GetParam() == 0) {
    EXPECT_EQ(loader.stats().batches_ready, 0) << "each was made by the consumer";
  }
}

TEST_P(LoaderWaitTest, WaitingCountsAsTimeThatNextWaited) {
  const test::TempDir dir;
  const auto slow = [](const Sample&, const Hash128&, columns::Row& row) {
    const auto end = std::chrono::steady_clock::now() + milliseconds(20);
    while (std::chrono::steady_clock::now() < end) {
    }
    row.values<float>()[0] = 1;
  };
  std::vector<test::Fields> samples(4, {{"txt", "text"}});
  Loader loader(test::make_dataset(dir, "texts", samples, 10),
                {.columns = {columns::function("slow", DType::kFloat32, {}, slow)},
                 .batch_size = 2,
                 .threads = GetParam()});
  for (int batches = 0; batches < 2; ++batches) {
    while (!detail::LoaderAccess::wait(loader, milliseconds(1))) {
    }
    ASSERT_TRUE(loader.next());
    EXPECT_GE(loader.stats().waited, milliseconds(GetParam() == 0 ? 40 : 20));
  }
}

TEST_P(LoaderWaitTest, NothingIsWaitedForAfterStopAndAtTheEnd) {
  const test::TempDir dir;
  std::vector<test::Fields> samples(3, {{"txt", "text"}});
  Loader loader(test::make_dataset(dir, "texts", samples, 10),
                {.columns = {columns::text("txt")}, .batch_size = 3, .threads = GetParam()});
  while (loader.next()) {
  }
  EXPECT_TRUE(detail::LoaderAccess::wait(loader, std::chrono::hours(1)));
  loader.set_epoch(1);
  loader.stop();
  EXPECT_TRUE(detail::LoaderAccess::wait(loader, std::chrono::hours(1)));
  EXPECT_THROW(loader.next(), Cancelled);
}

INSTANTIATE_TEST_SUITE_P(Threads, LoaderWaitTest, testing::Values(0, 1, 3));

}  // namespace
}  // namespace shardwise
