// Datasets whose shards are remote or compressed, from the index to the epoch.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/hasher.h"
#include "base/url.h"
#include "data/dataset_access.h"
#include "data/open_shard.h"
#include "data/read_frontier.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "ingest/remote_shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/verify.h"
#include "shardwise/order/sampler.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/sample_pipeline.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::TarBuilder;
using test::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kShards = 20;
constexpr int kSamples = 50;

class RemoteDatasetTest : public ::testing::Test {
 protected:
  RemoteDatasetTest() : fetchers_(std::make_shared<const Fetchers>(test::quick_options())) {}

  static std::string tar_body(int shard) {
    TarBuilder tar;
    for (int i = 0; i < kSamples; ++i) {
      const std::string key = "s" + std::to_string(1000 * shard + i);
      tar.file(key + ".txt", "text " + key).file(key + ".cls", std::to_string(i % 10));
    }
    return tar.end().bytes();
  }
  /// Serves shards of one size under /<i>.tar, and gives their URLs.
  std::vector<std::string> serve(Compression compression = Compression::kNone) {
    std::vector<std::string> urls;
    for (int shard = 0; shard < kShards; ++shard) {
      const std::string path = "/" + std::to_string(shard) + ".tar";
      const std::string body = tar_body(shard);
      shard_bytes_ = body.size();
      server_.serve(path, {.body = test::compress(body, compression)});
      urls.push_back(server_.url(path));
    }
    return urls;
  }
  RemoteAccess remote(std::shared_ptr<ShardCache> keep = nullptr) {
    return make_remote_access(fetchers_, std::move(keep));
  }
  std::shared_ptr<ShardCache> cache(
      std::uint64_t budget_bytes = 1 << 30,
      std::chrono::milliseconds room_timeout = ShardCache::Options{}.room_timeout) {
    return ShardCache::open({.directory = dir_ / "cache",
                             .budget_bytes = budget_bytes,
                             .room_timeout = room_timeout,
                             .fetchers = fetchers_});
  }
  std::string index_path() const { return dir_ / "remote.idx"; }
  int total_gets() const {
    int gets = 0;
    for (int shard = 0; shard < kShards; ++shard) {
      gets += server_.gets("/" + std::to_string(shard) + ".tar");
    }
    return gets;
  }

  TempDir dir_;
  test::TestHttpServer server_;
  std::shared_ptr<const Fetchers> fetchers_;
  std::uint64_t shard_bytes_ = 0;
};

void expect_all_samples(const Dataset& data) {
  ASSERT_EQ(data.size(), std::uint64_t{kShards} * kSamples);
  for (const std::uint64_t i : {0u, 49u, 50u, 777u, 999u}) {
    const Sample sample = data[i];
    const std::string key = "s" + std::to_string(1000 * (i / kSamples) + i % kSamples);
    EXPECT_EQ(sample.key(), key);
    EXPECT_EQ(sample["txt"], "text " + key);
    EXPECT_EQ(sample.integer("cls"), static_cast<std::int64_t>(i % kSamples % 10));
  }
}

TEST_F(RemoteDatasetTest, NothingIsFetchedAgainWhenUrlsAreSignedAnew) {
  const auto plain = serve();
  const auto signed_at = [&](const std::string& time) {
    std::vector<std::string> urls;
    for (const std::string& url : plain) {
      urls.push_back(url + "?X-Amz-Date=" + time + "&X-Amz-Signature=sesame" + time);
    }
    return urls;
  };
  build_index(index_path(), signed_at("1"), {.remote = remote()});
  const auto read_all = [&] {
    const auto data = Dataset::open(index_path(), {.cache = cache()});
    for (std::uint64_t i = 0; i < data.size(); i += kSamples) {
      const Sample sample = data[i];
      EXPECT_FALSE(sample["txt"].empty());
    }
    expect_all_samples(data);
  };
  read_all();
  const int gets = total_gets();
  EXPECT_EQ(gets, 2 * kShards) << "for the index, and into the cache";

  const auto urls = signed_at("2");
  const BuildReport report = build_index(index_path(), urls, {.remote = remote()});
  EXPECT_EQ(report.shards_scanned, 0U);
  EXPECT_EQ(report.shards_moved, 0U) << "the index knows them without signatures";
  EXPECT_EQ(Index::open(index_path())->shard(3).url, plain[3]);
  read_all();
  EXPECT_EQ(total_gets(), gets);

  test::TestHttpServer mirror;
  Fetchers::Options options = test::quick_options();
  options.moved = {{server_.url("/"), mirror.url("/")}};
  fetchers_ = std::make_shared<const Fetchers>(options);
  read_all();
  EXPECT_TRUE(mirror.requests().empty()) << "the cache knows the shards by what the index stores";
}

TEST_F(RemoteDatasetTest, ShardsAreReadFromAMirror) {
  build_index(index_path(), serve(), {.remote = remote()});
  const int gets = total_gets();
  Fetchers::Options options = test::quick_options();
  options.moved = {{"http://old.example/data", server_.url("")}};
  fetchers_ = std::make_shared<const Fetchers>(options);
  std::vector<std::string> urls;
  for (int shard = 0; shard < kShards; ++shard) {
    urls.push_back("http://old.example/data/" + std::to_string(shard) + ".tar");
  }
  build_index(dir_ / "moved.idx", urls, {.remote = remote()});
  const auto data = Dataset::open(dir_ / "moved.idx", {.cache = cache()});
  EXPECT_EQ(data.index().shard(3).path, urls[3]) << "the index keeps the names";
  expect_all_samples(data);
  EXPECT_GT(total_gets(), gets);
}

TEST_F(RemoteDatasetTest, ManySamplesAndFieldsOfThemComeThroughACacheAndWithoutOne) {
  build_index(index_path(), serve(), {.remote = remote()});
  // From all shards to and fro, one twice, and none.
  std::vector<std::uint64_t> numbers = {999, 0, 50, 49, 500, 0, 730, 731};
  for (std::uint64_t i = 0; i < 200; ++i) numbers.push_back(i * 37 % (kShards * kSamples));
  const std::vector<Dataset> ways = {
      Dataset::open(index_path(), {.cache = cache()}),
      Dataset::open(index_path(), {.cache = ShardCache::open({.directory = dir_ / "small",
                                                              .budget_bytes = 4 * shard_bytes_,
                                                              .fetchers = fetchers_})}),
      Dataset::open(index_path(), {.access = Dataset::Access::kRange, .fetchers = fetchers_})};
  for (const Dataset& data : ways) {
    std::vector<std::string> expected;
    for (const std::uint64_t i : numbers) {
      expected.push_back("text s" + std::to_string(1000 * (i / kSamples) + i % kSamples));
    }
    std::vector<std::string> seen, gathered;
    for (const Sample& sample : data.samples(numbers)) {
      EXPECT_EQ(sample.index(), numbers[seen.size()]);
      seen.emplace_back(sample["txt"]);
    }
    EXPECT_EQ(seen, expected);

    std::vector<std::int64_t> offsets;
    std::vector<std::byte> bytes;
    data.gather(numbers, "txt", offsets, bytes);
    ASSERT_EQ(offsets.size(), numbers.size() + 1);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      gathered.emplace_back(reinterpret_cast<const char*>(bytes.data()) + offsets[i],
                            static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
    }
    EXPECT_EQ(gathered, expected);
    EXPECT_EQ(static_cast<std::size_t>(offsets.back()), bytes.size());
    data.gather({}, "txt", offsets, bytes);
    EXPECT_TRUE(bytes.empty());
    const std::vector<std::uint64_t> one = {7};
    EXPECT_THAT(error_text([&] { data.gather(one, "jpg", offsets, bytes); }), HasSubstr("jpg"));
  }
  const auto without = Dataset::open(index_path());
  EXPECT_THAT(error_text([&] {
                for (const Sample& sample : without.samples(numbers)) EXPECT_FALSE(sample.index());
              }),
              HasSubstr("the shard is remote, and there is no shard cache"));
}

TEST_F(RemoteDatasetTest, UrlsInPlaceOfAnIndexWillDo) {
  std::string list;
  for (const std::string& url : serve()) list += url + "\n";
  test::write_file(dir_ / "list.txt", list);
  const auto open = [&] {
    return Dataset::open("@" + (dir_ / "list.txt"),
                         {.cache = cache(), .index_cache = {.directory = dir_ / "idx"}});
  };
  expect_all_samples(open());
  const int gets = total_gets();
  expect_all_samples(open());
  EXPECT_EQ(total_gets(), gets) << "nothing is read again";
  server_.serve("/19.tar",
                {.body = TarBuilder().file("new.txt", "x").end().bytes(), .etag = "\"v2\""});
  const Dataset changed = open();
  EXPECT_EQ(changed.get("new").copy("txt"), "x");
  EXPECT_EQ(total_gets(), gets + 2) << "for the index, and for the cache";

  // A server that says nothing of versions: the shard may always be another.
  server_.serve("/odd.tar", {.body = TarBuilder().file("1.txt", "x").end().bytes(), .etag = ""});
  for (int i = 1; i < 4; ++i) {
    Dataset::open(server_.url("/odd.tar"), {.index_cache = {.directory = dir_ / "idx"}});
    EXPECT_EQ(server_.gets("/odd.tar"), i);
  }
}

TEST_F(RemoteDatasetTest, GivesTheTableOfTheSameShardsInPlace) {
  const auto urls = serve();
  std::vector<std::string> files;
  for (int shard = 0; shard < kShards; ++shard) {
    files.push_back(dir_ / (std::to_string(shard) + ".tar"));
    test::StringSink sink;
    fetchers_->fetch({.url = urls[static_cast<std::size_t>(shard)]}, sink);
    test::write_file(files.back(), sink.bytes);
  }
  const auto content = Index::Content{.columns = {parse_column("cls")}, .hashes = true};
  build_index(dir_ / "local.idx", files, {.content = content});
  build_index(index_path(), urls, {.content = content, .remote = remote()});
  const auto local = Index::open(dir_ / "local.idx"), there = Index::open(index_path());
  EXPECT_EQ(local->fingerprint(), there->fingerprint());
  for (std::uint64_t shard = 0; shard < kShards; ++shard) {
    EXPECT_EQ(local->shard(shard).content_hash, there->shard(shard).content_hash);
    EXPECT_EQ(local->shard(shard).size_bytes, there->shard(shard).size_bytes);
    EXPECT_EQ(segment_of(*local, shard).member_hash(7), segment_of(*there, shard).member_hash(7));
    EXPECT_EQ(segment_of(*local, shard).value(0, 7).integer,
              segment_of(*there, shard).value(0, 7).integer);
  }
}

TEST_F(RemoteDatasetTest, OfLargeMembersOnlyTheHeadersAreAskedFor) {
  TarBuilder tar;
  for (int i = 0; i < 4; ++i) {
    const std::string key = "k" + std::to_string(i);
    tar.file(key + ".mp4", test::some_bytes(8 << 20)).file(key + ".cls", std::to_string(i));
  }
  tar.end();
  server_.serve("/large.tar", {.body = tar.bytes()});
  build_index(index_path(), {server_.url("/large.tar")},
              {.content = {.columns = {parse_column("cls")}}, .remote = remote()});
  const auto index = Index::open(index_path());
  EXPECT_EQ(index->size(), 4u);
  EXPECT_EQ(segment_of(*index, 0).value(0, 3).integer, 3);
  std::uint64_t asked = 0;
  for (const auto& request : server_.requests()) {
    const std::string range = request.header("range");
    if (request.method != "GET") continue;
    ASSERT_THAT(range, ::testing::StartsWith("bytes="));
    const std::size_t dash = range.find('-');
    asked += std::stoull(range.substr(dash + 1)) - std::stoull(range.substr(6)) + 1;
  }
  EXPECT_LT(asked, tar.size() / 10);
}

TEST_F(RemoteDatasetTest, KeepPutsWhatIsIndexedIntoTheCache) {
  const auto urls = serve();
  build_index(index_path(), urls, {.remote = remote(cache())});
  const int gets = total_gets();
  const auto data = Dataset::open(index_path(), {.cache = cache()});
  expect_all_samples(data);
  for (std::uint64_t i = 0; i < data.size(); ++i) data[i].integer("cls");
  EXPECT_EQ(total_gets(), gets) << "all is there";
}

class RemoteCompressedTest : public RemoteDatasetTest,
                             public ::testing::WithParamInterface<bool> {};

TEST_P(RemoteCompressedTest, IsIndexedAndExpandedIntoTheCache) {
  const auto urls = serve(Compression::kGzip);
  build_index(index_path(), urls, {.remote = remote(GetParam() ? cache() : nullptr)});
  const int gets = total_gets();
  const auto data = Dataset::open(index_path(), {.cache = cache()});
  expect_all_samples(data);
  EXPECT_EQ(data.index().shard(0).compression, Compression::kGzip);
  if (GetParam()) {
    EXPECT_EQ(total_gets(), gets);
  }
  EXPECT_THAT(error_text([&] { Dataset::open(index_path())[0]; }),
              AllOf(HasSubstr("compressed (gzip)"), HasSubstr("no shard cache to expand it into"),
                    HasSubstr("Dataset::Options::cache")));
}
INSTANTIATE_TEST_SUITE_P(KeepOrNot, RemoteCompressedTest, ::testing::Bool());

TEST_F(RemoteDatasetTest, ALocalCompressedShardIsExpandedIntoTheCache) {
  const auto paths = test::write_shards(dir_, 2, 10);
  for (const std::string& path : paths) {
    test::write_file(path, test::compress(test::read_file(path), Compression::kZstd));
  }
  build_index(index_path(), paths);
  const auto data = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_EQ(data[13].copy("txt"), "text 13");
  EXPECT_EQ(data.cache()->stats().fetched, 1u);
  test::write_file(paths[0], "another");
  EXPECT_EQ(error_code([&] { data[3]; }), ErrorCode::kStaleIndex);
  // By another way to it, it is the same file.
  std::filesystem::create_directory_symlink(dir_.path(), dir_ / "link");
  const auto again = Dataset::open(dir_ / "link/remote.idx", {.cache = cache()});
  EXPECT_EQ(again[13].copy("txt"), "text 13");
  EXPECT_EQ(again.cache()->stats().fetched, 0u);
}

// faults.md 47
TEST_F(RemoteDatasetTest, OfShardsThatWereExchangedInTheCacheTheRightBytesAreRead) {
  build_index(index_path(), serve(Compression::kGzip), {.remote = remote()});
  const auto file = [&](const Dataset& data, std::uint64_t shard) {
    return dir_ / "cache/shards/" +
           CacheAccess::name_of(*detail::cache_request(data.shared_index(), shard)) + ".tar";
  };
  {
    const auto data = Dataset::open(index_path(), {.cache = cache()});
    expect_all_samples(data);
    const std::string first = test::read_file(file(data, 0));
    test::write_file(file(data, 0), test::read_file(file(data, 1)));
    test::write_file(file(data, 1), first);
  }
  const auto data = Dataset::open(index_path(), {.cache = cache()});
  expect_all_samples(data);
  EXPECT_EQ(data.cache()->stats().fetched, 2u);
  EXPECT_THAT(data.cache()->verify().damaged, ::testing::IsEmpty());
}

// faults.md 3
// faults.md 73
TEST_F(RemoteDatasetTest, WhatOthersForgedInTheCacheIsFoundByTheIndexsHashes) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs another user";
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    std::filesystem::remove_all(dir_ / "cache");
    std::filesystem::remove(index_path());
    build_index(index_path(), serve(compression),
                {.content = {.hashes = true}, .remote = remote()});
    expect_all_samples(Dataset::open(index_path(), {.cache = cache()}));
    // Another byte in a member of each shard, and a record that fits.
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache/shards")) {
      if (entry.path().extension() != ".tar") continue;
      const std::string path = entry.path(), note = path.substr(0, path.size() - 3) + "json";
      std::string bytes = test::read_file(path);
      bytes[bytes.find("text s")] = 'T';
      test::write_file(path, bytes);
      auto record = nlohmann::json::parse(test::read_file(note));
      const Hash128 hash = hash128(bytes);
      record["hash"] = {hash.high, hash.low};
      record["mtime_ns"] = file_identity(path).mtime_ns;
      record["start_hash"] = hash64(std::string_view(bytes).substr(0, 4096));
      test::write_file(note, record.dump());
    }
    {
      const Sample sample = Dataset::open(index_path(), {.cache = cache()})[0];
      ASSERT_EQ(sample["txt"].front(), 'T')
          << "in a cache of this user's alone its record is believed";
    }
    const auto shared = [&](bool is_read_only) {
      return Dataset::open(index_path(),
                           {.cache = ShardCache::open({.directory = dir_ / "cache",
                                                       .fetchers = fetchers_,
                                                       .read_only = is_read_only,
                                                       .group_shared = !is_read_only})});
    };
    for (const char* name : {"", "/shards"}) {
      ::chown((dir_ / "cache" + name).c_str(), 54'321, 54'321);
    }
    const Dataset data = shared(true);
    EXPECT_THAT(error_text([&] { data[0]; }),
                AllOf(HasSubstr("the shard in the cache is not the one that was indexed"),
                      HasSubstr("the content of"), HasSubstr("0.tar")));
    for (const char* name : {"", "/shards", "/futures"}) {
      ::chmod((dir_ / "cache" + name).c_str(), 02770);
    }
    expect_all_samples(shared(false));
  }
}

TEST_F(RemoteDatasetTest, AnEpochWithLessBringsTheCacheDownToItsBudget) {
  build_index(index_path(), serve(), {.remote = remote(cache())});
  ASSERT_EQ(cache()->used_bytes(), kShards * shard_bytes_);
  const std::uint64_t budget = kShards / 2 * shard_bytes_;
  const auto data =
      Dataset::open(index_path(), {.cache = cache(budget, std::chrono::milliseconds(5))});
  // Every shard is in use all the time.
  const auto sampler = make_sampler(data, {.seed = 3, .kind = Chunked{5, 200}});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 1});
  ASSERT_TRUE(prefetcher.is_active());
  std::uint64_t samples = 0;
  while (const auto number = sampler->next()) {
    const Sample sample = data[*number];
    ASSERT_EQ(sample["txt"], "text " + std::string(sample.key()));
    prefetcher.reached(++samples);
  }
  EXPECT_EQ(samples, data.size());
  // What lies beside the cache, for as long as it is mapped, does not count.
  EXPECT_EQ(data.cache()->entries().size() * shard_bytes_, budget);
  EXPECT_EQ(data.cache()->stats().evicted, std::uint64_t{kShards - kShards / 2});
}

/// What an epoch that uses all shards all the time does over a cache that holds few of them.
struct SmallCacheRun {
  std::uint64_t most_bytes = 0;  // in the cache's folder
  ShardCache::Stats stats;
};
SmallCacheRun run_in_small_cache(const Dataset& data, const std::string& folder) {
  const auto sampler = make_sampler(data, {.seed = 3, .kind = Chunked{5, 200}});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 1});
  EXPECT_TRUE(prefetcher.is_active());
  SmallCacheRun run;
  std::uint64_t samples = 0;
  while (const auto number = sampler->next()) {
    const Sample sample = data[*number];
    EXPECT_EQ(sample["txt"], "text " + std::string(sample.key()));
    prefetcher.reached(++samples);
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/shards")) {
      std::error_code gone;
      const std::string name = entry.path().filename();
      const auto size = entry.file_size(gone);
      if (!gone && name.find(".tar") != std::string::npos) bytes += size;
    }
    run.most_bytes = std::max(run.most_bytes, bytes);
  }
  EXPECT_EQ(samples, data.size());
  run.stats = data.cache()->stats();
  return run;
}

// faults.md 16
TEST_F(RemoteDatasetTest, WhereShardsInUseDoNotFitOneLiesBesideTheBudgetAndTheRestIsReadPast) {
  build_index(index_path(), serve(), {.remote = remote()});
  for (const std::uint64_t budget : {4 * shard_bytes_, shard_bytes_}) {
    const int before = total_gets();
    const auto data = Dataset::open(index_path(), {.cache = cache(budget)});
    const SmallCacheRun run = run_in_small_cache(data, dir_ / "cache");
    EXPECT_LE(run.most_bytes, budget + shard_bytes_);
    EXPECT_GE(run.most_bytes, budget);
    EXPECT_LE(run.stats.fetched, std::uint64_t{kShards}) << "no more than one for each use";
    EXPECT_LE(total_gets() - before, kShards * (kSamples + 2)) << "no sample is asked for twice";
    cache()->prune(0);
  }
}

// faults.md 16
TEST_F(RemoteDatasetTest, WhatCannotBeReadPastTheCacheTakesHalfTheBudgetBesideIt) {
  for (const bool is_compressed : {true, false}) {
    const auto urls = serve(is_compressed ? Compression::kGzip : Compression::kNone);
    for (int shard = 0; shard < kShards && !is_compressed; ++shard) {
      const std::string path = "/" + std::to_string(shard) + ".tar";
      server_.serve(path, {.body = tar_body(shard), .has_ranges = false});
    }
    build_index(index_path(), urls, {.remote = remote()});
    const std::uint64_t budget = 8 * shard_bytes_;
    const auto data = Dataset::open(index_path(), {.cache = cache(budget)});
    const SmallCacheRun run = run_in_small_cache(data, dir_ / "cache");
    // One more that comes, and the compressed originals of two.
    EXPECT_LE(run.most_bytes, budget + budget / 2 + 2 * shard_bytes_);
    EXPECT_GT(run.most_bytes, budget);
  }
}

// faults.md 16
TEST_F(RemoteDatasetTest, AShardThatIsReadPastTheCacheIsMappedOnceItHasCome) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto small = cache(shard_bytes_, std::chrono::milliseconds(5));
  const auto data = Dataset::open(index_path(), {.cache = small});
  const Sample inside = data[0], beside = data[kSamples];
  std::optional<Sample> past = data[2 * kSamples];
  EXPECT_EQ((*past)["txt"], "text s2000");
  EXPECT_EQ(server_.gets("/2.tar"), 1 + 2) << "for the index; its first block, and one sample";
  const Dataset other = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_EQ(other[2 * kSamples].copy("txt"), "text s2000");
  const int gets = server_.gets("/2.tar");
  EXPECT_EQ(data[2 * kSamples + 1].copy("txt"), "text s2001");
  EXPECT_EQ(server_.gets("/2.tar"), gets + 1) << "somebody holds a sample of it still";
  past.reset();
  EXPECT_EQ(data[2 * kSamples + 2].copy("txt"), "text s2002");
  EXPECT_EQ(server_.gets("/2.tar"), gets + 1);
  EXPECT_EQ(small->stats().fetched, 2U);
}

TEST_F(RemoteDatasetTest, BatchesThatSpanShardsAndAreHeldDoNotStallEviction) {
  build_index(index_path(), serve(), {.remote = remote()});
  // Who waited for a shard of its own batch would wait for an hour.
  const auto data =
      Dataset::open(index_path(), {.cache = cache(3 * shard_bytes_, std::chrono::hours(1))});
  const auto sampler = make_sampler(data, {.kind = Sequential{}});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 0});
  std::vector<Sample> held;  // two batches, each of three shards or four
  std::uint64_t samples = 0;
  while (const auto number = sampler->next()) {
    held.push_back(data[*number]);
    ASSERT_EQ(held.back()["txt"], "text " + std::string(held.back().key()));
    if (++samples % 120 != 0) continue;
    if (samples > 120) held.erase(held.begin(), held.begin() + 120);
    prefetcher.reached(samples);
    EXPECT_LE(data.cache()->used_bytes(), (3 + 6) * shard_bytes_);
  }
  EXPECT_EQ(samples, data.size());
  held.clear();
  prefetcher.reached(samples);
  EXPECT_LE(data.cache()->used_bytes(), 3 * shard_bytes_) << "what is let go leaves";
  EXPECT_EQ(data.cache()->stats().fetched, std::uint64_t{kShards});
}

// What a batch in the making has read may leave, though it was not delivered.
TEST_F(RemoteDatasetTest, WhatABatchHasReadLeavesAtOnceAndIsNotWaitedFor) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto data =
      Dataset::open(index_path(), {.cache = cache(2 * shard_bytes_, std::chrono::minutes(10))});
  const auto sampler = make_sampler(data, {.kind = Sequential{}});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 0});
  detail::ReadFrontier frontier([&](std::uint64_t num_read) { prefetcher.note_read(num_read); });
  std::uint64_t samples = 0;
  while (samples < data.size()) {
    constexpr std::uint64_t kBatch = 250;  // of five shards
    auto batch = frontier.begin(samples, samples + kBatch);
    for (std::uint64_t i = 0; i < kBatch; ++i) {
      batch.reach(samples + i);
      const std::uint64_t number = *sampler->next();
      const Sample sample = data[number];
      ASSERT_EQ(sample["txt"], "text " + std::string(sample.key()));
      ASSERT_LE(data.cache()->used_bytes(), 2 * shard_bytes_) << number;
    }
    samples += kBatch;
    prefetcher.reached(samples);
  }
  EXPECT_EQ(data.cache()->stats().fetched, std::uint64_t{kShards});
  EXPECT_EQ(data.cache()->stats().bypassed, 0U);
}

TEST_F(RemoteDatasetTest, WithoutACacheTheErrorSaysHowToGetOne) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto data = Dataset::open(index_path());
  EXPECT_THAT(error_text([&] { data[0]; }),
              AllOf(HasSubstr("remote, and there is no shard cache"), HasSubstr("/0.tar"),
                    HasSubstr("Dataset::Options::cache"), HasSubstr("Dataset::Access::kRange")));
  EXPECT_THAT(error_text([&] { build_index(dir_ / "x.idx", serve()); }),
              HasSubstr("no access to remote files"));
}

TEST_F(RemoteDatasetTest, SingleSamplesAreReadByRange) {
  build_index(index_path(), serve(), {.remote = remote()});
  const int before = total_gets();
  const auto data =
      Dataset::open(index_path(), {.access = Dataset::Access::kRange, .fetchers = fetchers_});
  expect_all_samples(data);
  EXPECT_EQ(total_gets() - before, 5 + 4) << "one request a sample, and one a shard";
  server_.serve("/0.tar", {.body = std::string(shard_bytes_, 'x'), .etag = "\"v2\""});
  EXPECT_EQ(error_code([&] { data[0]; }), ErrorCode::kStaleIndex);
}

// faults.md 13
TEST_F(RemoteDatasetTest, AShardThatChangedAtItsSourceIsStaleAndNotKept) {
  build_index(index_path(), serve(), {.remote = remote()});
  TarBuilder other;
  for (int i = 0; i < kSamples; ++i) {
    other.file("t" + std::to_string(1000 + i) + ".txt", "text s" + std::to_string(1000 + i));
    other.file("t" + std::to_string(1000 + i) + ".cls", std::to_string(i % 10));
  }
  other.end();
  ASSERT_EQ(other.size(), shard_bytes_) << "right length, wrong bytes";
  server_.serve("/1.tar", {.body = other.bytes()});
  const auto data = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_THAT(error_text([&] { data[kSamples]; }),
              AllOf(HasSubstr("not the shard that was indexed"), HasSubstr("/1.tar")));
  EXPECT_EQ(data.cache()->used_bytes(), 0u);
  EXPECT_EQ(data[0].copy("txt"), "text s0") << "the others can be read";
}

/// A shard of the same size and headers whatever `word`, of four letters, it is filled with.
std::string tar_of(const std::string& word, bool in_other_order = false) {
  TarBuilder tar;
  for (int i = 0; i < kSamples; ++i) {
    const std::string key = "s" + std::to_string(100 + i);
    if (in_other_order) tar.file(key + ".cls", word);
    tar.file(key + ".txt", word);
    if (!in_other_order) tar.file(key + ".cls", word);
  }
  return tar.end().bytes();
}

std::string all_words(const Dataset& data) {
  std::string words;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    for (const char* field : {"txt", "cls"}) words += data[i].copy(field);
  }
  return words;
}

std::string repeated(const std::string& word) {
  std::string words;
  for (int i = 0; i < 2 * kSamples; ++i) words += word;
  return words;
}

// faults.md 47
TEST_F(RemoteDatasetTest, SingleSamplesOfAShardThatChangedUnderItsEtagAreStale) {
  const std::string before = tar_of("old."), after = tar_of("new!", true);
  ASSERT_EQ(before.size(), after.size());
  for (const bool hashes : {false, true}) {
    for (const bool by_time : {false, true}) {
      const auto serve_one = [&](const std::string& body) {
        server_.serve("/x.tar", {.body = body,
                                 .etag = by_time ? "" : "\"v1\"",
                                 .last_modified = "Mon, 02 Jan 2023 00:00:00 GMT"});
      };
      serve_one(before);
      build_index(index_path(), {server_.url("/x.tar")},
                  {.content = {.hashes = hashes}, .remote = remote()});
      const auto open = [&] {
        return Dataset::open(index_path(),
                             {.access = Dataset::Access::kRange, .fetchers = fetchers_});
      };
      const int gets = server_.gets("/x.tar");
      const auto data = open();
      EXPECT_EQ(all_words(data), repeated("old."));
      EXPECT_EQ(server_.gets("/x.tar") - gets, 2 * kSamples + (hashes ? 0 : 1))
          << "the header once, unless hashes say more";
      serve_one(after);
      const auto changed = open();
      for (const std::uint64_t i : {0, kSamples - 1}) {
        EXPECT_EQ(error_code([&] { changed[i]; }), ErrorCode::kStaleIndex);
      }
      EXPECT_THAT(error_text([&] { changed[0]; }),
                  AllOf(HasSubstr("/x.tar"),
                        HasSubstr(hashes ? "the fetched bytes are not those that were indexed"
                                         : "though its size and validator did not"),
                        HasSubstr("offset")));
    }
  }
}

// faults.md 13: as a whole shard is, until it comes wrong in the same way twice.
TEST_F(RemoteDatasetTest, SingleSamplesThatCameToHarmAreFetchedAgain) {
  const std::string right = tar_of("old.");
  server_.serve("/x.tar", {.body = right});
  build_index(index_path(), {server_.url("/x.tar")},
              {.content = {.hashes = true}, .remote = remote()});
  const auto data =
      Dataset::open(index_path(), {.access = Dataset::Access::kRange, .fetchers = fetchers_});
  const auto gets_of_one = [&](int num_wrong, bool same_way) {
    const int before = server_.gets("/x.tar");
    server_.serve("/x.tar",
                  {.body = right, .before_get = [&, num = 0](test::ServedFile& file) mutable {
                     file.body = right;
                     if (num++ >= num_wrong) return;
                     for (char& c : file.body) c ^= static_cast<char>(same_way ? 1 : num);
                   }});
    bool has_come = true;
    try {
      EXPECT_EQ(data[0].copy("txt"), "old.");
    } catch (const StaleIndex&) {
      has_come = false;
    }
    return std::pair(server_.gets("/x.tar") - before, has_come);
  };
  EXPECT_EQ(gets_of_one(0, true), std::pair(1, true));
  EXPECT_EQ(gets_of_one(1, true), std::pair(2, true));
  EXPECT_EQ(gets_of_one(3, false), std::pair(4, true));
  EXPECT_EQ(gets_of_one(9, true), std::pair(2, false)) << "then its server has nothing else";
  EXPECT_EQ(gets_of_one(9, false), std::pair(4, false));
}

struct ReuploadCase {
  const char* name;
  Compression compression = Compression::kNone;
  bool hashes = false;
  bool keeps = false;
  bool in_other_order = false;
  const char* first = "\"v1\"";
  const char* second = "\"v2\"";
};

// faults.md 47
class ReuploadTest : public RemoteDatasetTest, public ::testing::WithParamInterface<ReuploadCase> {
 protected:
  void upload(const std::string& word, const std::string& etag, bool in_other_order = false) {
    server_.serve("/x.tar",
                  {.body = test::compress(tar_of(word, in_other_order), GetParam().compression),
                   .etag = etag});
  }
  void index(const std::string& path) {
    build_index(path, {server_.url("/x.tar")},
                {.content = {.hashes = GetParam().hashes},
                 .remote = remote(GetParam().keeps ? cache() : nullptr)});
  }
};

TEST_P(ReuploadTest, EachIndexGetsItsVersionFromOneCache) {
  upload("old.", GetParam().first);
  index(dir_ / "old.idx");
  index(index_path());
  const auto before = Dataset::open(dir_ / "old.idx", {.cache = cache()});
  EXPECT_EQ(all_words(before), repeated("old."));
  upload("new!", GetParam().second, GetParam().in_other_order);
  index(index_path());
  const auto after = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_EQ(all_words(after), repeated("new!"));
  EXPECT_EQ(all_words(before), repeated("old."));
  EXPECT_THAT(cache()->verify().damaged, ::testing::IsEmpty());
  if (std::string_view(GetParam().first).empty()) return;  // which can be known by its hash only
  EXPECT_THAT(cache()->entries(), ::testing::SizeIs(2));
  const int gets = server_.gets("/x.tar");
  EXPECT_EQ(all_words(Dataset::open(dir_ / "old.idx", {.cache = cache()})), repeated("old."));
  EXPECT_EQ(all_words(Dataset::open(index_path(), {.cache = cache()})), repeated("new!"));
  EXPECT_EQ(server_.gets("/x.tar"), gets);
}

TEST_P(ReuploadTest, WhatIsNotIndexedAgainIsStale) {
  upload("old.", GetParam().first);
  index(index_path());
  cache()->prune(0);
  upload("new!", GetParam().second);
  const auto data = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_THAT(error_text([&] { data[0]; }), HasSubstr(server_.url("/x.tar")));
  EXPECT_EQ(error_code([&] { data[0]; }), ErrorCode::kStaleIndex);
  if (*GetParam().first != '\0') {
    EXPECT_THAT(error_text([&] { data[0]; }),
                AllOf(HasSubstr(GetParam().first), HasSubstr(GetParam().second)));
  }
  EXPECT_EQ(data.cache()->used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ReuploadTest,
    ::testing::Values(
        ReuploadCase{.name = "Plain"}, ReuploadCase{.name = "Hash", .hashes = true},
        ReuploadCase{.name = "Gzip", .compression = Compression::kGzip},
        ReuploadCase{.name = "GzipHash", .compression = Compression::kGzip, .hashes = true},
        ReuploadCase{.name = "Keep", .keeps = true},
        ReuploadCase{.name = "KeepHash", .hashes = true, .keeps = true},
        ReuploadCase{.name = "KeepGzip", .compression = Compression::kGzip, .keeps = true},
        ReuploadCase{.name = "OtherOrder", .in_other_order = true},
        ReuploadCase{.name = "WeakEtag", .first = "W/\"1\"", .second = "W/\"2\""},
        ReuploadCase{.name = "NoEtag", .first = "", .second = ""},
        ReuploadCase{.name = "NoEtagKeep", .keeps = true, .first = "", .second = ""},
        ReuploadCase{.name = "NoEtagKeepGzip",
                     .compression = Compression::kGzip,
                     .keeps = true,
                     .first = "",
                     .second = ""}),
    [](const auto& way) { return std::string(way.param.name); });

// faults.md 47
TEST_F(RemoteDatasetTest, AServerThatKeepsItsEtagIsNoticedByHashes) {
  server_.serve("/x.tar", {.body = tar_of("old.")});
  build_index(index_path(), {server_.url("/x.tar")},
              {.content = {.hashes = true}, .remote = remote()});
  server_.serve("/x.tar", {.body = tar_of("new!")});
  const auto cached = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_THAT(error_text([&] { cached[0]; }), HasSubstr("not those that were indexed"));
  const auto ranged =
      Dataset::open(index_path(), {.access = Dataset::Access::kRange, .fetchers = fetchers_});
  EXPECT_THAT(error_text([&] { ranged[7]; }),
              AllOf(HasSubstr("the fetched bytes are not those that were indexed"),
                    HasSubstr("sample 7 ('s107')"), HasSubstr(server_.url("/x.tar"))));
  EXPECT_EQ(error_code([&] { ranged[7]; }), ErrorCode::kStaleIndex);
}

// faults.md 47
TEST_F(RemoteDatasetTest, OfAShardWithoutVersionsSamplesAreHeldToTheirHashes) {
  const auto open = [&](bool hashes) {
    server_.serve("/x.tar", {.body = tar_of("old."), .etag = ""});
    build_index(index_path(), {server_.url("/x.tar")},
                {.content = {.hashes = hashes}, .remote = remote()});
    return Dataset::open(index_path(), {.access = Dataset::Access::kRange, .fetchers = fetchers_});
  };
  const auto hashed = open(true);
  EXPECT_EQ(hashed[7].copy("txt"), "old.");
  server_.serve("/x.tar", {.body = tar_of("new!"), .etag = ""});
  EXPECT_EQ(error_code([&] { hashed[7]; }), ErrorCode::kStaleIndex);
  const auto unhashed = open(false);
  EXPECT_THAT(error_text([&] { unhashed[7]; }),
              AllOf(HasSubstr("no ETag and no Last-Modified"), HasSubstr(server_.url("/x.tar")),
                    HasSubstr("Index::Content::hashes")));
  EXPECT_EQ(error_code([&] { unhashed[7]; }), ErrorCode::kUnsupported);
}

TEST_F(RemoteDatasetTest, ServersAreAskedInParallelAndAnswersComeInOrder) {
  const auto urls = serve();
  const auto slow = [&](int shard, test::ServedFile file) {
    file.delay = std::chrono::milliseconds(20 + 5 * (shard % 3));
    server_.serve("/" + std::to_string(shard) + ".tar", std::move(file));
  };
  TarBuilder tar;
  tar.file("a.txt", "a").end();
  for (int shard = 0; shard < kShards; ++shard) slow(shard, {.body = tar.bytes()});
  server_.remove("/13.tar");
  server_.remove("/4.tar");
  EXPECT_THAT(error_text([&] { build_index(index_path(), urls, {.remote = remote()}); }),
              HasSubstr("/4.tar"));

  // One connection would do for one request at a time.
  const int before = server_.num_connections();
  const int heads = server_.count("HEAD", "/13.tar");
  fetchers_ = std::make_shared<const Fetchers>(test::quick_options());
  const BuildReport report =
      build_index(index_path(), urls, {.drop_missing = true, .remote = remote()});
  EXPECT_EQ(report.dropped, (std::vector<std::string>{urls[4], urls[13]}));
  EXPECT_EQ(server_.count("HEAD", "/13.tar"), heads + 1);
  EXPECT_GE(server_.num_connections() - before, 4);

  const int between = server_.num_connections();
  slow(7, {.body = tar.bytes(), .etag = "\"v2\""});
  slow(9, {.body = tar.bytes() + std::string(512, '\0')});
  fetchers_ = std::make_shared<const Fetchers>(test::quick_options());
  const auto index = Index::open(index_path());
  std::vector<std::string> different;
  std::uint64_t next = 0, bytes_done = 0;
  verify_shards(*index,
                {.remote = remote(),
                 .progress =
                     [&](const Progress& at) {
                       EXPECT_GE(at.bytes_done, bytes_done);
                       bytes_done = at.bytes_done;
                     }},
                [&](std::uint64_t shard, const std::optional<std::string>& problem) {
                  EXPECT_EQ(shard, next++);
                  if (problem) different.push_back(index->shard(shard).path);
                });
  EXPECT_EQ(next, index->num_shards());
  EXPECT_EQ(bytes_done, index->summary().shard_bytes);
  EXPECT_EQ(different, (std::vector<std::string>{urls[7], urls[9]}));
  EXPECT_GE(server_.num_connections() - between, 4);
}

TEST_F(RemoteDatasetTest, NoMoreRequestsAreAskedAtATimeThanAHostMayHave) {
  const auto urls = serve();
  for (int shard = 0; shard < kShards; ++shard) {
    server_.serve("/" + std::to_string(shard) + ".tar",
                  {.body = TarBuilder().file("a.txt", "a").end().bytes(),
                   .delay = std::chrono::milliseconds(5)});
  }
  Fetchers::Options options = test::quick_options();
  options.max_connections_per_host = 2;
  fetchers_ = std::make_shared<const Fetchers>(options);
  build_index(index_path(), urls, {.remote = remote()});
  EXPECT_LE(server_.num_connections(), 2);
}

TEST_F(RemoteDatasetTest, VerifyReadsRemoteShards) {
  build_index(index_path(), serve(), {.content = {.hashes = true}, .remote = remote()});
  const auto index = Index::open(index_path());
  const auto source = remote();
  EXPECT_EQ(verify_shard(*index, 2, {.remote = source}), std::nullopt);
  EXPECT_EQ(verify_shard(*index, 2, {.full = true, .remote = source}), std::nullopt);
  test::StringSink sink;
  fetchers_->fetch({.url = server_.url("/2.tar")}, sink);
  sink.bytes[kTarBlockBytes] ^= 1;  // the first byte of data
  server_.serve("/2.tar", {.body = sink.bytes});
  EXPECT_EQ(verify_shard(*index, 2, {.remote = source}), std::nullopt) << "headers are right";
  EXPECT_THAT(*verify_shard(*index, 2, {.full = true, .remote = source}),
              HasSubstr("the content of 's2000.txt'"));
  server_.serve("/2.tar", {.body = sink.bytes, .etag = "\"v2\""});
  EXPECT_THAT(*verify_shard(*index, 2, {.remote = source}), HasSubstr("changed at its source"));
}

/// Loads an epoch, with prefetching as told, and gives the bytes that were fetched.
std::uint64_t load_epoch(const Dataset& data, Sampler& sampler, ShardPrefetcher* prefetcher,
                         unsigned threads, std::vector<bool>& seen) {
  const std::uint64_t before = data.cache()->stats().fetched_bytes;
  auto loader = test::sample_pipeline(
      data, [&] { return sampler.next(); },
      [](const Sample& sample) {
        std::string text(sample["txt"]);
        if (text != "text " + std::string(sample.key())) throw std::runtime_error("wrong bytes");
        return sample.index();
      },
      {.threads = threads});
  std::uint64_t delivered = 0;
  while (const auto i = loader.next()) {
    seen.at(*i) = true;
    if (prefetcher != nullptr) prefetcher->reached(++delivered);
  }
  return data.cache()->stats().fetched_bytes - before;
}

struct PlanCase {
  const char* name;
  OrderKind kind;
  unsigned loader_threads;
  unsigned prefetch_threads;
};

class PlannedEpochTest : public RemoteDatasetTest,
                         public ::testing::WithParamInterface<PlanCase> {};

TEST_P(PlannedEpochTest, FetchesWhatThePlanSaysAndNoMoreThanLru) {
  const PlanCase& how = GetParam();
  build_index(index_path(), serve(), {.remote = remote()});
  const std::uint64_t budget = kShards / 5 * shard_bytes_;  // 20 % of the data
  const auto data = Dataset::open(index_path(), {.cache = cache(budget, std::chrono::seconds(30))});
  const auto sampler = make_sampler(data, {.seed = 3, .kind = how.kind});
  constexpr std::uint64_t kEpochs = 3;
  const FetchPlan plan = plan_fetches(*sampler, FetchPlan::Shards::of(data),
                                      {.nodes = 1, .cache_bytes = budget, .epochs = kEpochs});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = how.prefetch_threads});
  ASSERT_TRUE(prefetcher.is_active());
  std::uint64_t planned = 0, planned_lru = 0, fetched = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    sampler->set_epoch(epoch);
    prefetcher.begin_epoch(*sampler);
    std::vector<bool> seen(data.size());
    fetched += load_epoch(data, *sampler, &prefetcher, how.loader_threads, seen);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<long>(data.size()));
    EXPECT_LE(data.cache()->used_bytes(), budget);
    planned += plan.total(epoch).next_use.bytes_fetched;
    planned_lru += plan.total(epoch).lru.bytes_fetched;
    if (how.prefetch_threads == 0) {
      EXPECT_EQ(fetched, planned) << "epoch " << epoch;
    } else {
      // Shards for the next epoch are fetched before this one ends. One shard more or less: threads
      // that read and threads that fetch ahead may overtake each other, on a busy machine.
      EXPECT_GE(fetched + budget + shard_bytes_, planned) << "epoch " << epoch;
      EXPECT_LE(fetched, planned + budget + shard_bytes_) << "epoch " << epoch;
    }
  }
  EXPECT_LT(planned, planned_lru);
  EXPECT_EQ(data.cache()->stats().bypassed, 0u);
}
INSTANTIATE_TEST_SUITE_P(Ways, PlannedEpochTest,
                         ::testing::Values(PlanCase{"OneThread", Sharded{1}, 0, 0},
                                           PlanCase{"Loader", Sharded{1}, 2, 0},
                                           PlanCase{"LoaderAndPrefetcher", Sharded{1}, 2, 2},
                                           PlanCase{"Window", Sharded{3}, 2, 2},
                                           PlanCase{"ChunkedWindow", Chunked{kSamples, 2}, 2, 2}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_F(RemoteDatasetTest, ACacheTooSmallForAWindowIsNoticedBeforehand) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto warning = [&](std::uint64_t num_shards, std::uint64_t window) {
    const auto data = Dataset::open(
        index_path(), {.cache = cache(num_shards * shard_bytes_, std::chrono::seconds(30))});
    return small_cache_warning(data, *make_sampler(data, {.seed = 1, .kind = Sharded{window}}),
                               {.first = 0, .count = 1});
  };
  EXPECT_EQ(warning(4, 4), std::nullopt);
  EXPECT_EQ(warning(1, 1), std::nullopt);
  EXPECT_THAT(warning(3, 4).value(),
              testing::AllOf(HasSubstr("uses up to"),
                             HasSubstr("(" + std::to_string(4 * shard_bytes_) + " bytes)"),
                             HasSubstr("so that samples of what has no room are read one by one "
                                       "from their source, or shards may be fetched again; choose "
                                       "a smaller window or a larger cache")));
  // Several ranks with a window each, which cannot be smaller.
  const auto shared =
      Dataset::open(index_path(), {.cache = cache(2 * shard_bytes_, std::chrono::seconds(30))});
  const auto ranks =
      make_sampler(shared, {.seed = 1, .kind = Sharded{1}, .streams = 3}, {.world_size = 3});
  EXPECT_THAT(small_cache_warning(shared, *ranks, {.first = 0, .count = 3}).value(),
              testing::EndsWith("shards may be fetched again; choose a larger cache"));
  const auto data = Dataset::open(index_path());
  EXPECT_EQ(small_cache_warning(data, *make_sampler(data, {.kind = Sharded{100}}), {}),
            std::nullopt)
      << "there is no cache";
}

TEST_F(RemoteDatasetTest, ACacheTooSmallForSingleDrawsIsNoticedBeforehand) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto warning = [&](std::uint64_t num_shards, const OrderKind& kind,
                           std::uint64_t last_sample = 0) {
    auto data = Dataset::open(
        index_path(), {.cache = cache(num_shards * shard_bytes_, std::chrono::seconds(30))});
    if (last_sample != 0) {
      data = data.where("sample <= " + std::to_string(last_sample));
    }
    return small_cache_warning(data, *make_sampler(data, {.seed = 1, .kind = kind}),
                               {.first = 0, .count = 1});
  };
  EXPECT_THAT(
      warning(3, Resampled{}).value(),
      testing::AllOf(HasSubstr("the order takes samples from any shard at any time, and so uses "),
                     HasSubstr("(" + std::to_string(kShards * shard_bytes_) + " bytes)"),
                     HasSubstr("choose the order `sharded` with a window of 3 shards at most")));
  EXPECT_EQ(warning(3, Sharded{3}), std::nullopt) << "the advice holds";
  EXPECT_EQ(warning(kShards, Resampled{}), std::nullopt) << "it holds all";
  EXPECT_EQ(warning(3, Resampled{.unit = Resampled::Unit::kShard}), std::nullopt);
  EXPECT_EQ(warning(1, Resampled{}, kSamples - 1), std::nullopt) << "a view of one shard";
  EXPECT_NE(warning(1, Resampled{}, kSamples), std::nullopt) << "a view of two shards";
}

/// Where processes wait for each other, as the ranks of a data parallel run do after each step.
struct Meeting {
  std::atomic<std::uint64_t> arrived{0};
};

TEST_F(RemoteDatasetTest, FourRanksInStepShareWhatIsFetched) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer lets no thread begin in a child of a process with threads";
#endif
  constexpr std::uint64_t kRanks = 4, kBatch = 10;
  build_index(index_path(), serve(), {.remote = remote()});
  const std::uint64_t budget = kShards / 5 * shard_bytes_;
  const Order order{.seed = 5, .kind = Sharded{.window = 1}};
  FetchPlan plan;
  {
    const auto data = Dataset::open(index_path());
    plan =
        plan_fetches(*make_sampler(data, order, {.world_size = kRanks}),
                     FetchPlan::Shards::of(data), {.nodes = 1, .cache_bytes = budget, .epochs = 2});
  }
  const test::Shared<Meeting> meeting;
  const int before = total_gets();
  std::deque<test::Child> ranks;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank]() -> std::string {
      const auto data =
          Dataset::open(index_path(), {.cache = cache(budget, std::chrono::milliseconds(50))});
      const auto sampler =
          make_sampler(data, order, {.rank = rank, .world_size = kRanks, .batch_size = kBatch});
      ShardPrefetcher prefetcher(data, *sampler,
                                 {.fetch_threads = 1, .node = {.first = 0, .count = kRanks}});
      std::uint64_t steps = 0;
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        sampler->set_epoch(epoch);
        prefetcher.begin_epoch(*sampler);
        for (std::uint64_t left = sampler->steps(); left > 0; --left) {
          for (std::uint64_t i = 0; i < kBatch; ++i) {
            const auto number = sampler->next();
            if (!number) break;
            const Sample sample = data[*number];
            if (sample["txt"] != "text " + std::string(sample.key())) return "wrong bytes";
          }
          prefetcher.reached(sampler->position());
          ++meeting->arrived;
          ++steps;
          while (meeting->arrived < steps * kRanks) std::this_thread::yield();
        }
      }
      return "";
    });
  }
  for (test::Child& rank : ranks) EXPECT_EQ(rank.wait(), "");
  const std::uint64_t fetched = static_cast<std::uint64_t>(total_gets() - before) * shard_bytes_;
  const std::uint64_t planned =
      plan.total(0).next_use.bytes_fetched + plan.total(1).next_use.bytes_fetched;
  std::printf("%llu bytes fetched, %llu planned\n", static_cast<unsigned long long>(fetched),
              static_cast<unsigned long long>(planned));
  // Within a step ranks may drift apart, and before the end shards of the next epoch are fetched.
  EXPECT_GE(fetched + budget, planned);
  EXPECT_LE(fetched, planned + budget + planned / 4);
}

}  // namespace
}  // namespace shardwise
