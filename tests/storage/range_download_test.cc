// Fault under test: tests/faults.md 69.
// Large shards that are fetched in parts by several concurrent requests.
#include "storage/range_download.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "base/fault_point.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/byte_ranges.h"
#include "storage/cache_request.h"
#include "storage/fetch_failure.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::ServedFile;
using test::TempDir;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = (std::size_t{36} << 20) + 12345;
constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;
constexpr char kPath[] = "/large.tar";

/// Returns bytes that differ in any two parts. Generating them is fast, even under a sanitizer.
std::string large_bytes(std::uint32_t seed) {
  const std::string block = test::some_bytes((64 << 10) + 13, seed);
  std::string bytes;
  bytes.reserve(kBytes + block.size());
  while (bytes.size() < kBytes) bytes += block;
  bytes.resize(kBytes);
  return bytes;
}
const std::string& body() {
  static const std::string bytes = large_bytes(1);
  return bytes;
}

class RangeDownloadTest : public ::testing::Test {
 protected:
  void serve(ServedFile file = {}) {
    if (file.body.view().empty()) file.body = body();
    server_.serve(kPath, std::move(file));
  }
  std::string url() const { return server_.url(kPath); }
  CacheRequest request(const std::string& validator = "\"v1\"") const {
    return {
        .source = {
            .url = url(), .validator = validator, .size_bytes = kBytes, .source_bytes = kBytes}};
  }
  std::shared_ptr<ShardCache> cache() const {
    return ShardCache::open({.directory = dir_ / "cache",
                             .budget_bytes = 1 << 30,
                             .fetchers = std::make_shared<const Fetchers>(options_)});
  }
  void expect_whole(const CacheRequest& wanted) const {
    const CachedShard shard = CacheAccess::get(*cache(), wanted);
    EXPECT_TRUE(test::same(test::read_file(shard.path()), body()));
  }
  std::size_t num_files() const {
    const std::filesystem::directory_iterator all(dir_ / "cache/shards");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  /// Returns the number of GET requests with a range, and of those without.
  std::pair<int, int> num_gets() const {
    std::pair<int, int> counts;
    for (const auto& asked : server_.requests()) {
      if (asked.method == "GET") ++(asked.header("range").empty() ? counts.second : counts.first);
    }
    return counts;
  }

  TempDir dir_;
  test::TestHttpServer server_;
  Fetchers::Options options_ = test::quick_options();
};

TEST_F(RangeDownloadTest, ALargeShardComesInPartsOfOneVersion) {
  serve();
  expect_whole(request());
  EXPECT_TRUE(cache()->verify().damaged.empty()) << "the hash is that of the file";
  std::set<std::string> ranges;
  for (const auto& asked : server_.requests()) {
    if (asked.method != "GET") continue;
    EXPECT_EQ(asked.header("if-match"), "\"v1\"");
    ranges.insert(asked.header("range"));
  }
  EXPECT_EQ(ranges.size(), 5U) << "each part once";
  EXPECT_EQ(num_gets(), std::pair(5, 0));
}

TEST_F(RangeDownloadTest, WhatIsNotLargeOrMustNotComeInPartsComesInOneStream) {
  serve();
  options_.max_connections_per_shard = 1;
  expect_whole(request());
  EXPECT_EQ(num_gets(), std::pair(0, 1));

  ShardCache::open({.directory = dir_ / "cache"})->prune(0);
  options_.max_connections_per_shard = 4;
  options_.max_connections_per_host = 1;
  expect_whole(request());
  EXPECT_EQ(num_gets(), std::pair(0, 2)) << "the host's limit is 1";

  ShardCache::open({.directory = dir_ / "cache"})->prune(0);
  options_.max_connections_per_host = 0;
  serve({.etag = ""});
  expect_whole(request(""));
  EXPECT_EQ(num_gets(), std::pair(0, 3)) << "nothing says that parts are of one version";
}

TEST_F(RangeDownloadTest, NoMoreRequestsThanTheOptionSaysTalkAtATime) {
  serve({.drip_bytes = 1 << 20, .drip_wait = std::chrono::milliseconds(1)});
  options_.max_connections_per_shard = 2;
  expect_whole(request());
  EXPECT_LE(server_.num_connections(), 3) << "that of HEAD may not be there for the next yet";
  options_.max_connections_per_shard = 0;
  EXPECT_THAT(error_text([&] { Fetchers{options_}; }), HasSubstr("max_connections_per_shard"));
}

TEST_F(RangeDownloadTest, PartsThatAreCutGoOnWhereTheyWere) {
  serve({.cut_after = 3 << 20, .num_cuts = 7});
  options_.max_retries = 10;
  expect_whole(request());
  EXPECT_GT(num_gets().first, 5 + 2) << "five parts, of which some were cut";
  EXPECT_EQ(num_gets().second, 0);
}

/// A way in which a server sends a part incorrectly.
struct WrongParts {
  const char* name;
  std::function<void(ServedFile&)> spoil;
};

class WrongPartsTest : public RangeDownloadTest,
                       public ::testing::WithParamInterface<WrongParts> {};

TEST_P(WrongPartsTest, TheWholeComesInOneStream) {
  // HEAD says that ranges are supported, and the first part is correct.
  const auto num = std::make_shared<std::atomic<int>>(0);
  serve({.before_get = [num, spoil = GetParam().spoil](ServedFile& file) {
    if (++*num > 1) spoil(file);
  }});
  expect_whole(request());
  EXPECT_EQ(num_gets().second, 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongPartsTest,
    ::testing::Values(
        WrongParts{"Whole", [](ServedFile& file) { file.has_ranges = false; }},
        WrongParts{"Other", [](ServedFile& file) { file.content_range = "bytes 5-9/10"; }},
        WrongParts{"OfAnotherSize",
                   [](ServedFile& file) { file.content_range = "bytes 0-8388607/99999999"; }}),
    [](const auto& test) { return test.param.name; });

TEST_F(RangeDownloadTest, ASourceThatChangesBetweenPartsIsStaleAndNothingIsKept) {
  const auto num = std::make_shared<std::atomic<int>>(0);
  serve({.before_get = [num](ServedFile& file) {
    if (++*num == 3) {
      file.etag = "\"v2\"";
      file.body.own()[0] ^= 1;
    }
  }});
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache(), request()); }), ErrorCode::kStaleIndex);
  EXPECT_EQ(num_files(), 0U);
}

// If the index has no validator, all parts must have the version that HEAD named. The new version
// is fetched whole.
TEST_F(RangeDownloadTest, PartsOfTwoVersionsAreNeverPutTogether) {
  const auto num = std::make_shared<std::atomic<int>>(0);
  std::string second = large_bytes(2);
  serve({.before_get = [num, &second](ServedFile& file) {
    if (++*num != 3) return;
    file.etag = "\"v2\"";
    file.body = second;
  }});
  const CachedShard shard = CacheAccess::get(*cache(), request(""));
  EXPECT_TRUE(test::same(test::read_file(shard.path()), second));
}

TEST_F(RangeDownloadTest, AShardOfAnotherSizeIsStale) {
  serve({.body = body() + "more"});
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache(), request()); }), ErrorCode::kStaleIndex);
  serve({.body = body().substr(1)});
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache(), request()); }), ErrorCode::kStaleIndex);
  EXPECT_EQ(num_files(), 0U);
}

TEST_F(RangeDownloadTest, AServerThatRefusesAPartEndsAllOfThem) {
  const auto num = std::make_shared<std::atomic<int>>(0);
  serve({.pause_at = kPieceBytes,  // the other parts never arrive
         .pauses = std::make_shared<std::atomic<bool>>(true),
         .before_get = [num](ServedFile& file) {
           if (++*num == 4) file.statuses = std::vector<int>(20, 403);
           if (*num == 4) file.cut_after = 0;
         }});
  EXPECT_THAT(error_text([&] { CacheAccess::get(*cache(), request()); }), HasSubstr("403"));
  EXPECT_EQ(num_files(), 0U);
}

TEST_F(RangeDownloadTest, CancellingEndsAllParts) {
  serve({.pause_at = kPieceBytes, .pauses = std::make_shared<std::atomic<bool>>(true)});
  std::atomic<bool> cancel{false};
  CacheRequest wanted = request();
  wanted.cancel = &cancel;
  std::thread user([&] {
    while (num_gets().first < 4) std::this_thread::yield();
    cancel = true;
  });
  EXPECT_EQ(error_code([&] { CacheAccess::get(*cache(), wanted); }), ErrorCode::kCancelled);
  user.join();
  EXPECT_EQ(num_files(), 0U);
}

TEST_F(RangeDownloadTest, WhatIsWantedIsAskedForFirst) {
  serve();
  const Fetchers fetchers(options_);
  const Fetcher::Request asked{.url = url(), .validator = "\"v1\""};
  std::string got(kBytes, '\0');
  std::uint64_t done = 0;
  constexpr std::uint64_t kWanted = (std::uint64_t{20} << 20) + 4096;
  download_ranges({.fetchers = fetchers,
                   .request = asked,
                   .size_bytes = kBytes,
                   .num_connections = 1,
                   .write = [&](std::uint64_t offset,
                                std::string_view bytes) { bytes.copy(&got[offset], bytes.size()); },
                   .advance =
                       [&](std::uint64_t end) {
                         EXPECT_GT(end, done);
                         done = end;
                       },
                   .wanted = [&] { return std::vector<std::uint64_t>{kWanted + 7}; }});
  EXPECT_TRUE(test::same(got, body()));
  EXPECT_EQ(done, kBytes);
  EXPECT_EQ(server_.requests().front().header("range"),
            "bytes=" + std::to_string(kWanted) + "-" + std::to_string(kWanted + kPieceBytes - 1));
}

// ThreadSanitizer cannot start threads in a child of a process with threads.
#ifndef __SANITIZE_THREAD__

struct KillAfter {
  static inline std::atomic<int> countdown{0};
  static void handle(const char* at) {
    if (std::string_view(at) == "shard_cache.written" && --countdown == 0) {
      ::kill(::getpid(), SIGKILL);
    }
  }
};

TEST_F(RangeDownloadTest, OfAFetchThatIsKilledAmongItsPartsNothingIsUsed) {
  serve();
  for (const int after : {1, 40, 100}) {
    test::Child child([&]() -> std::string {
      KillAfter::countdown = after;
      set_fault_handler(&KillAfter::handle);
      CacheAccess::get(*cache(), request());
      return "";
    });
    EXPECT_EQ(child.wait(), "killed by signal 9");
    expect_whole(request());
    EXPECT_EQ(num_files(), 2U) << "the shard and its record";
    ShardCache::open({.directory = dir_ / "cache"})->prune(0);
  }
}

#endif

TEST(ByteRangesTest, AreWhatASetOfBytesIs) {
  constexpr std::uint64_t kMost = 40;
  std::minstd_rand random(7);
  for (int round = 0; round < 200; ++round) {
    detail::ByteRanges ranges;
    std::set<std::uint64_t> bytes;
    for (int step = 0; step < 30; ++step) {
      const std::uint64_t begin = random() % kMost, end = begin + random() % 10;
      const bool adds = random() % 3 != 0;
      for (std::uint64_t i = begin; i < end; ++i) {
        if (adds) {
          bytes.insert(i);
        } else {
          bytes.erase(i);
        }
      }
      adds ? ranges.add(begin, end) : ranges.remove(begin, end);
      EXPECT_EQ(ranges.empty(), bytes.empty());
      for (std::uint64_t i = 0; i < kMost + 10; ++i) {
        std::uint64_t missing = i;
        while (bytes.contains(missing)) ++missing;
        ASSERT_EQ(ranges.first_missing(i), missing);
        ASSERT_EQ(ranges.find(i).has_value(), bytes.contains(i));
        if (const auto found = ranges.find(i)) {
          EXPECT_FALSE(found->first > 0 && bytes.contains(found->first - 1));
          EXPECT_EQ(found->second, missing);
        }
        ASSERT_EQ(ranges.contains(i, i + 3),
                  bytes.contains(i) && bytes.contains(i + 1) && bytes.contains(i + 2));
      }
      if (!bytes.empty()) {
        EXPECT_EQ(ranges.first().first, *bytes.begin());
      }
    }
  }
}

}  // namespace
}  // namespace shardwise
