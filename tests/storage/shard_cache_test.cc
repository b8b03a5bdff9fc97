#include "shardwise/storage/shard_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <limits>
#include <random>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "shardwise/base/hash.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/served_shards.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::size_t kShardBytes = 100'000;

class ShardCacheTest : public test::ServedShardsTest {
 protected:
  ShardCacheTest() : ServedShardsTest(kShardBytes) {}
};

TEST_F(ShardCacheTest, FetchesAShardOnceAndServesItFromThenOn) {
  const auto cache = ShardCache::open(options());
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(server_.gets(path(0)), 1);
  const ShardCache::Stats stats = cache->stats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.fetched, 1u);
  EXPECT_EQ(stats.fetched_bytes, kShardBytes);
  EXPECT_EQ(cache->used_bytes(), kShardBytes);

  EXPECT_EQ(read(*ShardCache::open(options()), 0), body(0));
  EXPECT_EQ(server_.gets(path(0)), 1) << "another process, later";
}

// Fault under test: tests/faults.md 19.
TEST_F(ShardCacheTest, FilesOfOneNameInTwoPlacesAreTwo) {
  server_.serve("/a/0.tar", {.body = "aaaa"});
  server_.serve("/b/0.tar", {.body = "bbbb"});
  const auto cache = ShardCache::open(options());
  EXPECT_EQ(test::read_file(
                CacheAccess::get(*cache, {.source = {.url = server_.url("/a/0.tar")}}).path()),
            "aaaa");
  EXPECT_EQ(test::read_file(
                CacheAccess::get(*cache, {.source = {.url = server_.url("/b/0.tar")}}).path()),
            "bbbb");
  EXPECT_EQ(test::read_file(
                CacheAccess::get(*cache, {.source = {.url = server_.url("/b/0.tar?x=1")}}).path()),
            "bbbb");
  EXPECT_THAT(cache->entries(), SizeIs(3));
  EXPECT_EQ(CacheAccess::name_of({.source = {.url = "HTTP://Example.org:80/x/../y"}}),
            CacheAccess::name_of({.source = {.url = "http://example.org/y"}}));
  EXPECT_NE(CacheAccess::name_of({.source = {.url = "http://example.org/y"}}),
            CacheAccess::name_of({.source = {.url = "http://example.org/Y"}}));
}

// Fault under test: tests/faults.md 10, 11.
TEST_F(ShardCacheTest, NothingIsKeptOfAShardThatDidNotComeWhole) {
  const auto cache = ShardCache::open(options());
  const auto fails = [&](test::ServedFile file, const CacheRequest& what) {
    server_.serve("/bad.tar", std::move(file));
    EXPECT_ANY_THROW(CacheAccess::get(*cache, what));
    EXPECT_THAT(files(), IsEmpty());
  };
  const CacheRequest bad{.source = {.url = server_.url("/bad.tar"), .size_bytes = kShardBytes}};
  fails({.statuses = {404, 404, 404, 404, 404}}, bad);
  fails({.body = body(0), .cut_after = 0}, bad);
  fails({.body = body(0), .length_error = -10}, bad);
  fails({.body = body(0), .length_error = 10}, bad);
  fails({.body = body(0).substr(1)}, bad);
  fails({.body = body(0) + "x"}, bad);
  CacheRequest hashed = bad;
  hashed.source.source_hash = hash128(body(1));
  fails({.body = body(0)}, hashed);  // faults.md 13: wrong bytes of the right length
  CacheRequest checked = bad;
  checked.admission.check = [](const std::string&) { throw CorruptShard("no tar", "", ""); };
  fails({.body = body(0)}, checked);
}

// Fault under test: tests/faults.md 13.
TEST_F(ShardCacheTest, WhatCameWrongIsFetchedAgainOnceBeforeItIsAnError) {
  const auto cache = ShardCache::open(options());
  int checks = 0;
  CacheRequest wanted = request(0);
  wanted.admission.check = [&](const std::string& file) {
    EXPECT_EQ(test::read_file(file), body(0));
    if (++checks == 1) throw StaleIndex("a proxy's page", "", "");
  };
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), body(0));
  EXPECT_EQ(server_.gets(path(0)), 2);
  EXPECT_EQ(cache->stats().fetched, 1U);
  EXPECT_EQ(cache->stats().fetched_bytes, kShardBytes);
  EXPECT_EQ(cache->stats().wrong, 1U);
  wanted = request(1);
  wanted.source.source_hash = hash128(body(2));
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache, wanted); }), ErrorCode::kStaleIndex);
  EXPECT_EQ(server_.gets(path(1)), 2);
  server_.serve("/away.tar", {.statuses = {404, 404}});
  EXPECT_ANY_THROW(CacheAccess::get(
      *cache, {.source = {.url = server_.url("/away.tar"), .size_bytes = kShardBytes}}));
  EXPECT_EQ(server_.gets("/away.tar"), 1) << "nothing came";
}

// Fault under test: tests/faults.md 13.
TEST_F(ShardCacheTest, AProxysPageIsFetchedAgainOnceWhateverIsWrongWithIt) {
  const auto cache = ShardCache::open(options());
  const auto require_again = [&](int i, const std::string& page, const std::string& page_etag,
                                 CacheRequest wanted) {
    int gets = 0;
    server_.serve(
        path(i),
        {.body = body(i), .has_if_match = false, .before_get = [&, i](test::ServedFile& file) {
           const bool is_page = ++gets == 1;
           file.body = is_page ? page : body(i);
           file.etag = is_page ? page_etag : "\"v1\"";
         }});
    EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), body(i)) << i;
    EXPECT_EQ(gets, 2) << i;
  };
  CacheRequest known = request(0);
  known.source.validator = "\"v1\"";
  require_again(0, "<html>log in</html>", "\"page\"", known);
  require_again(1, std::string(2 * kShardBytes, 'x'), "\"v1\"", request(1));
  require_again(2, "<html>log in</html>", "\"v1\"", request(2));
  int which = 3;
  for (const ErrorCode code : {ErrorCode::kMismatch, ErrorCode::kUnsupported}) {
    CacheRequest checked = request(which);
    checked.admission.check = [&](const std::string& file) {
      if (std::filesystem::file_size(file) != kShardBytes) throw Error(code, "a page", "", "");
    };
    checked.source.size_bytes.reset();
    checked.source.source_bytes.reset();
    require_again(which, "<html>log in</html>", "\"v1\"", checked);
    ++which;
  }
}

TEST_F(ShardCacheTest, SaysWhatIsWrongWithAShardThatIsAnother) {
  const auto cache = ShardCache::open(options());
  CacheRequest wanted = request(0);
  wanted.source.size_bytes = kShardBytes + 1;
  EXPECT_THAT(
      error_text([&] { CacheAccess::get(*cache, wanted); }),
      AllOf(HasSubstr("length differs"), HasSubstr("100,000 bytes now, 100,001 when indexed"),
            HasSubstr("shardwise index")));
  wanted = request(0);
  wanted.source.source_hash = hash128("another");
  EXPECT_THAT(error_text([&] { CacheAccess::get(*cache, wanted); }), HasSubstr("fetched bytes"));
}

// Fault under test: tests/faults.md 47.
TEST_F(ShardCacheTest, AShardThatPassedAnotherCheckOrNoneIsCheckedOnceOrFetchedAgain) {
  const auto cache = ShardCache::open(options());
  int checks = 0;
  const auto wanted = [&](int i) {
    CacheRequest request = this->request(0);
    request.admission.checked_as = hash128(body(i));
    request.admission.check = [this, &checks, i](const std::string& file) {
      ++checks;
      if (test::read_file(file) != body(i)) throw StaleIndex("another", "", "");
    };
    return request;
  };
  read(*cache, 0);  // without a check
  for (int i = 0; i < 3; ++i) CacheAccess::get(*cache, wanted(0));
  EXPECT_EQ(checks, 1);
  EXPECT_EQ(server_.gets(path(0)), 1);

  server_.serve(path(0), {.body = body(1)});  // with the same ETag as before
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted(1)).path()), body(1));
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted(1)).path()), body(1));
  EXPECT_EQ(checks, 2);
  EXPECT_EQ(server_.gets(path(0)), 2);
  EXPECT_EQ(cache->used_bytes(), kShardBytes) << "it took the old one's place";

  cache->remove(CacheAccess::name_of(request(0)));
  read(*cache, 0);
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache, wanted(0)); }), ErrorCode::kStaleIndex);
  EXPECT_EQ(checks, 6) << "of what lay there, with the lock once more, and of what came twice";
}

// Fault under test: tests/faults.md 47.
TEST_F(ShardCacheTest, VersionsOfAShardLieSideBySide) {
  const auto cache = ShardCache::open(options());
  CacheRequest first = request(0), second = request(0);
  first.source.validator = "\"v1\"", second.source.validator = "\"v2\"";
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, first).path()), body(0));
  server_.serve(path(0), {.body = body(1), .etag = "\"v2\""});
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, second).path()), body(1));
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, first).path()), body(0));
  EXPECT_EQ(cache->stats().fetched, 2u);

  const auto entries = cache->entries();
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[0].url, entries[1].url);
  EXPECT_THAT((std::vector{entries[0].validator, entries[1].validator}),
              testing::UnorderedElementsAre("\"v1\"", "\"v2\""));
  EXPECT_THAT(cache->verify().damaged, IsEmpty());
  test::write_file(dir_ / "cache/shards/" + CacheAccess::name_of(first) + ".tar", body(1));
  ASSERT_THAT(cache->verify().damaged, SizeIs(1)) << "one version's bytes under another's name";
  EXPECT_EQ(cache->verify().damaged[0].validator, "\"v1\"");
}

// Fault under test: tests/faults.md 47.
TEST_F(ShardCacheTest, AnotherVersionAtTheSourceIsStaleAndNothingOfItComes) {
  for (const bool has_if_match : {true, false}) {
    for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
      const auto cache = ShardCache::open(options());
      server_.serve(path(0), {.body = test::compress(body(0), compression),
                              .etag = "\"v2\"",
                              .has_if_match = has_if_match});
      CacheRequest wanted = request(0);
      wanted.source.validator = "\"v1\"";
      wanted.source.compression = compression;
      EXPECT_THAT(
          error_text([&] { CacheAccess::get(*cache, wanted); }),
          AllOf(HasSubstr("changed at its source"), HasSubstr(server_.url(path(0))),
                HasSubstr("version '\"v1\"' before, '\"v2\"' now"), HasSubstr("shardwise index")));
      EXPECT_EQ(error_code([&] { CacheAccess::get(*cache, wanted); }), ErrorCode::kStaleIndex);
      wanted.source.size_bytes.reset();  // the cache then asks the source for the size
      EXPECT_EQ(error_code([&] { CacheAccess::get(*cache, wanted); }), ErrorCode::kStaleIndex);
      EXPECT_EQ(cache->stats().fetched, 0u);
      EXPECT_THAT(files(), IsEmpty());
    }
  }
}

// Fault under test: tests/faults.md 47.
TEST_F(ShardCacheTest, AShardOfAnotherHashIsReplacedButNotUnderItsUser) {
  const auto cache = ShardCache::open(options());
  CacheRequest first = request(0), second = request(0);
  first.source.source_hash = hash128(body(0)), second.source.source_hash = hash128(body(1));
  {
    const CachedShard used = CacheAccess::get(*cache, first);
    server_.serve(path(0), {.body = body(1)});  // with the same ETag as before
    const CachedShard own = CacheAccess::get(*cache, second);
    EXPECT_EQ(test::read_file(own.path()), body(1));
    EXPECT_NE(own.path(), used.path());
    EXPECT_EQ(test::read_file(used.path()), body(0));
    EXPECT_EQ(cache->stats().bypassed, 1u);
    EXPECT_EQ(test::read_file(CacheAccess::get(*cache, first).path()), body(0)) << "it stayed";
    std::optional<ShardFetch> fetch;
    EXPECT_EQ(CacheAccess::begin_ahead(*cache, second, 1, nullptr, fetch), Ahead::kNotNow);
  }
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, second).path()), body(1));
  EXPECT_EQ(cache->used_bytes(), kShardBytes) << "it took the old one's place";
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache, first); }), ErrorCode::kStaleIndex);
  // Without its record, the shard's hash is unknown.
  read(*cache, 0);
  std::filesystem::remove(dir_ / "cache/shards/" + CacheAccess::name_of(second) + ".json");
  const std::uint64_t before = cache->stats().fetched;
  CacheAccess::get(*cache, second);
  EXPECT_EQ(cache->stats().fetched, before + 1);
}

// Fault under test: tests/faults.md 47.
TEST_F(ShardCacheTest, ALocalFileIsHeldToItsSizeAndTime) {
  const std::string stored = test::compress(body(0), Compression::kZstd);
  test::write_file(dir_ / "local", stored);
  const FileIdentity identity = file_identity(dir_ / "local");
  const auto cache = ShardCache::open(options());
  CacheRequest wanted{
      .source = {.url = dir_ / "local",
                 .validator = local_validator(identity.size_bytes, identity.mtime_ns - 1),
                 .compression = Compression::kZstd}};
  EXPECT_THAT(error_text([&] { CacheAccess::get(*cache, wanted); }),
              AllOf(HasSubstr("changed at its source"), HasSubstr(dir_ / "local"),
                    HasSubstr(wanted.source.validator)));
  EXPECT_THAT(files(), IsEmpty());
  wanted.source.validator = local_validator(identity.size_bytes, identity.mtime_ns);
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), body(0));
}

/// Sets a file's modification time without changing its content.
void set_mtime(const std::string& path, std::int64_t mtime_ns) {
  const timespec times[2] = {{0, UTIME_OMIT}, {mtime_ns / 1'000'000'000, mtime_ns % 1'000'000'000}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// Fault under test: tests/faults.md 47.
TEST_F(ShardCacheTest, AShardThatSomebodyWroteToIsFetchedAgainOnceByWhoeverAsks) {
  const auto cache = ShardCache::open(options());
  for (const int i : {0, 1}) read(*cache, i);
  const auto file = [&](int i) {
    return dir_ / "cache/shards/" + CacheAccess::name_of(request(i)) + ".tar";
  };
  std::filesystem::rename(file(0), dir_ / "x");
  std::filesystem::rename(file(1), file(0));
  std::filesystem::rename(dir_ / "x", file(1));
  for (int round = 0; round < 3; ++round) {
    for (const int i : {0, 1}) EXPECT_EQ(read(*cache, i), body(i)) << "they were exchanged";
  }
  EXPECT_EQ(cache->stats().fetched, 4u);

  std::string bytes = body(0);
  bytes[kShardBytes / 2] ^= 1;
  test::write_file(file(0), bytes);
  set_mtime(file(0), 1'000'000'000);
  EXPECT_EQ(read(*cache, 0), body(0)) << "its time says so";

  const std::int64_t then = file_identity(file(0)).mtime_ns;
  test::write_file(file(0), std::string(512, '\0') + body(0).substr(512));
  set_mtime(file(0), then);
  EXPECT_EQ(read(*cache, 0), body(0)) << "its start says so";
  EXPECT_EQ(cache->stats().fetched, 6u);
  EXPECT_EQ(cache->stats().evicted, 0u) << "there was room";
  EXPECT_THAT(cache->verify().damaged, IsEmpty());
}

TEST_F(ShardCacheTest, ACacheThatWasCopiedIsReadOnceAndNotFetchedAgain) {
  read(*ShardCache::open(options()), 0);
  const std::string name = dir_ / "cache/shards/" + CacheAccess::name_of(request(0));
  set_mtime(name + ".tar", 1'000'000'000);
  const std::string before = test::read_file(name + ".json");
  const auto cache = ShardCache::open(options());
  EXPECT_EQ(read(*cache, 0), body(0));
  const std::string after = test::read_file(name + ".json");
  EXPECT_NE(after, before) << "its new time is known from now on";
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(test::read_file(name + ".json"), after);
  EXPECT_EQ(server_.gets(path(0)), 1);
}

// Fault under test: tests/faults.md 47.
TEST_F(ShardCacheTest, RandomDamageToItsFilesIsNeverRead) {
  const std::uint64_t seed = test::random_seed();
  std::mt19937_64 random(seed);
  const auto cache = ShardCache::open(options());
  for (int trial = 0; trial < 300; ++trial) {
    const int i = static_cast<int>(random() % 4);
    const int other = (i + 1) % 4;
    for (const int k : {i, other}) ASSERT_EQ(read(*cache, k), body(k)) << "trial " << trial;
    const auto stem = [&](int k) {
      return dir_ / "cache/shards/" + CacheAccess::name_of(request(k));
    };
    const std::string shard = stem(i) + ".tar", record = stem(i) + ".json";
    const std::int64_t then = file_identity(shard).mtime_ns;
    const auto write = [&](const std::string& path, const std::string& bytes) {
      test::write_file(path, bytes);
      if (path == shard) set_mtime(path, then + 1);  // the clock may not have advanced since
    };
    const auto flip = [&](std::string bytes, std::size_t below) {
      const std::size_t bit = random() % (8 * below);
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      return bytes;
    };
    const std::uint64_t kind = random() % 9;
    switch (kind) {
      case 0:
        write(shard, flip(body(i), kShardBytes));
        break;
      case 1:
        write(shard, flip(body(i), 4096));
        set_mtime(shard, then);
        break;
      case 2:
        write(shard, body(other));
        break;
      case 3:
        write(shard, body(i).substr(0, random() % kShardBytes));
        break;
      case 4:
        write(shard, body(i) + "x");
        break;
      case 5:
        std::filesystem::copy_file(stem(other) + ".json", record,
                                   std::filesystem::copy_options::overwrite_existing);
        break;
      case 6: {
        const std::string text = test::read_file(record);
        write(record, flip(text, text.size()));
        break;
      }
      case 7:
        write(record, "");
        break;
      default:
        write(shard, std::string(kShardBytes, '\0'));
    }
    ASSERT_EQ(read(*cache, i), body(i)) << "trial " << trial << ", damage " << kind;
    cache->remove(CacheAccess::name_of(request(i)));
  }
}

TEST_F(ShardCacheTest, ShardsThatChangedPlacesWithTheirRecordsAreNotTaken) {
  const auto cache = ShardCache::open(options());
  const auto stem = [&](int i) {
    return dir_ / "cache/shards/" + CacheAccess::name_of(request(i));
  };
  for (const int i : {0, 1}) read(*cache, i);
  for (const std::string suffix : {".tar", ".json"}) {
    std::filesystem::rename(stem(0) + suffix, dir_ / "other");
    std::filesystem::rename(stem(1) + suffix, stem(0) + suffix);
    std::filesystem::rename(dir_ / "other", stem(1) + suffix);
  }
  EXPECT_THAT(cache->verify().unknown, SizeIs(2));
  for (const int i : {0, 1}) EXPECT_EQ(read(*cache, i), body(i));
  EXPECT_EQ(cache->stats().fetched, 4u);
}

TEST_F(ShardCacheTest, VerifyCountsShardsThatItHasReadAndThoseItCannotCheck) {
  const auto cache = ShardCache::open(options());
  for (const int i : {0, 1, 2}) read(*cache, i);
  std::filesystem::remove(dir_ / "cache/shards/" + CacheAccess::name_of(request(1)) + ".json");
  std::vector<Progress> seen;
  const auto check = cache->verify({}, [&](const Progress& at) { seen.push_back(at); });
  EXPECT_THAT(check.unknown, SizeIs(1));
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front().shards_done, 0u) << "the first shard has been read in part";
  for (std::size_t i = 1; i < seen.size(); ++i) {
    EXPECT_GE(seen[i].bytes_done, seen[i - 1].bytes_done);
  }
  EXPECT_EQ(seen.back().shards_done, 3u);
  EXPECT_EQ(seen.back().bytes_done, seen.back().num_bytes);
}

TEST_F(ShardCacheTest, AShardThatWasCutIsNotTakenThoughItsTimeWasKeptAndNobodySaysItsSize) {
  const auto cache = ShardCache::open(options());
  CacheRequest wanted = request(0);
  wanted.source.size_bytes.reset();
  wanted.source.source_bytes.reset();
  const std::string stem = dir_ / "cache/shards/" + CacheAccess::name_of(wanted);
  const auto cut = [&] {
    ASSERT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), body(0));
    const std::int64_t then = file_identity(stem + ".tar").mtime_ns;
    std::filesystem::resize_file(stem + ".tar", kShardBytes - 512);
    set_mtime(stem + ".tar", then);
  };
  cut();
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), body(0))
      << "its record says it";
  cut();
  std::filesystem::remove(stem + ".json");
  wanted.source.source_bytes = kShardBytes;
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, wanted).path()), body(0))
      << "its source says it";
}

TEST_F(ShardCacheTest, AShardIsNotTakenIfItsRecordIsDamaged) {
  const auto cache = ShardCache::open(options());
  const std::string stem = dir_ / "cache/shards/" + CacheAccess::name_of(request(0));
  read(*cache, 0);
  const std::int64_t then = file_identity(stem + ".tar").mtime_ns;
  test::write_file(stem + ".tar", body(1));
  set_mtime(stem + ".tar", then);
  const std::string record = test::read_file(stem + ".json");
  test::write_file(stem + ".json", record.substr(0, record.size() / 2));
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(cache->stats().fetched, 2u);
  // JSON parsers read an integer of more than 64 bits as a floating-point number.
  std::string huge = test::read_file(stem + ".json");
  const std::size_t number = huge.find_first_of("0123456789", huge.find("\"start_hash\":"));
  huge.replace(number, huge.find_first_not_of("0123456789", number) - number,
               "92886000000000000000");
  test::write_file(stem + ".json", huge);
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(cache->stats().fetched, 3u);
}

// Fault under test: tests/faults.md 46.
TEST_F(ShardCacheTest, RefusesADirectoryThatIsNotItsOwn) {
  const auto open_text = [&](const std::string& path) {
    return error_text([&] { ShardCache::open({.directory = path}); });
  };
  test::write_file(dir_ / "file", "x");
  EXPECT_THAT(open_text(dir_ / "file"), HasSubstr("names a file"));
  EXPECT_THAT(open_text(dir_.path()), AllOf(HasSubstr("other files"), HasSubstr("'file'"),
                                            HasSubstr("an empty directory")));
  std::filesystem::create_directory(dir_ / "open");
  ::chmod((dir_ / "open").c_str(), 0777);
  EXPECT_THAT(open_text(dir_ / "open"), HasSubstr("users may write"));
  if (::geteuid() == 0) {
    std::filesystem::create_directory(dir_ / "foreign");
    ASSERT_EQ(::chown((dir_ / "foreign").c_str(), 12345, 12345), 0);
    EXPECT_THAT(open_text(dir_ / "foreign"), HasSubstr("another user"));
  }
  EXPECT_EQ(error_code([&] { ShardCache::open({.directory = dir_ / "no", .create = false}); }),
            ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "no"));

  for (const std::string version : {"1", "3"}) {
    const std::string other = dir_ / "version" + version;
    std::filesystem::create_directory(other);
    test::write_file(other + "/shardwise-cache",
                     "shardwise shard cache, version " + version + "\n");
    test::write_file(other + "/shards", "kept");
    EXPECT_EQ(error_code([&] { ShardCache::open({.directory = other}); }),
              ErrorCode::kVersionMismatch);
    EXPECT_THAT(open_text(other), AllOf(HasSubstr(other), HasSubstr("version " + version),
                                        HasSubstr("version is 2"), HasSubstr("remove")));
    EXPECT_EQ(test::read_file(other + "/shards"), "kept");
  }
  struct stat made {};
  ShardCache::open(options());
  ASSERT_EQ(::stat((dir_ / "cache").c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0700u);
}

// Fault under test: tests/faults.md 46.
TEST_F(ShardCacheTest, ALinkAtAShardsNameIsNeitherReadNorWrittenThrough) {
  const auto cache = ShardCache::open(options());
  test::write_file(dir_ / "victim", std::string(kShardBytes, 'v'));
  const std::string name = dir_ / "cache/shards/" + CacheAccess::name_of(request(0)) + ".tar";
  std::filesystem::create_symlink(dir_ / "victim", name);
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_FALSE(std::filesystem::is_symlink(name));
  EXPECT_EQ(test::read_file(dir_ / "victim"), std::string(kShardBytes, 'v'));
}

TEST_F(ShardCacheTest, DeletesNothingButItsOwnFiles) {
  const auto cache = ShardCache::open(options(1));
  const std::string foreign = dir_ / "cache/shards/important.tar";
  test::write_file(foreign, std::string(10 * kShardBytes, 'x'));
  for (int i = 0; i < 4; ++i) read(*cache, i);
  cache->prune(0);
  ShardCache::open(options(1));
  EXPECT_THAT(files(), ElementsAre("important.tar"));
  EXPECT_THAT(cache->verify().foreign, ElementsAre("important.tar"));
}

TEST_F(ShardCacheTest, VerifyFindsDamageAndPruneAndRemoveRemove) {
  const auto cache = ShardCache::open(options());
  for (int i = 0; i < 4; ++i) read(*cache, i);
  EXPECT_THAT(cache->verify().damaged, IsEmpty());
  std::string bytes = body(2);
  bytes[77] ^= 1;
  test::write_file(dir_ / "cache/shards/" + CacheAccess::name_of(request(2)) + ".tar", bytes);
  std::filesystem::remove(dir_ / "cache/shards/" + CacheAccess::name_of(request(3)) + ".json");
  const ShardCache::Check check = cache->verify();
  EXPECT_EQ(check.num_shards, 4u);
  ASSERT_THAT(check.damaged, SizeIs(1));
  EXPECT_EQ(check.damaged[0].url, request(2).source.url);
  EXPECT_THAT(check.unknown, SizeIs(1));
  EXPECT_TRUE(cache->remove(check.damaged[0].name));
  EXPECT_FALSE(cache->remove(check.damaged[0].name));

  const CachedShard used = CacheAccess::get(*cache, request(0));
  const ShardCache::Removal removal = cache->prune(0);
  EXPECT_EQ(removal.num_shards, 2u);
  EXPECT_EQ(removal.bytes, 2 * kShardBytes);
  EXPECT_EQ(removal.num_in_use, 1u);
  EXPECT_FALSE(cache->remove(used.name()));
  ASSERT_THAT(cache->entries(), SizeIs(1));
  EXPECT_TRUE(cache->entries()[0].in_use);
}

TEST_F(ShardCacheTest, RecordsHoldNoSecrets) {
  const auto cache = ShardCache::open(options());
  CacheAccess::get(*cache,
                   {.source = {.url = server_.url(path(0) + "?X-Amz-Signature=verysecret")}});
  EXPECT_THAT(cache->entries()[0].url, AllOf(HasSubstr("/0.tar"), Not(HasSubstr("verysecret"))));
}

// Fault under test: tests/faults.md 12.
TEST_F(ShardCacheTest, WhileOneShardStallsOthersAreServedAndCancelWorks) {
  server_.serve("/stall.tar", {.body = body(0), .stall_after = 1000});
  const auto cache = ShardCache::open(options());
  std::atomic<bool> cancel{false};
  std::thread stalled([&] {
    EXPECT_EQ(error_code([&] {
                CacheAccess::get(*cache,
                                 {.source = {.url = server_.url("/stall.tar")}, .cancel = &cancel});
              }),
              ErrorCode::kCancelled);
  });
  EXPECT_EQ(read(*cache, 1), body(1));
  cancel = true;
  stalled.join();
  EXPECT_EQ(cache->used_bytes(), kShardBytes);
}

TEST_F(ShardCacheTest, WaitingForAThreadOfThisProcessIsNotSaidToBeForAnother) {
  server_.serve("/stall.tar", {.body = body(0), .stall_after = 1000});
  ShardCache::Options telling = options();
  std::atomic<int> words{0};
  telling.on_wait = [&](const std::string&, std::chrono::milliseconds, const std::string&) {
    ++words;
  };
  const auto cache = ShardCache::open(telling);
  std::atomic<bool> cancel{false};
  const auto get = [&] {
    EXPECT_ANY_THROW(CacheAccess::get(
        *cache, {.source = {.url = server_.url("/stall.tar"), .size_bytes = kShardBytes},
                 .cancel = &cancel}));
  };
  std::thread first(get);
  while (server_.gets("/stall.tar") == 0) std::this_thread::yield();
  std::thread second(get);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  cancel = true;
  first.join();
  second.join();
  EXPECT_EQ(cache->stats().waits, 1U);
  EXPECT_EQ(words, 0);
}

// Faults under test: tests/faults.md 5, 53.
TEST_F(ShardCacheTest, WhoWaitedForAFetchThatGaveUpDoesNotTryAsLongAgain) {
  constexpr std::uint64_t kThreads = 4;
  const auto cache = ShardCache::open(options());
  server_.set_gate([&](const test::LoggedRequest&) -> std::optional<std::pair<int, std::string>> {
    while (cache->stats().waits < kThreads - 1) std::this_thread::yield();
    return std::pair(503, std::string("away"));
  });
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] { EXPECT_THROW(read(*cache, 0), FetchError); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server_.gets(path(0)), 1 + test::quick_options().max_retries);
  server_.set_gate(nullptr);
  EXPECT_EQ(read(*cache, 0), body(0)) << "who asks later tries anew";
}

// Fault under test: tests/faults.md 53.
TEST_F(ShardCacheTest, AnOutageThatAFetchGaveUpOnIsNotWaitedForAsLongAgain) {
  Fetchers::Options patient = test::quick_options();
  patient.max_retries = std::numeric_limits<int>::max();
  patient.retry_for = std::chrono::milliseconds(400);
  ShardCache::Options how = options();
  how.fetchers = std::make_shared<const Fetchers>(patient);
  const auto cache = ShardCache::open(how);
  std::atomic<bool> is_away{true};
  server_.set_gate([&](const test::LoggedRequest&) -> std::optional<std::pair<int, std::string>> {
    if (is_away) return std::pair(503, std::string("away"));
    return std::nullopt;
  });
  const auto waited = [&] {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THROW(read(*cache, 0), FetchError);
    return std::chrono::steady_clock::now() - start;
  };
  const auto first = waited();
  EXPECT_GE(first, std::chrono::milliseconds(350));
  EXPECT_LT(waited(), first) << "there is hardly any time left";
  is_away = false;
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_TRUE(cache->remove(CacheAccess::name_of(request(0))));
  is_away = true;
  EXPECT_GE(waited(), std::chrono::milliseconds(350)) << "it is another outage";
}

TEST_F(ShardCacheTest, OfAShardThatFailsAtTheEndNoRecordIsLeft) {
  const auto cache = ShardCache::open(options());
  set_fault_handler([](const char* point) {
    if (std::string_view(point) == "shard_cache.before_sync") {
      throw Error(ErrorCode::kNoSpace, "the disk is full", "", "");
    }
  });
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache, request(0)); }), ErrorCode::kNoSpace);
  set_fault_handler(nullptr);
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_EQ(read(*cache, 0), body(0)) << "room returned";
}

TEST_F(ShardCacheTest, AfterForkTheChildHasHoldsOfItsOwn) {
  const auto cache = ShardCache::open(options(2));
  std::optional<CachedShard> held = CacheAccess::get(*cache, request(0));
  EXPECT_EQ(test::in_child([&]() -> std::string {
              held.reset();  // the parent's pin stays
              for (const int i : {1, 2, 3}) {
                if (read(*cache, i) != body(i)) return "wrong bytes";
              }
              return "";
            }),
            "");
  EXPECT_EQ(test::read_file(held->path()), body(0));
  for (const int i : {4, 5}) read(*cache, i);
  EXPECT_TRUE(std::filesystem::exists(held->path()));
}

}  // namespace
}  // namespace shardwise
