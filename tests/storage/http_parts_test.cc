// Many parts of files at a time, and redirects that are remembered.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/storage/fetcher.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::Dice;
using test::error_code;
using test::quick_options;
using test::same;
using test::ServedFile;
using test::some_bytes;
using test::StringSink;
using test::TestHttpServer;

/// Parts that are fetched together, and their bytes.
struct Parts {
  void add(const std::string& url, std::uint64_t begin, std::uint64_t end,
           const std::string& validator = "\"v1\"", const CancelToken& cancel = {}) {
    parts.push_back(
        {.request = {.url = url, .range = {begin, end}, .validator = validator, .cancel = cancel},
         .sink = &sinks.emplace_back()});
  }
  std::size_t num_complete() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(parts, [](const Fetcher::Part& part) { return part.is_complete; }));
  }

  std::deque<StringSink> sinks;
  std::vector<Fetcher::Part> parts;
};

class HttpPartsTest : public ::testing::Test {
 protected:
  std::string serve(const std::string& path, ServedFile file) {
    server_.serve(path, std::move(file));
    return server_.url(path);
  }

  TestHttpServer server_;
  Fetchers fetchers_{quick_options()};
};

TEST_F(HttpPartsTest, PartsOfSeveralFilesArrive) {
  test::for_each_seed(3, 30, [&](std::uint64_t seed) {
    Dice dice(seed);
    std::vector<std::string> bodies, urls;
    for (std::uint64_t i = 0; i < 1 + dice.below(4); ++i) {
      bodies.push_back(some_bytes(1 + dice.below(3'000'000), static_cast<std::uint32_t>(seed + i)));
      urls.push_back(serve("/" + std::to_string(i), {.body = bodies.back()}));
    }
    const auto before = server_.requests().size();
    Parts wanted;
    std::vector<std::string> expected;
    for (std::uint64_t i = 0; i < dice.below(60); ++i) {
      const std::size_t file = dice.below(bodies.size());
      const std::uint64_t begin = dice.below(bodies[file].size());
      const std::uint64_t size =
          1 + dice.below(std::min<std::uint64_t>(300'000, bodies[file].size() - begin));
      wanted.add(urls[file], begin, begin + size);
      expected.push_back(bodies[file].substr(begin, size));
    }
    fetchers_.fetch_parts(wanted.parts);
    ASSERT_EQ(wanted.num_complete(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(same(wanted.sinks[i].bytes, expected[i]));
    }
    EXPECT_EQ(server_.requests().size(), before + expected.size());
  });
}

TEST_F(HttpPartsTest, PartsComeOverSeveralConnectionsThatAreUsedAgain) {
  const std::string body = some_bytes(1'000'000);
  const std::string url = serve("/x", {.body = body, .delay = std::chrono::milliseconds(5)});
  for (int round = 0; round < 4; ++round) {
    Parts wanted;
    for (std::uint64_t i = 0; i < 50; ++i) wanted.add(url, 1000 * i, 1000 * i + 500);
    fetchers_.fetch_parts(wanted.parts);
    EXPECT_EQ(wanted.num_complete(), 50U);
  }
  EXPECT_GE(server_.num_connections(), 4);
  EXPECT_LE(server_.num_connections(), 50);
  EXPECT_EQ(fetchers_.max_gap_bytes(url), 0U) << "these parts are too short to measure a rate";
  Parts large;
  large.add(url, 0, body.size());
  fetchers_.fetch_parts(large.parts);
  EXPECT_GT(fetchers_.max_gap_bytes(url), 0U) << "latency and rate were measured";
}

TEST_F(HttpPartsTest, TheLimitOfConnectionsIsKept) {
  Fetchers::Options options = quick_options();
  options.max_connections_per_host = 2;
  fetchers_ = Fetchers(options);
  const std::string url =
      serve("/x", {.body = some_bytes(100'000), .delay = std::chrono::milliseconds(1)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      Parts wanted;
      for (std::uint64_t i = 0; i < 20; ++i) wanted.add(url, 1000 * i, 1000 * i + 500);
      fetchers_.fetch_parts(wanted.parts);
      EXPECT_EQ(wanted.num_complete(), 20U);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(server_.num_connections(), 6);
}

class RedirectedPartsTest : public HttpPartsTest {
 protected:
  RedirectedPartsTest() {
    for (int i = 0; i < 3; ++i) {
      const std::string name = std::to_string(i);
      bodies_.push_back(some_bytes(200'000, static_cast<std::uint32_t>(i + 1)));
      serve("/blob" + name, {.body = bodies_.back(), .etag = "\"of the store\""});
      urls_.push_back(
          serve("/resolve" + name, {.extra_headers = "X-Linked-Etag: \"v1\"\r\n",
                                    .redirect_to = server_.url("/blob" + name) + "?signed=1"}));
    }
  }
  void fetch_all(std::size_t expected) {
    Parts wanted;
    for (std::uint64_t i = 0; i < 60; ++i) wanted.add(urls_[i % 3], 1000 * i, 1000 * i + 900);
    fetchers_.fetch_parts(wanted.parts);
    EXPECT_EQ(wanted.num_complete(), expected);
    for (std::size_t i = 0; i < 60; ++i) {
      if (!wanted.parts[i].is_complete) continue;
      EXPECT_TRUE(same(wanted.sinks[i].bytes, bodies_[i % 3].substr(1000 * i, 900)));
    }
  }
  int num_resolved() const {
    return server_.gets("/resolve0") + server_.gets("/resolve1") + server_.gets("/resolve2");
  }

  std::vector<std::string> bodies_, urls_;
};

TEST_F(RedirectedPartsTest, AFileIsRedirectedOnce) {
  fetch_all(60);
  EXPECT_EQ(num_resolved(), 3);
  fetch_all(60);
  StringSink sink;
  fetchers_.fetch({.url = urls_[1], .range = {5, 10}, .validator = "\"v1\""}, sink);
  EXPECT_EQ(sink.bytes, bodies_[1].substr(5, 5));
  EXPECT_EQ(num_resolved(), 3);
  // A request without a validator is for the present version, so it does not use a remembered
  // redirect.
  EXPECT_EQ(fetchers_.stat({.url = urls_[1]}).validator, "\"v1\"");
  StringSink whole;
  fetchers_.fetch({.url = urls_[1]}, whole);
  EXPECT_TRUE(same(whole.bytes, bodies_[1]));
  EXPECT_EQ(num_resolved(), 4);
}

TEST_F(RedirectedPartsTest, ARefusedRedirectIsFoundAgain) {
  fetch_all(60);
  serve("/blob1", {.statuses = std::vector<int>(1000, 403)});
  serve("/moved", {.body = bodies_[1]});
  serve("/resolve1", {.extra_headers = "X-Linked-Etag: \"v1\"\r\n",
                      .redirect_to = server_.url("/moved") + "?signed=2"});
  StringSink sink;
  fetchers_.fetch({.url = urls_[1], .range = {5, 10}, .validator = "\"v1\""}, sink);
  EXPECT_EQ(sink.bytes, bodies_[1].substr(5, 5));
  EXPECT_EQ(num_resolved(), 4);
  fetch_all(60);
  EXPECT_EQ(num_resolved(), 4);
  // A part that fails is not retried. Its bytes are left for fetch().
  serve("/moved", {.statuses = std::vector<int>(1000, 403)});
  fetch_all(40);
  serve("/moved", {.body = bodies_[1]});
  fetch_all(60);
}

TEST_F(RedirectedPartsTest, AnExpiredRedirectIsNotUsed) {
  serve("/resolve0", {.extra_headers = "X-Linked-Etag: \"v1\"\r\n",
                      .redirect_to = server_.url("/blob0") + "?Expires=1600000000&Signature=x"});
  fetch_all(60);
  fetch_all(60);
  EXPECT_GE(server_.gets("/resolve0"), 2);
  EXPECT_EQ(server_.gets("/resolve1"), 1);
}

TEST_F(RedirectedPartsTest, AFileThatChangedIsNotRead) {
  fetch_all(60);
  serve("/blob1", {.body = some_bytes(200'000, 77), .etag = "\"of the store\""});
  serve("/resolve1", {.extra_headers = "X-Linked-Etag: \"v2\"\r\n",
                      .redirect_to = server_.url("/blob1") + "?signed=2"});
  StringSink sink;
  EXPECT_EQ(error_code([&] { fetchers_.fetch({.url = urls_[1], .validator = "\"v1\""}, sink); }),
            ErrorCode::kStaleIndex);
}

TEST_F(HttpPartsTest, WhatDoesNotArriveAtOnceIsLeftIncomplete) {
  const std::string body = some_bytes(300'000);
  const auto complete = [&](ServedFile file, const std::string& validator = "\"v1\"") {
    file.body = body;
    const std::string url = serve("/x", std::move(file));
    Parts wanted;
    for (std::uint64_t i = 1; i <= 30; ++i) wanted.add(url, 9000 * i, 9000 * i + 5000, validator);
    fetchers_.fetch_parts(wanted.parts);
    for (std::size_t i = 0; i < wanted.parts.size(); ++i) {
      const std::string expected = body.substr(9000 * (i + 1), 5000);
      const std::string& got = wanted.sinks[i].bytes;
      EXPECT_TRUE(same(got, expected.substr(0, got.size()))) << "no wrong bytes are delivered";
      if (wanted.parts[i].is_complete) {
        EXPECT_EQ(got.size(), expected.size());
      }
    }
    return wanted.num_complete();
  };
  EXPECT_EQ(complete({}), 30U);
  EXPECT_EQ(complete({.has_ranges = false}), 0U);
  EXPECT_EQ(complete({.content_range = "bytes 5-5004/300000"}), 0U);
  EXPECT_EQ(complete({.content_range = "bytes 0-*"}), 0U);
  EXPECT_EQ(complete({.etag = "\"v2\""}), 0U);
  EXPECT_EQ(complete({}, "\"v2\""), 0U);
  EXPECT_EQ(complete({.statuses = std::vector<int>(30, 503)}), 0U);
  EXPECT_EQ(complete({.statuses = {404, 500, 403}}), 27U);
  EXPECT_EQ(complete({.cut_after = 1000, .num_cuts = 10}), 20U);
  EXPECT_LT(complete({.excess = "more"}), 30U);
  EXPECT_EQ(complete({.before_get =
                          [n = 0](ServedFile& file) mutable {
                            if (++n == 11) file.etag = "\"v2\"";
                          }}),
            10U);
  EXPECT_EQ(complete({}), 30U) << "connections are usable afterwards";
}

TEST_F(HttpPartsTest, TheWaitForAHostThatRefusesIsOneForAllParts) {
  Fetchers::Options options = quick_options();
  options.retry_for = std::chrono::milliseconds(50);
  options.retry_base_delay = options.retry_max_delay = std::chrono::hours(1);
  fetchers_ = Fetchers(options);
  const std::string url =
      serve("/x", {.body = some_bytes(100'000), .statuses = std::vector<int>(1000, 429)});
  for (const std::size_t count : {1, 20}) {
    Parts wanted;
    for (std::uint64_t i = 0; i < count; ++i) wanted.add(url, 1000 * i, 1000 * i + 500);
    fetchers_.fetch_parts(wanted.parts);
    EXPECT_EQ(wanted.num_complete(), 0U);
  }
  EXPECT_LE(server_.gets("/x"), 3) << "the other parts are left to fetch()";
}

TEST_F(HttpPartsTest, PartsWithoutAHostOrAFetcherAreLeftIncomplete) {
  const std::string url = serve("/x", {.body = "0123456789"});
  Parts wanted;
  wanted.add("http://127.0.0.1:1/x", 0, 5);
  wanted.add("nothing://x", 0, 5);
  wanted.add("no url", 0, 5);
  wanted.add(url, 2, 5);
  wanted.add("http://[", 0, 5);
  fetchers_.fetch_parts(wanted.parts);
  EXPECT_EQ(wanted.num_complete(), 1U);
  EXPECT_EQ(wanted.sinks[3].bytes, "234");
}

TEST_F(HttpPartsTest, PartsCanBeCancelled) {
  std::atomic<bool> cancel{false};
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  const std::string url = serve("/x", {.body = some_bytes(100'000), .hangs = hangs});
  fetchers_.stat({.url = url});  // shows that the host does not redirect
  std::thread canceller([&] {
    while (server_.gets("/x") < 10) std::this_thread::yield();
    cancel = true;
  });
  Parts wanted;
  for (std::uint64_t i = 0; i < 40; ++i) wanted.add(url, 1000 * i, 1000 * i + 9, "", &cancel);
  EXPECT_EQ(error_code([&] { fetchers_.fetch_parts(wanted.parts); }), ErrorCode::kCancelled);
  canceller.join();
  *hangs = false;
  cancel = false;
  fetchers_.fetch_parts(wanted.parts);
  EXPECT_EQ(wanted.num_complete(), 40U);
}

}  // namespace
}  // namespace shardwise
