// Datasets whose shards are remote or compressed: indexing, reading, and sources that change.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/hasher.h"
#include "data/open_shard.h"
#include "data/remote_dataset.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/verify.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::kSamples;
using test::kShards;
using test::RemoteDatasetTest;
using test::TarBuilder;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
  // Numbers from all shards in mixed order. Two of them are from one shard, and one number is
  // repeated.
  std::vector<std::uint64_t> numbers = {999, 0, 50, 49, 500, 0, 730, 731};
  for (std::uint64_t i = 0; i < 200; ++i) numbers.push_back(i * 37 % (kShards * kSamples));
  const std::vector<Dataset> ways = {
      Dataset::open(index_path(), {.cache = cache()}),
      Dataset::open(index_path(), {.cache = ShardCache::open({.directory = dir_ / "small",
                                                              .budget_bytes = 4 * shard_bytes_,
                                                              .fetchers = fetchers_})}),
      open_ranged()};
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
              AllOf(HasSubstr("remote"), HasSubstr("no shard cache")));
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

  // If the server does not identify versions, the shard may have changed at any time.
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

TEST_F(RemoteDatasetTest, AnIndexIsBuiltOfShardsWhoseTransfersAreCutAndComeAgain) {
  struct Case {
    bool has_ranges;
    std::string etag;
    bool hash;
  };
  const std::string body = tar_body(3);
  for (const Case& c : {Case{false, "\"v1\"", false}, Case{false, "\"v1\"", true},
                        Case{false, "", false}, Case{true, "", true}, Case{true, "\"v1\"", true}}) {
    server_.serve("/cut.tar", {.body = body,
                               .etag = c.etag,
                               .has_ranges = c.has_ranges,
                               .cut_after = body.size() / 2,
                               .num_cuts = 2});
    std::filesystem::remove(index_path());
    build_index(index_path(), {server_.url("/cut.tar")},
                {.content = {.hashes = c.hash}, .remote = remote()});
    EXPECT_EQ(Index::open(index_path())->size(), std::uint64_t{kSamples});
    EXPECT_EQ(Index::open(index_path())->shard(0).size_bytes, body.size());
  }
}

TEST_F(RemoteDatasetTest, AShardThatIsAnotherOneAfterACutIsStale) {
  const std::string body = tar_body(3);
  for (const std::string& other : {tar_body(4), body.substr(0, 1024)}) {
    server_.serve("/cut.tar", {.body = body,
                               .etag = "",
                               .has_ranges = false,
                               .cut_after = body.size() / 2,
                               .num_cuts = 1,
                               .before_get = [&, count = 0](test::ServedFile& file) mutable {
                                 if (++count == 2) file.body = other;
                               }});
    EXPECT_THAT(error_text([&] {
                  build_index(index_path(), {server_.url("/cut.tar")}, {.remote = remote()});
                }),
                AllOf(HasSubstr("changed while"), HasSubstr("/cut.tar")));
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
              AllOf(HasSubstr("compressed (gzip)"), HasSubstr("no shard cache"),
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
  // The cache recognises a shard that is named by another path to the same file.
  std::filesystem::create_directory_symlink(dir_.path(), dir_ / "link");
  const auto again = Dataset::open(dir_ / "link/remote.idx", {.cache = cache()});
  EXPECT_EQ(again[13].copy("txt"), "text 13");
  EXPECT_EQ(again.cache()->stats().fetched, 0u);
}

// Fault under test: tests/faults.md 47.
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

// Faults under test: tests/faults.md 3, 73.
TEST_F(RemoteDatasetTest, WhatOthersForgedInTheCacheIsFoundByTheIndexsHashes) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to act as another user; skipped because this user is not root";
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    std::filesystem::remove_all(dir_ / "cache");
    std::filesystem::remove(index_path());
    build_index(index_path(), serve(compression),
                {.content = {.hashes = true}, .remote = remote()});
    expect_all_samples(Dataset::open(index_path(), {.cache = cache()}));
    // Change a byte in a member of each shard, and update the record to match.
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
                AllOf(HasSubstr("the cached shard differs"), HasSubstr("/0.tar' (cache '"),
                      HasSubstr("'s0.txt' at offset 512"), HasSubstr("use another cache")));
    for (const char* name : {"", "/shards", "/futures"}) {
      ::chmod((dir_ / "cache" + name).c_str(), 02770);
    }
    expect_all_samples(shared(false));
  }
}

TEST_F(RemoteDatasetTest, WithoutACacheTheErrorSaysHowToGetOne) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto data = Dataset::open(index_path());
  EXPECT_THAT(error_text([&] { data[0]; }),
              AllOf(HasSubstr("remote"), HasSubstr("no shard cache"), HasSubstr("/0.tar"),
                    HasSubstr("Dataset::Options::cache"), HasSubstr("Dataset::Access::kRange")));
  EXPECT_THAT(error_text([&] { build_index(dir_ / "x.idx", serve()); }),
              AllOf(HasSubstr("/0.tar'"), HasSubstr("BuildOptions::remote")));
}

TEST_F(RemoteDatasetTest, SingleSamplesAreReadByRange) {
  build_index(index_path(), serve(), {.remote = remote()});
  const int before = total_gets();
  const auto data = open_ranged();
  expect_all_samples(data);
  EXPECT_EQ(total_gets() - before, 5 + 4) << "one request a sample, and one a shard";
  server_.serve("/0.tar", {.body = std::string(shard_bytes_, 'x'), .etag = "\"v2\""});
  EXPECT_EQ(error_code([&] { data[0]; }), ErrorCode::kStaleIndex);
}

// Fault under test: tests/faults.md 13.
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
              AllOf(HasSubstr("not the shard"), HasSubstr("/1.tar")));
  EXPECT_EQ(data.cache()->used_bytes(), 0u);
  EXPECT_EQ(data[0].copy("txt"), "text s0") << "the others can be read";
}

/// Returns a shard filled with `word`, which has four letters. All such shards have the same size
/// and headers.
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

// Fault under test: tests/faults.md 47.
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
      const int gets = server_.gets("/x.tar");
      const auto data = open_ranged();
      EXPECT_EQ(all_words(data), repeated("old."));
      EXPECT_EQ(server_.gets("/x.tar") - gets, 2 * kSamples + (hashes ? 0 : 1))
          << "the header once, unless hashes say more";
      serve_one(after);
      const auto changed = open_ranged();
      for (const std::uint64_t i : {0, kSamples - 1}) {
        EXPECT_EQ(error_code([&] { changed[i]; }), ErrorCode::kStaleIndex);
      }
      EXPECT_THAT(
          error_text([&] { changed[0]; }),
          AllOf(HasSubstr("/x.tar"), HasSubstr(hashes ? "fetched bytes" : "size and validator"),
                HasSubstr("offset")));
    }
  }
}

// faults.md 13: a sample is fetched again, as a whole shard is, until it is wrong in the same way
// twice.
TEST_F(RemoteDatasetTest, SingleSamplesThatCameToHarmAreFetchedAgain) {
  const std::string right = tar_of("old.");
  server_.serve("/x.tar", {.body = right});
  build_index(index_path(), {server_.url("/x.tar")},
              {.content = {.hashes = true}, .remote = remote()});
  const auto data = open_ranged();
  const auto gets_of_one = [&](int num_wrong, bool same_way) {
    const int before = server_.gets("/x.tar");
    server_.serve("/x.tar",
                  {.body = right, .before_get = [&, num = 0](test::ServedFile& file) mutable {
                     file.body = right;
                     if (num++ >= num_wrong) return;
                     for (char& c : file.body.own()) c ^= static_cast<char>(same_way ? 1 : num);
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

// Fault under test: tests/faults.md 47.
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
  // Without an ETag, only the hash of the file distinguishes the two versions.
  if (std::string_view(GetParam().first).empty()) return;
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

// Fault under test: tests/faults.md 47.
TEST_F(RemoteDatasetTest, AServerThatKeepsItsEtagIsNoticedByHashes) {
  server_.serve("/x.tar", {.body = tar_of("old.")});
  build_index(index_path(), {server_.url("/x.tar")},
              {.content = {.hashes = true}, .remote = remote()});
  server_.serve("/x.tar", {.body = tar_of("new!")});
  const auto cached = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_THAT(error_text([&] { cached[0]; }), HasSubstr("fetched bytes"));
  const auto ranged = open_ranged();
  EXPECT_THAT(error_text([&] { ranged[7]; }),
              AllOf(HasSubstr("fetched bytes"), HasSubstr("sample 7 ('s107')"),
                    HasSubstr(server_.url("/x.tar"))));
  EXPECT_EQ(error_code([&] { ranged[7]; }), ErrorCode::kStaleIndex);
}

// Fault under test: tests/faults.md 47.
TEST_F(RemoteDatasetTest, OfAShardWithoutVersionsSamplesAreHeldToTheirHashes) {
  const auto open = [&](bool hashes) {
    server_.serve("/x.tar", {.body = tar_of("old."), .etag = ""});
    build_index(index_path(), {server_.url("/x.tar")},
                {.content = {.hashes = hashes}, .remote = remote()});
    return open_ranged();
  };
  const auto hashed = open(true);
  EXPECT_EQ(hashed[7].copy("txt"), "old.");
  server_.serve("/x.tar", {.body = tar_of("new!"), .etag = ""});
  EXPECT_EQ(error_code([&] { hashed[7]; }), ErrorCode::kStaleIndex);
  const auto unhashed = open(false);
  EXPECT_THAT(error_text([&] { unhashed[7]; }),
              AllOf(HasSubstr("nor a version of the shard (ETag"), HasSubstr(server_.url("/x.tar")),
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

  // A single connection would suffice if requests were sent one at a time.
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

}  // namespace
}  // namespace shardwise
