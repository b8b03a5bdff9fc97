// Datasets whose samples are numbered by a descriptor, without an index (Dataset::open_lazily).
#include "data/lazy_dataset.h"

#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "base/hasher.h"
#include "base/text.h"
#include "index/offset_table.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/verify.h"
#include "shardwise/order/sampler.h"
#include "storage/cache_request.h"

namespace shardwise {
namespace {

using test::CountScans;
using test::error_code;
using test::error_text;
using test::ServedDescriptor;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string note_of(const ServedDescriptor& served, std::size_t shard,
                    const std::string& suffix = ".note") {
  return served.dir / "cache/shards/" +
         CacheAccess::name_of(
             {.source = {.url = served.server.url("/" + served.shards[shard].name)}}) +
         suffix;
}

void expect_all(const Dataset& data) {
  for (std::uint64_t i = 0; i < data.size(); ++i) EXPECT_EQ(test::difference(data[i], i), "");
}

TEST(LazyDatasetTest, NumbersAndSamplesAreThoseOfAnIndex) {
  const ServedDescriptor served;
  const Dataset full = served.indexed();
  const Dataset lazy = served.open();
  ASSERT_EQ(lazy.size(), full.size());
  EXPECT_EQ(lazy.shard_starts(), full.shard_starts());
  EXPECT_EQ(lazy.index().num_shards(), full.index().num_shards());
  EXPECT_EQ(lazy.index().path(), served.path());
  EXPECT_FALSE(lazy.is_view());
  for (std::uint64_t i = 0; i < full.size(); ++i) {
    const Sample here = lazy[i], there = full[i];
    EXPECT_EQ(test::difference(here, i), "");
    EXPECT_EQ(here.key(), there.key());
    EXPECT_EQ(here.shard_path(), there.shard_path());
    EXPECT_EQ(here.describe(), there.describe());
    ASSERT_EQ(here.num_fields(), there.num_fields());
    for (std::size_t f = 0; f < here.num_fields(); ++f) {
      EXPECT_EQ(here.field(f).name, there.field(f).name);
      EXPECT_EQ(here.field(f).bytes, there.field(f).bytes);
    }
    EXPECT_EQ(here.copy("txt"), there.copy("txt"));
    EXPECT_EQ(lazy.try_get(i)->key(), there.key());
  }
  Dataset::Options options = served.options(served.cache());
  options.access = Dataset::Access::kRead;
  expect_all(Dataset::open_lazily(served.path(), options));
  EXPECT_THAT(error_text([&] { lazy[full.size()]; }),
              AllOf(HasSubstr("sample 61 of '" + served.path() + "'"), HasSubstr("[0, 61)")));
}

TEST(LazyDatasetTest, ManySamplesFieldsOfThemAndViewsAreThoseOfAnIndex) {
  const ServedDescriptor served;
  const Dataset full = served.indexed(), lazy = served.open();
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 200; ++i) numbers.push_back(i * 37 % full.size());
  const auto texts_of = [](const Dataset& data, const std::vector<std::uint64_t>& of) {
    std::vector<std::string> texts;
    for (const Sample& sample : data.samples(of)) texts.emplace_back(sample["txt"]);
    return texts;
  };
  EXPECT_EQ(texts_of(lazy, numbers), texts_of(full, numbers));
  std::vector<std::int64_t> here, there;
  std::vector<std::byte> here_bytes, there_bytes;
  lazy.gather(numbers, "txt", here, here_bytes);
  full.gather(numbers, "txt", there, there_bytes);
  EXPECT_EQ(here, there);
  EXPECT_EQ(here_bytes, there_bytes);
  lazy.gather({}, "txt", here, here_bytes);
  EXPECT_EQ(here, std::vector<std::int64_t>{0});
  EXPECT_TRUE(here_bytes.empty());
  EXPECT_THAT(error_text([&] { lazy.gather(numbers, "extra.bin", here, here_bytes); }),
              HasSubstr("no field 'extra.bin': sample 37"));

  const std::vector<std::uint64_t> some{60, 3, 17, 40};
  const Dataset here_view = lazy.subset(some), there_view = full.subset(some);
  EXPECT_EQ(here_view.shard_starts(), there_view.shard_starts());
  EXPECT_EQ(texts_of(here_view, {3, 0, 1}), texts_of(there_view, {3, 0, 1}));
  EXPECT_NE(here_view.fingerprint(), lazy.fingerprint());
  const MixedDataset mixed({lazy, full});
  EXPECT_EQ(mixed[full.size() + 3].copy("txt"), mixed[3].copy("txt"));
}

TEST(LazyDatasetTest, AShardIsFetchedWhenASampleOfItIsAskedForAndNothingBefore) {
  const ServedDescriptor served;
  const Dataset lazy = served.open();
  EXPECT_EQ(lazy.size(), 61u);
  EXPECT_FALSE(lazy.try_get(7).has_value());
  EXPECT_EQ(served.gets() + served.requests("HEAD"), 0);
  EXPECT_EQ(test::difference(lazy[7], 7), "");
  EXPECT_EQ(test::difference(lazy[21], 21), "");
  EXPECT_EQ(served.gets(), 1);
  EXPECT_EQ(served.server.gets("/1.tar"), 1);
  expect_all(lazy);
  EXPECT_EQ(served.gets(), 5) << "none of the shard without samples";
  EXPECT_EQ(served.server.gets("/3.tar"), 0);
}

TEST(LazyDatasetTest, WhatWasScannedOnceIsNotScannedAgain) {
  const ServedDescriptor served;
  const CountScans scans;
  expect_all(served.open());
  EXPECT_EQ(scans.count(), 5);
  // Each dataset opens the cache anew, as another process would.
  for (int i = 0; i < 3; ++i) expect_all(served.open());
  EXPECT_EQ(scans.count(), 5);
  EXPECT_EQ(served.gets(), 5);
  // Shards are closed, and opened again.
  Dataset::Options options = served.options(served.cache());
  options.max_open_shards = 1;
  std::optional<Dataset> lazy = Dataset::open_lazily(served.path(), options);
  for (std::uint64_t i = 0; i < 200; ++i)
    EXPECT_EQ(test::difference((*lazy)[i * 29 % 61], i * 29 % 61), "");
  EXPECT_EQ(scans.count(), 5);
  lazy.reset();
  // A shard that was evicted is scanned when it is fetched again.
  served.cache()->prune(0);
  expect_all(served.open());
  EXPECT_EQ(scans.count(), 10);
}

TEST(LazyDatasetTest, WhatAPrefetcherBringsIsScannedOnce) {
  const ServedDescriptor served;
  const CountScans scans;
  const Dataset lazy = served.open();
  const auto order = make_sampler(lazy, {.seed = 3, .kind = Sharded{}});
  ShardPrefetcher prefetcher(lazy, *order, {.fetch_threads = 2});
  EXPECT_TRUE(prefetcher.is_active());
  for (int epoch = 0; epoch < 2; ++epoch) {
    order->set_epoch(static_cast<std::uint64_t>(epoch));
    prefetcher.begin_epoch(*order);
    while (const auto i = order->next()) {
      EXPECT_EQ(test::difference(lazy[*i], *i), "");
      prefetcher.reached(order->position());
    }
  }
  EXPECT_EQ(scans.count(), 5);
  EXPECT_EQ(served.gets(), 5);
}

TEST(LazyDatasetTest, ThreadsThatWantOneColdShardScanItOnce) {
  const ServedDescriptor served;
  const CountScans scans;
  const Dataset lazy = served.open();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < lazy.size(); ++i) {
        const std::uint64_t number = (i + 10 * t) % lazy.size();
        wrong += test::difference(lazy[number], number).empty() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(scans.count(), 5);
  EXPECT_EQ(served.gets(), 5);
}

// Fault under test: tests/faults.md 61.
TEST(LazyDatasetTest, AShardWithAnotherNumberOfSamplesIsAMismatch) {
  ServedDescriptor served;
  served.shards[1].claim = 18;
  served.write();
  const Dataset lazy = served.open();
  EXPECT_EQ(lazy.size(), 62u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(error_text([&] { lazy[5]; }),
                AllOf(HasSubstr("its descriptor: '" + served.urls()[1] + "'"),
                      HasSubstr("17 samples, not 18"), HasSubstr("'" + served.path() + "'"),
                      HasSubstr("`shardwise export --format wids`")));
    EXPECT_EQ(error_code([&] { lazy[22]; }), ErrorCode::kMismatch);
  }
  EXPECT_EQ(test::difference(lazy[4], 4), "") << "the other shards are served";
  EXPECT_FALSE(std::filesystem::exists(note_of(served, 1, ".tar"))) << "nothing of it is kept";
  // The shard at the source is corrected while the dataset is open.
  served.shards[1].bytes = ServedDescriptor::tar_of_samples(5, 18);
  served.shards[1].says_size = false;
  served.serve(1, "\"v2\"");
  EXPECT_EQ(error_code([&] { lazy[5]; }), ErrorCode::kMismatch) << "its size is claimed, too";
  served.write();
  EXPECT_EQ(test::difference(served.open()[22], 22), "");
}

TEST(LazyDatasetTest, AShardOfAnotherSizeIsAMismatch) {
  ServedDescriptor served;
  const std::size_t size = served.shards[1].bytes.size();
  served.shards[1].bytes.resize(size - 512);
  served.serve(1);
  EXPECT_THAT(error_text([lazy = served.open()] { lazy[5]; }),
              HasSubstr("/1.tar' is " + human_count(size - 512) + " bytes long, not " +
                        human_count(size) + " as in '"));
  // If the descriptor claims no size, the scan reports the error.
  served.shards[2].bytes.resize(600);
  served.serve(2);
  EXPECT_THAT(error_text([lazy = served.open()] { lazy[22]; }),
              AllOf(HasSubstr("'" + served.urls()[2] + "'"), HasSubstr("offset")));
  EXPECT_EQ(error_code([lazy = served.open()] { lazy[22]; }), ErrorCode::kCorruptShard);
  EXPECT_FALSE(std::filesystem::exists(note_of(served, 2, ".tar")));
}

TEST(LazyDatasetTest, PoliciesAreThoseOfAnIndex) {
  ServedDescriptor served;
  served.shards[2] = {.name = "2.tar",
                      .num_samples = 1,
                      .bytes = test::TarBuilder()
                                   .file("README", "no field")
                                   .file("s22.txt", ServedDescriptor::text_of(22))
                                   .file("s22.cls", "2")
                                   .end()
                                   .bytes(),
                      .claim = 1};
  served.serve(2);
  served.write();
  EXPECT_EQ(error_code([lazy = served.open()] { lazy[22]; }), ErrorCode::kCorruptShard);
  Dataset::Options options = served.options(served.cache());
  options.index_cache.build.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
  const CountScans scans;
  EXPECT_EQ(test::difference(Dataset::open_lazily(served.path(), options)[22], 22), "");
  EXPECT_EQ(test::difference(Dataset::open_lazily(served.path(), options)[22], 22), "");
  EXPECT_EQ(scans.count(), 1);
  // A note that was made with other options is not used.
  EXPECT_EQ(error_code([lazy = served.open()] { lazy[22]; }), ErrorCode::kCorruptShard);
}

TEST(LazyDatasetTest, WhatNeedsAnIndexSaysSo) {
  const ServedDescriptor served;
  const Dataset lazy = served.open();
  const auto expected = AllOf(HasSubstr("has no index"), HasSubstr("'" + served.path() + "'"),
                              HasSubstr("`shardwise index -o INDEX DESCRIPTOR`"));
  const std::vector<std::uint64_t> numbers{1};
  std::vector<std::uint64_t> sizes(1);
  const std::vector<std::function<void()>> calls{
      [&] { static_cast<void>(lazy.find("s1")); },
      [&] { static_cast<void>(lazy.get("s1")); },
      [&] { static_cast<void>(lazy.where("cls = 1")); },
      [&] { static_cast<void>(lazy.subset(std::vector<std::string>{"s1"})); },
      [&] { lazy.sizes(numbers, "txt", sizes); },
      [&] { static_cast<void>(lazy.values("cls", numbers)); },
      [&] { static_cast<void>(lazy.numbers("cls")); },
      [&] { static_cast<void>(lazy.sample_bytes()); },
      [&] { Query(lazy.shared_index(), "SELECT 1"); },
      [&] { static_cast<void>(verify_shard(lazy.index(), 0)); },
      [&] { static_cast<void>(lazy.index().summary()); },
      [&] { Dataset(lazy.shared_index(), served.options(served.cache())); },
      [&] { check_against_descriptor(lazy.index(), read_wids_descriptor(served.path())); }};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_THAT(error_text(calls[i]), expected) << i;
    EXPECT_EQ(error_code(calls[i]), ErrorCode::kUnsupported) << i;
  }
  EXPECT_EQ(served.gets(), 0);
}

TEST(LazyDatasetTest, WhatASingleOptionForbidsIsSaidBeforeAnythingIsRead) {
  ServedDescriptor served;
  const auto text_with = [&](const std::function<void(Dataset::Options&)>& change) {
    Dataset::Options options = served.options(served.cache());
    change(options);
    return error_text([&] { static_cast<void>(Dataset::open_lazily(served.path(), options)); });
  };
  EXPECT_THAT(text_with([](auto& o) { o.cache = nullptr; }),
              AllOf(HasSubstr("remote"), HasSubstr("no shard cache: '" + served.path() + "'"),
                    HasSubstr("Dataset::Options::cache")));
  EXPECT_THAT(text_with([](auto& o) { o.access = Dataset::Access::kRange; }),
              AllOf(HasSubstr("needs an index"), HasSubstr("single samples"),
                    HasSubstr("`shardwise index -o INDEX DESCRIPTOR`")));
  EXPECT_THAT(text_with([](auto& o) { o.root = "/data"; }), HasSubstr("leave out the root"));
  for (const std::function<void(Index::Content&)>& change :
       std::vector<std::function<void(Index::Content&)>>{
           [](auto& c) { c.columns = {parse_column("cls")}; }, [](auto& c) { c.hashes = true; },
           [](auto& c) { c.unique_keys = true; }}) {
    EXPECT_THAT(text_with([&](auto& o) { change(o.index_cache.build.content); }),
                HasSubstr("columns, hashes"));
  }
  const auto open = [&](const std::string& name) {
    static_cast<void>(Dataset::open_lazily(name, served.options(served.cache())));
  };
  test::write_file(served.dir / "plain.idx", "x");
  for (const std::string& name :
       {served.urls()[0], served.dir / "plain.idx", served.server.url("/{0,1}.tar")}) {
    EXPECT_THAT(error_text([&] { open(name); }),
                AllOf(HasSubstr("wids descriptor"), HasSubstr("'" + name + "'"),
                      HasSubstr("x.json"), HasSubstr("Dataset::open")));
  }
  EXPECT_EQ(error_code([&] { open(served.dir / "none.json"); }), ErrorCode::kNotFound);
  served.shards[1].name = "x/../0.tar";
  served.write();
  EXPECT_EQ(error_code([&] { open(served.path()); }), ErrorCode::kInvalidArgument)
      << "one shard by two names";
  EXPECT_EQ(served.gets(), 0);
}

TEST(LazyDatasetTest, ACompressedShardIsUnsupported) {
  ServedDescriptor served;
  served.shards[0].bytes = test::compress(served.shards[0].bytes, Compression::kGzip);
  served.serve(0);
  EXPECT_THAT(error_text([lazy = served.open()] { lazy[0]; }),
              AllOf(HasSubstr("compressed (gzip)"), HasSubstr("'" + served.urls()[0] + "'"),
                    HasSubstr("`shardwise index -o INDEX DESCRIPTOR`")));
}

// Fault under test: tests/faults.md 62.
TEST(LazyDatasetTest, DamagedNotesAreMadeAgain) {
  const ServedDescriptor served;
  const CountScans scans;
  expect_all(served.open());
  std::mt19937_64 random(test::random_seed());
  const std::string whole = test::read_file(note_of(served, 4));
  for (int round = 1; round <= 40; ++round) {
    std::string bytes = whole;
    switch (random() % 3) {
      case 0:
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1:
        bytes.resize(random() % bytes.size());
        break;
      default:
        bytes = test::read_file(note_of(served, random() % 2));  // the note of another shard
    }
    test::write_file(note_of(served, 4), bytes);
    const Dataset lazy = served.open();
    for (std::uint64_t i = 23; i < 53; ++i) ASSERT_EQ(test::difference(lazy[i], i), "");
    ASSERT_EQ(scans.count(), 5 + round);
    ASSERT_TRUE(test::same(test::read_file(note_of(served, 4)), whole));
  }
  EXPECT_EQ(served.gets(), 5);
}

TEST(LazyDatasetTest, ANoteThatReachesBeyondItsShardIsMadeAgain) {
  // All hashes of this note are correct.
  const ServedDescriptor served;
  expect_all(served.open());
  const auto cache = served.cache();
  const std::string url = served.urls()[4];
  std::string text(CacheAccess::note_of(CacheAccess::get(*cache, {.source = {.url = url}}))->bytes);
  char* const segment = text.data() + 32;
  SegmentHeader header;
  std::memcpy(&header, segment, sizeof header);
  MemberRecord member;
  const std::size_t members = sizeof header + (header.num_samples + 1) * sizeof(SampleRecord);
  std::memcpy(&member, segment + members, sizeof member);
  ASSERT_EQ(member.size_bytes, ServedDescriptor::text_of(23).size());
  const auto write_with_size = [&](std::uint64_t size_bytes) {
    member.size_bytes = size_bytes;
    std::memcpy(segment + members, &member, sizeof member);
    header.checksum =
        hash64({segment + sizeof header, text.size() - 32 - sizeof header}, header.counts_checksum);
    std::memcpy(segment, &header, sizeof header);
    CacheAccess::write_note(CacheAccess::get(*cache, {.source = {.url = url}}), text);
  };
  const CountScans scans;
  write_with_size(ServedDescriptor::text_of(23).size() - 1);
  EXPECT_EQ(served.open()[23].copy("txt").size(), member.size_bytes) << "the note is what is read";
  EXPECT_EQ(scans.count(), 0);
  for (const std::uint64_t size : {served.shards[4].bytes.size(), std::size_t{1} << 62}) {
    write_with_size(size);
    EXPECT_EQ(test::difference(served.open()[23], 23), "");
  }
  EXPECT_EQ(scans.count(), 2);
}

/// Returns a dataset that may keep one shard open. It has read sample 60, and closed that shard
/// again.
Dataset opened_and_closed(const ServedDescriptor& served) {
  Dataset::Options options = served.options(served.cache());
  options.max_open_shards = 1;
  const Dataset lazy = Dataset::open_lazily(served.path(), options);
  EXPECT_EQ(test::difference(lazy[60], 60), "");
  EXPECT_EQ(test::difference(lazy[0], 0), "");
  return lazy;
}

TEST(LazyDatasetTest, AShardThatChangedSinceItWasReadIsStale) {
  // In one case the headers differ, in the other only the data.
  for (const bool same_headers : {false, true}) {
    ServedDescriptor served;
    served.shards[5].says_size = false;
    served.write();
    const Dataset lazy = opened_and_closed(served);
    std::string& bytes = served.shards[5].bytes;
    if (same_headers) {
      bytes[bytes.find("text 60") + 5] = '7';
    } else {
      bytes = ServedDescriptor::tar_of_samples(53, 8, " new");
    }
    served.serve(5, "\"v2\"");
    EXPECT_EQ(test::difference(lazy[60], 60), "") << "the cache has it";
    EXPECT_EQ(test::difference(lazy[0], 0), "");
    EXPECT_TRUE(
        served.cache()->remove(CacheAccess::name_of({.source = {.url = served.urls()[5]}})));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_text([&] { lazy[60]; }),
                  AllOf(HasSubstr("the shard changed"), HasSubstr("'" + served.urls()[5] + "'"),
                        HasSubstr("open the dataset again")));
      EXPECT_EQ(error_code([&] { lazy[54]; }), ErrorCode::kStaleIndex);
    }
    EXPECT_EQ(test::difference(lazy[3], 3), "") << "the others are served";
    const Dataset fresh = served.open();
    EXPECT_EQ(fresh[60].copy("txt").substr(0, 12), same_headers ? "text 70xxxxx" : "text 60 newx");
    EXPECT_EQ(served.server.gets("/5.tar"), 2);
  }
}

TEST(LazyDatasetTest, AnOldShardInTheCacheIsFetchedAgainIfTheDescriptorNamesAnother) {
  for (const bool says_size : {false, true}) {
    ServedDescriptor served;
    served.shards[5].says_size = says_size;
    served.write();
    expect_all(served.open());
    const CountScans scans;
    served.shards[5].bytes = ServedDescriptor::tar_of_samples(53, 9);
    served.shards[5].claim = 9;
    served.serve(5, "\"v2\"");
    served.write();
    const Dataset lazy = served.open();
    EXPECT_EQ(lazy.size(), 62u);
    expect_all(lazy);
    EXPECT_EQ(served.server.gets("/5.tar"), 2);
    EXPECT_EQ(served.gets(), 6);
    EXPECT_EQ(scans.count(), 1);
    // The shard at the source did not change with the descriptor. The error says so each time.
    served.shards[5].claim = 10;
    served.shards[5].says_size = false;
    served.write();
    const Dataset wrong = served.open();
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_text([&] { wrong[53]; }), HasSubstr("9 samples, not 10"));
    }
  }
}

TEST(LazyDatasetTest, WithoutRoomInTheCacheShardsAreReadFromFilesOfTheirOwn) {
  const ServedDescriptor served;
  const CountScans scans;
  Dataset::Options options = served.options(served.cache("cache", 1000));
  options.max_open_shards = 1;
  const Dataset lazy = Dataset::open_lazily(served.path(), options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(test::difference(lazy[6], 6), "");
    EXPECT_EQ(test::difference(lazy[60], 60), "");
  }
  EXPECT_EQ(lazy.cache()->stats().bypassed, 4u);
  EXPECT_EQ(scans.count(), 4);
}

TEST(LazyDatasetTest, ADescriptorMayBeRemoteAndAnyCacheMayHaveTheShards) {
  ServedDescriptor served;
  served.server.serve("/sets/train.json", {.body = served.json()});
  const Dataset lazy = Dataset::open_lazily(served.server.url("/sets/train.json?key=secret"),
                                            served.options(served.cache()));
  expect_all(lazy);
  EXPECT_EQ(lazy.fingerprint(), served.open().fingerprint());
  EXPECT_THAT(error_text([&] { static_cast<void>(lazy.find("s1")); }),
              AllOf(HasSubstr("/sets/train.json"), ::testing::Not(HasSubstr("secret"))));
  EXPECT_THAT(error_text([&] { lazy[61]; }), ::testing::Not(HasSubstr("secret")));
}

TEST(LazyDatasetTest, TheFingerprintIsThatOfTheNumbering) {
  ServedDescriptor served;
  const Hash128 fingerprint = served.open().fingerprint();
  EXPECT_EQ(served.open().fingerprint(), fingerprint);
  EXPECT_NE(served.indexed().fingerprint(), fingerprint);
  const auto changed =
      [&](const std::function<void(std::vector<ServedDescriptor::Shard>&)>& change) {
        const auto before = served.shards;
        change(served.shards);
        served.write();
        const Hash128 now = served.open().fingerprint();
        served.shards = before;
        served.write();
        return now != fingerprint;
      };
  EXPECT_TRUE(changed([](auto& shards) { shards[0].claim = 6; }));
  EXPECT_TRUE(changed([](auto& shards) { shards[0].says_size = true; }));
  EXPECT_TRUE(changed([](auto& shards) { shards[1].bytes += "x"; })) << "its size";
  EXPECT_TRUE(changed([](auto& shards) { std::swap(shards[0], shards[1]); }));
  EXPECT_TRUE(changed([](auto& shards) { shards[0].name = "6.tar"; }));
  EXPECT_TRUE(changed([](auto& shards) { shards.pop_back(); }));
  EXPECT_FALSE(changed([](auto& shards) { shards[0].name = "elsewhere/0.tar?key=1"; }));
  EXPECT_FALSE(changed([](auto&) {}));

  // A resume token of one dataset is rejected by the other, and accepted by its own.
  const Dataset lazy = served.open(), full = served.indexed();
  const auto order = make_sampler(lazy, {.seed = 3});
  for (int i = 0; i < 20; ++i) order->next();
  const ResumeToken token = ResumeToken::from_text(order->token().to_text());
  const auto again = make_sampler(served.open(), {.seed = 3});
  again->resume(token);
  EXPECT_EQ(again->next(), order->next());
  EXPECT_EQ(error_code([&] { make_sampler(full, {.seed = 3})->resume(token); }),
            ErrorCode::kMismatch);
}

TEST(LazyDatasetTest, AnIndexThatIsThereAndCurrentIsUsed) {
  ServedDescriptor served;
  const Dataset::Options options = served.options(served.cache());
  const Hash128 lazy = Dataset::open_lazily(served.path(), options).fingerprint();
  EXPECT_FALSE(std::filesystem::exists(served.dir / "indexes")) << "none is made";
  const Dataset full = Dataset::open(served.path(), options);
  const int gets = served.gets();
  const Dataset used = Dataset::open_lazily(served.path(), options);
  EXPECT_EQ(used.fingerprint(), full.fingerprint());
  EXPECT_EQ(served.gets(), gets);
  EXPECT_EQ(used.get("s7").index(), 7u);
  expect_all(used);
  // Without a cache, the index still determines numbers and sizes.
  EXPECT_EQ(Dataset::open_lazily(served.path(), served.options(nullptr)).fingerprint(),
            full.fingerprint());
  // A shard has changed, so the index is no longer current.
  served.serve(1, "\"v2\"");
  EXPECT_EQ(Dataset::open_lazily(served.path(), options).fingerprint(), lazy);
  // A damaged index is not current either.
  served.serve(1);
  EXPECT_EQ(Dataset::open_lazily(served.path(), options).fingerprint(), full.fingerprint());
  for (const auto& entry : std::filesystem::directory_iterator(served.dir / "indexes")) {
    if (entry.path().extension() == ".idx") test::write_file(entry.path(), "x");
  }
  EXPECT_EQ(Dataset::open_lazily(served.path(), options).fingerprint(), lazy);
}

TEST(LazyDatasetTest, ADescriptorOfLocalShardsIsIndexed) {
  ServedDescriptor served;
  for (const ServedDescriptor::Shard& shard : served.shards) {
    test::write_file(served.dir / shard.name, shard.bytes);
  }
  // All shards are local, or one is local and the others are remote.
  std::string json = served.json();
  const std::string base = R"("base": ")" + served.server.url("") + R"(", )";
  json.erase(json.find(base), base.size());
  test::write_file(served.path(), json);
  const Dataset::Options options = served.options(served.cache());
  const Dataset local = Dataset::open_lazily(served.path(), options);
  EXPECT_EQ(local.get("s7").index(), 7u);
  expect_all(local);
  EXPECT_EQ(served.gets(), 0);
  json.replace(json.find("2.tar"), 5, served.dir / "2.tar");
  for (const int i : {0, 1, 3, 4, 5}) {
    const std::string name = "\"" + std::to_string(i) + ".tar";
    json.replace(json.find(name), name.size(), "\"" + served.urls()[static_cast<std::size_t>(i)]);
  }
  test::write_file(served.path(), json);
  const Dataset mixed = Dataset::open_lazily(served.path(), options);
  EXPECT_EQ(mixed.get("s7").index(), 7u);
  EXPECT_EQ(mixed.fingerprint(), local.fingerprint());
}

TEST(LazyDatasetTest, WhatACacheWillFetchIsPlannedIfSizesAreKnown) {
  ServedDescriptor served;
  const Dataset lazy = served.open();
  EXPECT_THAT(error_text([&] { static_cast<void>(FetchPlan::Shards::of(lazy)); }),
              AllOf(HasSubstr("sizes of shards: '" + served.path() + "'"), HasSubstr("filesize"),
                    HasSubstr("`shardwise index -o INDEX DESCRIPTOR`")));
  const auto order = make_sampler(lazy, {.seed = 3, .kind = Sharded{.window = 4}});
  EXPECT_EQ(small_cache_warning(lazy, *order, {.first = 0, .count = 1}), std::nullopt);
  for (ServedDescriptor::Shard& shard : served.shards) shard.says_size = true;
  served.write();
  const Dataset sized = served.open(), full = served.indexed();
  EXPECT_EQ(FetchPlan::Shards::of(sized).sizes_bytes, FetchPlan::Shards::of(full).sizes_bytes);
  EXPECT_EQ(FetchPlan::Shards::of(sized).starts, FetchPlan::Shards::of(full).starts);
}

// A simple model: sample i has the content from which the shards were made. Whatever is read in
// whatever order, and whatever happens to the cache in between, each sample must be correct.
TEST(LazyDatasetTest, ChainsOfRandomOperationsGiveWhatTheShardsHold) {
  const std::uint64_t seed = test::random_seed();
  for (std::uint64_t chain = 0; chain < 4; ++chain) {
    std::mt19937_64 random(seed + chain);
    std::vector<std::uint64_t> lengths(4 + random() % 8);
    for (std::uint64_t& length : lengths) length = random() % 4 == 0 ? 0 : random() % 25;
    lengths.push_back(3);
    const ServedDescriptor served(lengths);
    std::uint64_t size = 0;
    for (const std::uint64_t length : lengths) size += length;
    std::size_t largest = 0;
    for (const auto& shard : served.shards) largest = std::max(largest, shard.bytes.size());
    std::optional<Dataset> lazy;
    const auto open = [&] {
      lazy.reset();
      Dataset::Options options =
          served.options(served.cache("cache", largest * (1 + random() % 4)));
      options.max_open_shards = 1 + random() % 4;
      lazy = Dataset::open_lazily(served.path(), options);
      ASSERT_EQ(lazy->size(), size);
    };
    open();
    std::vector<Sample> held;
    const auto some_file = [&](const std::string& suffix) -> std::string {
      std::vector<std::string> files;
      for (const auto& entry : std::filesystem::directory_iterator(served.dir / "cache/shards")) {
        if (entry.path().extension() == suffix) files.push_back(entry.path());
      }
      std::sort(files.begin(), files.end());
      return files.empty() ? std::string() : files[random() % files.size()];
    };
    for (int step = 0; step < 120; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed + chain) + ", step " + std::to_string(step));
      const std::uint64_t number = random() % size;
      switch (random() % 12) {
        case 0:
        case 1:
        case 2: {
          Sample sample = (*lazy)[number];
          ASSERT_EQ(test::difference(sample, number), "");
          if (random() % 8 == 0 && held.size() < 5) held.push_back(std::move(sample));
          break;
        }
        case 3:
          if (const auto sample = lazy->try_get(number)) {
            ASSERT_EQ(test::difference(*sample, number), "");
          }
          break;
        case 4: {
          std::vector<std::uint64_t> numbers(random() % 40);
          for (std::uint64_t& n : numbers) n = random() % size;
          std::size_t at = 0;
          for (const Sample& sample : lazy->samples(numbers)) {
            ASSERT_EQ(test::difference(sample, numbers[at++]), "");
          }
          ASSERT_EQ(at, numbers.size());
          break;
        }
        case 5: {
          std::vector<std::uint64_t> numbers(random() % 20);
          for (std::uint64_t& n : numbers) n = random() % size;
          std::vector<std::int64_t> offsets;
          std::vector<std::byte> bytes;
          lazy->gather(numbers, "txt", offsets, bytes);
          for (std::size_t i = 0; i < numbers.size(); ++i) {
            const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + offsets[i],
                                        static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
            ASSERT_EQ(text, ServedDescriptor::text_of(numbers[i]));
          }
          break;
        }
        case 6: {
          std::vector<std::uint64_t> numbers;
          for (std::uint64_t n = random() % 5; n < size; n += 1 + random() % 9)
            numbers.push_back(n);
          const Dataset view = lazy->subset(numbers);
          if (!numbers.empty()) {
            const std::uint64_t i = random() % numbers.size();
            ASSERT_EQ(view[i].copy("txt"), ServedDescriptor::text_of(numbers[i]));
          }
          break;
        }
        case 7:
          open();
          break;
        case 8:
          served.cache()->prune(random() % (4 * largest));
          break;
        case 9:
          if (const std::string file = some_file(".note"); !file.empty()) {
            std::string bytes = test::read_file(file);
            bytes[random() % bytes.size()] ^= 1;
            // Unlink, because other processes may have mapped the file.
            std::filesystem::remove(file);
            if (random() % 2 == 0) test::write_file(file, bytes);
          }
          break;
        case 10:
          if (const std::string file = some_file(".json"); !file.empty()) {
            std::filesystem::remove(file);
          }
          break;
        default:
          held.clear();
      }
      for (const Sample& sample : held) {
        ASSERT_EQ(test::difference(sample, sample.index()), "");
      }
    }
  }
}

}  // namespace
}  // namespace shardwise
