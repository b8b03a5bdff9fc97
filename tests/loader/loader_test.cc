#include "shardwise/loader/loader.h"

#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory_resource>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "loader/agreed_options.h"
#include "loader/thread_ranks.h"
#include "support/dataset.h"
#include "support/sanitizers.h"
#include "support/says.h"

namespace shardwise {
namespace {

using test::on_ranks;
using test::ThreadRanks;
using testing::AllOf;
using testing::HasSubstr;

/// Makes samples: sample i has the text "i" repeated i % 7 times, and the number i. The numbers of
/// `broken` are invalid.
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

/// Returns the results of state() or prove() of two ranks, by rank, with these options and steps.
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
  EXPECT_ERROR(test::Says("batch size", "out of range: 0"),
               Loader(data, {.columns = {columns::integer("cls")}, .batch_size = 0}));
}

TEST(LoaderTest, NumbersThatAreTooLargeAreNamedBeforeMemoryIsTaken) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 10);
  const auto text = [&](const auto& change) {
    Loader::Options options{.columns = {columns::integer("cls")}};
    change(options);
    return test::error_text([&] { Loader loader(data, options); });
  };
  EXPECT_THAT(text([](Loader::Options& o) { o.threads = 1025; }),
              test::Says("threads is 1025", "at most 1024"));
  EXPECT_THAT(text([](Loader::Options& o) { o.prefetch = ~std::size_t{0}; }),
              test::Says("prefetch is 18446744073709551615", "at most 65536"));
  EXPECT_THAT(text([](Loader::Options& o) { o.fetch_threads = 1025; }),
              test::Says("fetch_threads is 1025", "at most 1024"));
}

TEST(LoaderTest, RanksThatDifferAreToldSoOnAllOfThem) {
  const test::TempDir dir;
  const test::TempDir other_dir;
  const Dataset data = make_numbers(dir, 60);
  const Dataset other = make_numbers(other_dir, 61);
  const auto nothing = [](const Sample&, const Hash128&, columns::Row&) {};
  Loader::Options usual{.columns = all_columns(), .batch_size = 5, .threads = 0};
  usual.columns.push_back(columns::function("one", DType::kFloat32, {}, nothing));
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
      {"batch size, global batch size", data, with([](auto& o) { o.global_batch_size = 10; })},
      {"rule of batches by length", data, with([](auto& o) { o.by_length = {.field = "txt"}; })},
      {"rule of batches by group", data, with([](auto& o) { o.by_group = {.expression = "7"}; })},
      {"set of columns", data, with([](auto& o) { std::swap(o.columns[0], o.columns[1]); })},
      {"set of columns", data, with([&](auto& o) {
         o.columns.back() = columns::ragged_function("one", DType::kFloat32, nothing);
       })},
      {"limit of bad samples", data, with([](auto& o) { o.max_bad = 1; })},
      {"limit of expanded bytes", data, with([](auto& o) { o.max_expanded_bytes = 1; })},
      {"order", data, with([](auto& o) { o.order.seed = 1; })},
      {"order", data, with([](auto& o) { o.order.tail = Order::Tail::kDrop; })},
      {"starting point", data, with([](auto& o) { o.order.skip.add_sample(4); })},
      {"number of replicas", data, with([](auto& o) { o.replicas = 2; })},
      {"data set, order", other, usual},  // `other` has 61 samples
      {"epoch", data, usual, 3},
  };
  for (const Case& one : cases) {
    for (const bool is_proof : {false, true}) {
      const auto said = what_two_ranks_say({data, one.data}, {usual, one.options}, {0, one.epoch},
                                           {2, 2}, is_proof);
      for (const std::string& text : said) {
        EXPECT_THAT(text, AllOf(testing::StartsWith("Mismatch: "),
                                HasSubstr("ranks differ: " + one.differing + "; ")));
      }
    }
  }
  // A state after unequal numbers of steps would lose samples. A proof names missing samples.
  for (const std::string& text :
       what_two_ranks_say({data, data}, {usual, usual}, {0, 0}, {2, 3}, false)) {
    EXPECT_THAT(text, test::Says("ranks differ: ", "number of steps taken; "));
  }
  for (const std::string& text :  // also if one rank is at the end
       what_two_ranks_say({data, data}, {usual, usual}, {0, 0}, {6, 5}, false)) {
    EXPECT_THAT(text, test::Says("ranks differ: ", "number of steps taken; "));
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

TEST(LoaderTest, WhatIsRandomOfARowIsComparedAlsoWhereTheOrderDrawsNothing) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 60);
  Loader::Options options{.columns = all_columns(), .order = {.kind = Sequential{}}, .threads = 0};
  Loader::Options other = options;
  other.order.seed = 1;
  for (const auto& text :
       what_two_ranks_say({data, data}, {options, other}, {0, 0}, {1, 1}, false)) {
    EXPECT_THAT(text, HasSubstr("ranks differ: order; "));
  }
}

/// Sets an optional to its value type's default, and returns the value. (clang 14 has no emplace()
/// for these types.)
template <class T>
T& given(std::optional<T>& option) {
  return *(option = T{});
}

/// Returns, for each option that must be equal on all ranks, a set of options in which only this
/// option is not the default.
std::vector<Loader::Options> one_option_each() {
  std::vector<Loader::Options> all;
  const auto add = [&](auto&& change) { change(all.emplace_back()); };
  const auto add_column = [&](const Column& column) {
    add([&](auto& o) { o.columns = {column}; });
  };
  const auto add_image = [&](auto&& change) {
    ImageTransform transform;
    ImageDecoding decoding;
    change(transform, decoding);
    add_column(columns::image("jpg", transform, decoding));
  };
  add([](auto&) {});
  add([](auto& o) { o.batch_size = 7; });
  add([](auto& o) { o.global_batch_size = 7; });
  add([](auto& o) { o.replicas = 2; });
  add([](auto& o) { o.max_bad = 1; });
  add([](auto& o) { o.max_expanded_bytes = 1; });
  const auto add_rule = [&](auto&& change) { add([&](auto& o) { change(given(o.by_length)); }); };
  add_rule([](auto&) {});
  add_rule([](auto& r) { r.field = "txt"; });
  add_rule([](auto& r) { r.column = "txt"; });
  add_rule([](auto& r) { r.unit = 2; });
  add_rule([](auto& r) { r.window = 2; });
  add_rule([](auto& r) { r.max_tokens = 2; });
  add_rule([](auto& r) { r.pack = "txt"; });
  add_rule([](auto& r) { r.pack_to = 2; });
  add_rule([](auto& r) { r.padding = 2; });
  const auto add_groups = [&](auto&& change) { add([&](auto& o) { change(given(o.by_group)); }); };
  add_groups([](auto&) {});
  add_groups([](auto& g) { g.expression = "n"; });
  add_groups([](auto& g) { g.groups = {Loader::ByGroup::Group{}}; });
  add_groups([](auto& g) { g.groups = {{.key = "a"}}; });
  add_groups([](auto& g) { g.groups = {{.key = "a", .batch_size = 2}}; });
  add_groups([](auto& g) { g.groups = {{.key = "a", .size = {2, 3}}}; });
  add_groups([](auto& g) { g.groups = {{.key = "a"}, {.key = "b"}}; });
  add_groups([](auto& g) { g.window = 2; });
  add_groups([](auto& g) { g.leftovers = Loader::ByGroup::Leftovers::kSmallerBatch; });
  const auto add_mix = [&](auto&& change) { add([&](auto& o) { change(given(o.mix)); }); };
  add_mix([](auto&) {});
  add_mix([](auto& m) { m.column = "jpg"; });
  add_mix([](auto& m) { m.mixup_alpha = 0.5; });
  add_mix([](auto& m) { m.cutmix_alpha = 0.5; });
  add_mix([](auto& m) { m.probability = 0.5; });
  const auto nothing = [](const Sample&, const Hash128&, columns::Row&) {};
  const auto none = [](std::string_view, const Hash128&, columns::Row&) {};
  for (const Column& column : {columns::bytes("a"),
                               columns::bytes("b"),
                               columns::bytes("a;b"),
                               columns::text("a"),
                               columns::json("a"),
                               columns::bytes("a").named("c"),
                               columns::tokens("a"),
                               columns::tokens("a", DType::kInt64),
                               columns::integer("a"),
                               columns::key("a"),
                               columns::array("a", DType::kInt8),
                               columns::array("a", DType::kInt16),
                               columns::array("a", DType::kInt8, {2}),
                               columns::array("a", DType::kInt8, {2, 1}),
                               columns::npz("a", "x", DType::kInt8),
                               columns::npz("b", "x", DType::kInt8),
                               columns::npz("a", "y", DType::kInt8),
                               columns::function("a", DType::kInt8, {1}, nothing),
                               columns::function("a", DType::kInt8, {2}, nothing),
                               columns::ragged_function("a", DType::kInt8, nothing),
                               columns::decoded("a", DType::kInt8, {1}, none),
                               columns::ragged_decoded("a", DType::kInt8, none),
                               columns::ragged_decoded("a;b", DType::kInt8, none),
                               columns::image("")}) {
    add_column(column);
  }
  add([](auto& o) { o.columns = {columns::bytes("a"), columns::bytes("b")}; });
  add([](auto& o) { o.columns = {columns::bytes("b"), columns::bytes("a")}; });
  add_image([](auto&, auto&) {});
  add_image([](auto&, auto& d) { d.max_pixels = 9; });
  add_image([](auto&, auto& d) { d.strict = true; });
  add_image([](auto&, auto& d) { d.apply_orientation = true; });
  add_image([](auto&, auto& d) { d.scaling = ImageDecoding::Scaling::kFast; });
  const auto add_transform = [&](auto&& change) { add_image([&](auto& t, auto&) { change(t); }); };
  const auto add_crop = [&](auto&& change) {
    add_transform([&](auto& t) {
      t.random_resized_crop = ImageTransform::RandomResizedCrop{.size = {4, 4}};
      change(*t.random_resized_crop);
    });
  };
  add_crop([](auto&) {});
  add_crop([](auto& c) { c.size.height = 5; });
  add_crop([](auto& c) { c.size.width = 5; });
  add_crop([](auto& c) { c.scale.least = 0.5; });
  add_crop([](auto& c) { c.scale.most = 0.5; });
  add_crop([](auto& c) { c.ratio.least = 0.5; });
  add_crop([](auto& c) { c.ratio.most = 2; });
  add_transform([](auto& t) { t.resize = {4, 4}; });
  add_transform([](auto& t) { t.resize = {4, 5}; });
  add_transform([](auto& t) { t.resize_shorter_side = 4; });
  add_transform([](auto& t) { t.padding.top = 1; });
  add_transform([](auto& t) { t.padding.left = 1; });
  add_transform([](auto& t) { t.padding.bottom = 1; });
  add_transform([](auto& t) { t.padding.right = 1; });
  add_transform([](auto& t) { t.centre_crop = {4, 4}; });
  add_transform([](auto& t) { t.random_crop = {4, 4}; });
  add_transform([](auto& t) { t.horizontal_flip = 0.5; });
  add_transform([](auto& t) { t.horizontal_flip = std::nextafter(0.5, 1.0); });
  add_transform([](auto& t) { t.vertical_flip = 0.5; });
  const auto add_jitter = [&](auto&& change) {
    add_transform([&](auto& t) { change(given(t.colour_jitter)); });
  };
  add_jitter([](auto&) {});
  add_jitter([](auto& j) { j.probability = 0.5; });
  add_jitter([](auto& j) { j.brightness = {0.5, 1}; });
  add_jitter([](auto& j) { j.contrast = {0.5, 1}; });
  add_jitter([](auto& j) { j.saturation = {0.5, 1}; });
  add_jitter([](auto& j) { j.hue = {0, 0.25}; });
  add_transform([](auto& t) { t.grayscale = 0.5; });
  const auto as_floats = [](ImageTransform& t) { t.type = ImageTransform::Type::kFloat32; };
  add_transform(as_floats);
  add_transform([&](auto& t) { as_floats(t), given(t.normalize); });
  add_transform([&](auto& t) { as_floats(t), given(t.normalize).mean[2] = 0; });
  add_transform([&](auto& t) { as_floats(t), given(t.normalize).std[1] = 1; });
  const auto add_erasing = [&](auto&& change) {
    add_transform([&](auto& t) { change(given(t.random_erasing)); });
  };
  add_erasing([](auto&) {});
  add_erasing([](auto& e) { e.probability = 0.25; });
  add_erasing([](auto& e) { e.scale.least = 0.25; });
  add_erasing([](auto& e) { e.ratio.most = 2; });
  add_erasing([](auto& e) { e.value[0] = 1; });
  add_transform([](auto& t) { t.fill[1] = 1; });
  add_transform([](auto& t) { t.filter = ImageTransform::Filter::kBicubic; });
  add_transform([](auto& t) { t.type = ImageTransform::Type::kFloat16; });
  add_transform([](auto& t) { t.layout = ImageTransform::Layout::kChannelsLast; });
  return all;
}

TEST(LoaderTest, RanksMustHaveEveryOptionAlike) {
  std::map<std::string, std::size_t> texts;
  const std::vector<Loader::Options> all = one_option_each();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string text;
    for (const auto& [name, value] : detail::agreed_options(all[i])) {
      text += name + ": " + value + "\n";
    }
    EXPECT_TRUE(text.find("none") != std::string::npos) << text;
    const auto [at, is_new] = texts.emplace(text, i);
    EXPECT_TRUE(is_new) << "options " << i << " and " << at->second << " are told apart by nothing";
  }
  Loader::Options own;  // options that may differ between ranks
  own.threads = 9;
  own.prefetch = 9;
  own.max_bytes_ahead = 9;
  own.fetch_threads = 9;
  own.memory = std::make_shared<std::pmr::unsynchronized_pool_resource>();
  EXPECT_EQ(detail::agreed_options(own), detail::agreed_options({}));
}

TEST(LoaderTest, OneOfSeveralRanksMustSayThatItIsAlone) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 9);
  const Loader::Options options{.columns = {columns::integer("cls")}};
  ::setenv("RANK", "2", 1);
  ::setenv("WORLD_SIZE", "3", 1);
  const std::string text = test::error_text([&] { Loader loader(data, options); });
  EXPECT_THAT(text, test::Says("given no ranks", "rank 2 of 3", "single_process()"));
  Loader alone(data, options, single_process());
  EXPECT_EQ(alone.steps(), 1u);
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
}

TEST(LoaderTest, ABadSampleIsListedWithItsReason) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 50, {3, 17, 18});
  Loader loader(data, {.columns = all_columns(), .batch_size = 7, .max_bad = 3});
  while (loader.next()) {
  }
  EXPECT_THAT(loader.prove(), HasSubstr("47 samples"));
  EXPECT_THAT(loader.bad_samples().samples().at(17).reason,
              test::Says("'cls' is not an integer: '?'", "sample 17 ('s00017')"));
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
    EXPECT_CODE(kCancelled, loader.next());
    loader.set_epoch(1);
    std::size_t count = 0;
    while (const auto batch = loader.next()) count += batch->size();
    EXPECT_EQ(count, 40u);
    EXPECT_THAT(loader.epoch().prove(), HasSubstr("proven"));
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

/// Loads quick batches of one row until more than `enough` are in flight, but at most `epochs`
/// epochs.
/// @return  the largest number of batches in flight.
std::uint64_t most_in_flight(const Dataset& data, const Loader::Options& options,
                             std::uint64_t enough, std::uint64_t epochs) {
  std::atomic<std::uint64_t> made{0};
  Loader::Options counting = options;
  counting.columns = {columns::function(
      "made", DType::kUInt8, {1}, [&](const Sample&, const Hash128&, columns::Row&) { ++made; })};
  counting.batch_size = 1;
  Loader loader(data, counting);
  std::uint64_t most = 0, taken = 0;
  for (auto epoch : loader.epochs(epochs)) {
    for ([[maybe_unused]] const Batch& batch : epoch) {
      most = std::max(most, made.load() - ++taken);
      if (most > enough) return most;
    }
  }
  return most;
}

TEST(LoaderTest, PrefetchLimitsTheBatchesInFlight) {
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 300);
  for (const unsigned threads : {1u, 2u, 5u}) {
    EXPECT_LE(most_in_flight(data, {.threads = threads, .prefetch = 3}, 3, 50), 3u);
    EXPECT_LE(most_in_flight(data, {.threads = threads}, 64, 50), 64u);
  }
}

TEST(LoaderTest, MoreBatchesAreInFlightIfTheyAreQuick) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "needs a build without sanitizers; skipped because none of these is quick";
#endif
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, 300);
  for (const unsigned threads : {1u, 2u, 5u}) {
    EXPECT_GT(most_in_flight(data, {.threads = threads}, 2 * threads, 2000), 2 * threads);
  }
}

/// Rows that note which threads make them.
class NotedRows {
 public:
  static constexpr std::size_t kBatch = 16;

  /// A column of one number per row. Once meet() was called, its rows wait until two threads make
  /// rows at the same time.
  Column column() {
    return columns::function("number", DType::kUInt64, {1},
                             [this](const Sample& sample, const Hash128&, columns::Row& row) {
                               row.values<std::uint64_t>()[0] = sample.index();
                               note(sample.index() / kBatch);
                             });
  }

  void wait_for_rows(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return made_ >= count; });
  }
  std::size_t num_threads(std::size_t batch) {
    const std::lock_guard lock(mutex_);
    return threads_[batch].size();
  }
  void meet() {
    const std::lock_guard lock(mutex_);
    meet_ = true;
    inside_.clear();
  }
  bool have_met() {
    const std::lock_guard lock(mutex_);
    return inside_.size() >= 2;
  }

 private:
  void note(std::size_t batch) {
    std::unique_lock lock(mutex_);
    threads_[batch].insert(std::this_thread::get_id());
    ++made_;
    if (meet_) inside_.insert(std::this_thread::get_id());
    changed_.notify_all();
    if (meet_) {
      changed_.wait_for(lock, std::chrono::minutes(2), [&] { return inside_.size() >= 2; });
    }
    lock.unlock();
    std::this_thread::yield();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t made_ = 0;
  bool meet_ = false;
  std::set<std::thread::id> inside_;
  std::map<std::size_t, std::set<std::thread::id>> threads_;
};

TEST(LoaderTest, OnlyAsManyThreadsWorkAsTheConsumerNeeds) {
  constexpr std::size_t kBatches = 600, kAhead = 4, kInSuccession = 10;
  const test::TempDir dir;
  const Dataset data = make_numbers(dir, kBatches * NotedRows::kBatch);
  NotedRows rows;
  Loader loader(data, {.columns = {rows.column()},
                       .order = {.kind = Sequential{}},
                       .batch_size = NotedRows::kBatch,
                       .threads = 3,
                       .prefetch = kAhead});
  // The consumer is slow: it takes a batch when all batches in flight are made. Soon only one
  // thread makes each batch.
  std::size_t by_one = 0, taken = 0;
  while (by_one < kInSuccession && taken + kAhead < kBatches) {
    ASSERT_TRUE(loader.next());
    ++taken;
    rows.wait_for_rows((taken + kAhead) * NotedRows::kBatch);
    // The rows are made; let their thread mark the batch as ready.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    by_one = rows.num_threads(taken + kAhead - 1) == 1 ? by_one + 1 : 0;
  }
  EXPECT_EQ(by_one, kInSuccession);
  // The consumer is faster than one thread.
  rows.meet();
  while (loader.next()) {
  }
  EXPECT_TRUE(rows.have_met());
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
