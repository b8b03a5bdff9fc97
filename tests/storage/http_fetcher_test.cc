#include <gmock/gmock.h>

#include <sys/time.h>
#include <atomic>
#include <csignal>
#include <limits>
#include <thread>

#include "shardwise/storage/fetcher.h"
#include "storage/backoff.h"
#include "storage/fetch_support.h"
#include "storage/http_download.h"
#include "storage/late_server.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::LateServer;
using test::quick_options;
using test::same;
using test::ServedFile;
using test::some_bytes;
using test::StringSink;
using test::TestHttpServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpFetcherTest : public ::testing::Test {
 protected:
  /// Serves `file` as /x.tar. Returns its URL.
  std::string serve(ServedFile file) {
    server_.serve("/x.tar", std::move(file));
    return server_.url("/x.tar");
  }
  std::string fetched(const Fetcher::Request& request) {
    StringSink sink;
    last_ = fetchers_.fetch(request, sink);
    return sink.bytes;
  }
  std::string text_of(const Fetcher::Request& request) {
    return error_text([&] { fetched(request); });
  }
  std::optional<ErrorCode> code_of(const Fetcher::Request& request) {
    return error_code([&] { fetched(request); });
  }

  TestHttpServer server_;
  Fetchers fetchers_{quick_options()};
  Fetcher::Stat last_;
};

TEST_F(HttpFetcherTest, BringsAFileWithItsSizeAndValidator) {
  const std::string body = some_bytes(3'000'000);
  const std::string url = serve({.body = body, .etag = "\"abc\""});
  EXPECT_TRUE(same(fetched({.url = url}), body));
  EXPECT_EQ(last_.size_bytes, body.size());
  EXPECT_EQ(last_.validator, "\"abc\"");
  EXPECT_TRUE(last_.has_ranges);

  const auto request = server_.requests().at(0);
  EXPECT_EQ(request.header("range"), "");
  EXPECT_EQ(request.header("accept-encoding"), "identity");
  EXPECT_THAT(request.header("user-agent"), StartsWith("shardwise/"));
}

TEST_F(HttpFetcherTest, StatAsksWithoutFetching) {
  const std::string url =
      serve({.body = "12345", .etag = "", .last_modified = "Mon, 02 Jan 2023 00:00:00 GMT"});
  const Fetcher::Stat file = fetchers_.stat({.url = url});
  EXPECT_EQ(file.size_bytes, 5U);
  EXPECT_EQ(file.validator, "Mon, 02 Jan 2023 00:00:00 GMT");
  EXPECT_TRUE(file.has_ranges);
  EXPECT_EQ(server_.gets("/x.tar"), 0);
}

TEST_F(HttpFetcherTest, StatAsksForOneByteWhereTheServerKnowsNoHead) {
  const std::string url = serve({.body = "12345", .has_head = false});
  const Fetcher::Stat file = fetchers_.stat({.url = url});
  EXPECT_EQ(file.size_bytes, 5U);
  EXPECT_EQ(file.validator, "\"v1\"");
  EXPECT_EQ(server_.requests().back().header("range"), "bytes=0-0");
}

// Fault under test: tests/faults.md 47.
TEST_F(HttpFetcherTest, Row47_AWeakEtagIsComparedWithTheTimeAndNotSent) {
  const std::string time = "Mon, 02 Jan 2023 00:00:00 GMT";
  const std::string url = serve({.body = "x", .etag = "W/\"1\""});
  EXPECT_EQ(fetchers_.stat({.url = url}).validator, "W/\"1\"");
  EXPECT_EQ(fetched({.url = url, .validator = "W/\"1\""}), "x");
  EXPECT_EQ(code_of({.url = url, .validator = "W/\"2\""}), ErrorCode::kStaleIndex);
  EXPECT_EQ(code_of({.url = url, .validator = "\"1\""}), ErrorCode::kStaleIndex);

  serve({.body = "x", .etag = "W/\"1\"", .last_modified = time});
  const std::string both = "W/\"1\", " + time;
  EXPECT_EQ(fetchers_.stat({.url = url}).validator, both);
  EXPECT_EQ(fetched({.url = url, .validator = both}), "x");
  EXPECT_EQ(last_.validator, both);
  serve({.body = "y", .etag = "W/\"1\"", .last_modified = "Mon, 02 Jan 2023 00:00:01 GMT"});
  EXPECT_EQ(code_of({.url = url, .validator = both}), ErrorCode::kStaleIndex);
  for (const auto& request : server_.requests()) {
    EXPECT_EQ(request.header("if-match").find("W/"), std::string::npos);
  }
}

// Fault under test: tests/faults.md 47.
TEST_F(HttpFetcherTest, Row47_APartOfAFileWithAWeakEtagIsNotGoneOnWith) {
  const std::string body = some_bytes(1'000'000);
  StringSink sink;
  fetchers_.fetch(
      {.url = serve({.body = body, .etag = "W/\"1\"", .cut_after = 600'000, .num_cuts = 1}),
       .validator = "W/\"1\""},
      sink);
  EXPECT_TRUE(same(sink.bytes, body));
  EXPECT_EQ(sink.num_restarts, 1) << "two answers with it need not be of the same bytes";
}

// Fault under test: tests/faults.md 47.
TEST_F(HttpFetcherTest, Row47_AStrongEtagIsAskedForSoThatNoOtherBytesCome) {
  const std::string url = serve({.body = some_bytes(1'000'000), .etag = "\"v2\""});
  EXPECT_EQ(code_of({.url = url, .validator = "\"v1\""}), ErrorCode::kStaleIndex);
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].header("if-match"), "\"v1\"");
  EXPECT_EQ(requests[1].method, "HEAD") << "to see what it is now";
  // An index may contain any text as validator. It is sent in a request only if it is an ETag.
  EXPECT_EQ(code_of({.url = url, .validator = "\"v1\r\nX-Evil: 1\""}), ErrorCode::kStaleIndex);
  EXPECT_EQ(server_.requests().back().header("if-match"), "");
  EXPECT_EQ(server_.requests().back().header("x-evil"), "");
}

// Fault under test: tests/faults.md 47.
TEST_F(HttpFetcherTest, Row47_AServerThatDoesNotKnowIfMatchIsHeldToItsAnswer) {
  const std::string body = some_bytes(300'000);
  const std::string url = serve({.body = body, .etag = "\"v2\"", .has_if_match = false});
  EXPECT_TRUE(same(fetched({.url = url, .validator = "\"v2\""}), body));
  StringSink sink;
  EXPECT_EQ(error_code([&] { fetchers_.fetch({.url = url, .validator = "\"v1\""}, sink); }),
            ErrorCode::kStaleIndex);
  EXPECT_EQ(sink.bytes, "");
  // A server that answers 412 although the version is right gets another request without If-Match.
  server_.set_gate(
      [](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
        if (request.header("if-match").empty()) return std::nullopt;
        return std::pair(412, std::string("no"));
      });
  EXPECT_TRUE(same(fetched({.url = url, .validator = "\"v2\""}), body));
}

TEST_F(HttpFetcherTest, EmptyAndChunkedFilesAreWhole) {
  EXPECT_EQ(fetched({.url = serve({.body = ""})}), "");
  EXPECT_EQ(last_.size_bytes, 0U);
  const std::string body = some_bytes(300'000);
  EXPECT_TRUE(same(fetched({.url = serve({.body = body, .is_chunked = true})}), body));
  EXPECT_EQ(last_.size_bytes, std::nullopt);
}

TEST_F(HttpFetcherTest, BringsRanges) {
  const std::string body = some_bytes(100'000);
  const std::string url = serve({.body = body});
  EXPECT_TRUE(same(fetched({.url = url, .range = {10, 20}}), body.substr(10, 10)));
  EXPECT_EQ(server_.requests().back().header("range"), "bytes=10-19");
  EXPECT_EQ(last_.size_bytes, body.size());
  EXPECT_TRUE(same(fetched({.url = url, .range = {99'000, std::nullopt}}), body.substr(99'000)));
  EXPECT_TRUE(same(fetched({.url = url, .range = {0, 5}}), body.substr(0, 5)));
  EXPECT_EQ(fetched({.url = url, .range = {7, 7}}), "");
  EXPECT_EQ(fetched({.url = url, .range = {100'000, std::nullopt}}), "");
  EXPECT_EQ(code_of({.url = url, .range = {8, 7}}), ErrorCode::kInvalidArgument);
}

TEST_F(HttpFetcherTest, ARangeBeyondTheEndIsAnError) {
  const std::string url = serve({.body = "12345"});
  EXPECT_THAT(
      text_of({.url = url, .range = {3, 9}}),
      AllOf(HasSubstr("5 bytes"), HasSubstr("at byte 9"), HasSubstr("index the file again")));
  EXPECT_THAT(text_of({.url = url, .range = {6, std::nullopt}}), HasSubstr("HTTP status 416"));
  serve({.body = "12345", .has_ranges = false});
  EXPECT_THAT(text_of({.url = url, .range = {0, 9}}), HasSubstr("5 bytes"));
}

TEST_F(HttpFetcherTest, AServerWithoutRangesGivesOnlyPartsFromTheStart) {
  const std::string body = some_bytes(2'000'000);
  const std::string url = serve({.body = body, .has_ranges = false});
  EXPECT_TRUE(same(fetched({.url = url, .range = {0, 1000}}), body.substr(0, 1000)));
  EXPECT_THAT(
      text_of({.url = url, .range = {1, 1000}}),
      AllOf(HasSubstr("whole file"), HasSubstr("shard cache"), HasSubstr("range requests")));
}

TEST_F(HttpFetcherTest, AnswersWithAnotherPartAreRefused) {
  for (const char* range :
       {"bytes 11-19/100", "bytes 10-18/100", "bytes 10-20/100", "bytes */100", "bytes 10-19/15",
        "items 10-19/100", "bytes 19-10/100", "nonsense", "bytes 10-99999999999999999999/*"}) {
    const std::string url = serve({.body = std::string(100, 'x'), .content_range = range});
    EXPECT_EQ(code_of({.url = url, .range = {10, 20}}), ErrorCode::kFetch) << range;
  }
}

TEST_F(HttpFetcherTest, AFileThatIsNotTheOneAskedForIsStale) {
  const std::string url = serve({.body = "new", .etag = "\"v2\""});
  const Fetcher::Request request{.url = url, .validator = "\"v1\""};
  EXPECT_THAT(text_of(request),
              AllOf(HasSubstr("changed at its source: '" + url + "'"), HasSubstr("'\"v1\"' before"),
                    HasSubstr("'\"v2\"' now"), HasSubstr("`shardwise index`")));
  EXPECT_EQ(code_of(request), ErrorCode::kStaleIndex);
  EXPECT_EQ(error_code([&] { fetchers_.stat(request); }), ErrorCode::kStaleIndex);
  EXPECT_EQ(fetched({.url = url, .validator = "\"v2\""}), "new");
  serve({.body = "new", .etag = ""});
  EXPECT_EQ(code_of(request), ErrorCode::kStaleIndex);
  EXPECT_THAT(text_of(request), HasSubstr("(version '\"v1\"' before, unknown now)"));
}

// Fault under test: tests/faults.md 10.
TEST_F(HttpFetcherTest, Row10_FourHundredsAreErrorsAtOnce) {
  for (const int status : {400, 401, 403, 404, 410}) {
    const std::string url = serve({.body = "x", .statuses = {status}});
    const int before = server_.gets("/x.tar");
    EXPECT_THAT(
        text_of({.url = url}),
        StartsWith("cannot fetch: '" + url + "' (HTTP status " + std::to_string(status) +
                   ", after 1 attempt); " +
                   (status == 401 || status == 403 ? "the URL has no password" : "check ")));
    EXPECT_EQ(server_.gets("/x.tar"), before + 1);
  }
  // The remedy in the error depends on whether the request had credentials.
  const std::string url = server_.url("/x.tar");
  std::string with_password = url;
  with_password.insert(url.find("//") + 2, "me:wrong@");
  for (const std::string& asked : {with_password, url + "?X-Amz-Date=1&X-Amz-Signature=2"}) {
    serve({.body = "x", .statuses = {403}});
    EXPECT_THAT(text_of({.url = asked}),
                AllOf(HasSubstr("the user"), HasSubstr("the password"), HasSubstr("signed URL")));
  }
  EXPECT_EQ(code_of({.url = server_.url("/none")}), ErrorCode::kNotFound);
  EXPECT_THAT(error_text([&] { fetchers_.stat({.url = server_.url("/none")}); }),
              AllOf(HasSubstr("HTTP status 404, after 1 attempt"), HasSubstr("URL")));
}

// Fault under test: tests/faults.md 10.
TEST_F(HttpFetcherTest, Row10_FiveHundredsAndTooManyRequestsAreTriedAgainAFewTimes) {
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    std::string url = serve({.body = "here", .statuses = {status, status}});
    EXPECT_EQ(fetched({.url = url}), "here") << status;
    url = serve({.body = "here", .statuses = {status, status, status}});
    EXPECT_THAT(text_of({.url = url}),
                AllOf(HasSubstr("(HTTP status " + std::to_string(status) + ", after 3 attempts"),
                      HasSubstr("later"), HasSubstr("retry_for")));
  }
  for (const int status : {501, 505}) {
    EXPECT_THAT(text_of({.url = serve({.body = "here", .statuses = {status}})}),
                HasSubstr("after 1 attempt)"));
  }
  serve({.body = "here", .statuses = {503}});
  EXPECT_EQ(fetchers_.stat({.url = server_.url("/x.tar")}).size_bytes, 4U);
}

TEST_F(HttpFetcherTest, RetryAfterIsHeldToForAsLongAsTheFetchMayTry) {
  Fetchers::Options options = quick_options();
  // This is longer than any pause that the fetcher itself chooses, so it waits because of
  // Retry-After.
  options.retry_for = std::chrono::milliseconds(300);
  fetchers_ = Fetchers(options);
  for (const char* when : {"1", "99999999999999999", "Fri, 31 Dec 2100 23:59:59 GMT"}) {
    const std::string url = serve({.body = "here",
                                   .statuses = {503},
                                   .extra_headers = "Retry-After: " + std::string(when) + "\r\n"});
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(fetched({.url = url}), "here");
    const auto time = std::chrono::steady_clock::now() - start;
    EXPECT_GE(time, std::chrono::milliseconds(295)) << when;
  }
}

// Fault under test: tests/faults.md 53.
TEST_F(HttpFetcherTest, AnOutageIsSaidOnceAndLastsAsLongAsItMay) {
  Fetchers::Options options;
  options.retry_base_delay = options.retry_max_delay = std::chrono::milliseconds(1);
  std::vector<std::string> said;
  options.on_retry = [&](const std::string& url, const std::string& reason,
                         std::chrono::milliseconds left) {
    said.push_back(url + " " + reason);
    EXPECT_GT(left, std::chrono::minutes(14));
    EXPECT_LE(left, std::chrono::minutes(15));
  };
  fetchers_ = Fetchers(options);
  for (const int outages : {1, 2}) {
    const std::string url = serve({.body = "here", .statuses = std::vector<int>(40, 503)});
    EXPECT_EQ(fetched({.url = url + "?key=sesame"}), "here");
    ASSERT_EQ(said.size(), static_cast<std::size_t>(outages));
    EXPECT_EQ(said.back(), url + "?key=*** HTTP status 503");
  }
  serve({.body = "here", .statuses = {503, 503}});
  EXPECT_EQ(fetched({.url = server_.url("/x.tar")}), "here");
  EXPECT_EQ(said.size(), 2U) << "a server may stumble";

  options.on_retry = nullptr;
  options.retry_for = std::chrono::milliseconds(30);
  fetchers_ = Fetchers(options);
  const auto start = std::chrono::steady_clock::now();
  const std::string url = serve({.statuses = std::vector<int>(100'000, 503)});
  EXPECT_THAT(text_of({.url = url}), HasSubstr("or for longer (Fetchers::Options::retry_for)"));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  EXPECT_GT(server_.gets("/x.tar"), 2);
  options.retry_for = std::chrono::milliseconds::zero();
  fetchers_ = Fetchers(options);
  EXPECT_THAT(text_of({.url = url}), HasSubstr(", after 1 attempt)"));
}

// Fault under test: tests/faults.md 53.
TEST_F(HttpFetcherTest, AServerThatRefusesConnectionsIsTriedUntilItIsThere) {
  LateServer server;
  Fetchers::Options options = quick_options();
  options.max_retries = std::numeric_limits<int>::max();
  options.on_retry = [&](const std::string&, const std::string&, std::chrono::milliseconds left) {
    EXPECT_GT(left, std::chrono::minutes(14)) << "it may be away, though it has never answered";
    server.open();
  };
  fetchers_ = Fetchers(options);
  EXPECT_EQ(fetched({.url = server.url("/x.tar")}), "here");
}

TEST_F(HttpFetcherTest, AHostThatHasNeverAnsweredAndMayBeMisspeltIsNotTriedForLong) {
  std::atomic<bool> cancel{false};
  Fetchers::Options options = quick_options();
  options.max_retries = std::numeric_limits<int>::max();
  options.on_retry = [&](const std::string&, const std::string&, std::chrono::milliseconds left) {
    EXPECT_LE(left, std::chrono::seconds(30));
    cancel = true;
  };
  fetchers_ = Fetchers(options);
  LateServer server;
  server.open();
  // The server does not speak TLS.
  const std::string url = "https" + server.url("/x.tar").substr(4);
  EXPECT_EQ(code_of({.url = url, .cancel = &cancel}), ErrorCode::kCancelled);
}

// faults.md 11: a proxy's page or a truncated file is received once.
TEST_F(HttpFetcherTest, Row11_WhatComesWrongIsFetchedAgainUntilItIsWrongInTheSameWay) {
  const std::string body = some_bytes(300'000);
  ServedFile file{.body = body, .excess = "more"};
  file.before_get = [count = 0](ServedFile& it) mutable {
    if (++count == 2) it.excess.clear();
  };
  StringSink sink;
  fetchers_.fetch({.url = serve(file)}, sink);
  EXPECT_TRUE(same(sink.bytes, body));
  EXPECT_EQ(sink.num_restarts, 1);
  StringSink stubborn(false);
  EXPECT_THAT(error_text([&] { fetchers_.fetch({.url = serve(file)}, stubborn); }),
              HasSubstr("more bytes"));

  const int before = server_.gets("/x.tar");
  EXPECT_THAT(text_of({.url = serve({.body = body, .excess = "more"})}), HasSubstr("more bytes"));
  EXPECT_EQ(server_.gets("/x.tar") - before, 2);
}

TEST(BackoffTest, OnlyBytesThatAreNewAndNotTooSlowStartTheTimeAnew) {
  Fetchers::Options options = quick_options();
  const Fetcher::Request request{.url = "http://a/x"};
  Backoff backoff(options, request);  // allows two retries
  EXPECT_TRUE(backoff.wait_for_next({}));
  backoff.reached(1'000'000);
  EXPECT_TRUE(backoff.wait_for_next({}));
  backoff.reached(900'000);  // the transfer has restarted
  EXPECT_TRUE(backoff.wait_for_next({}));
  EXPECT_FALSE(backoff.wait_for_next({}));
  options.low_speed_bytes_per_second = 1'000'000'000;
  backoff.reached(1'000'001);
  EXPECT_FALSE(backoff.wait_for_next({}));
}

TEST(BackoffTest, WhatIsWrongInAnotherWayEachTimeIsTriedAgain) {
  const Fetchers::Options options = quick_options();
  const Fetcher::Request request{.url = "http://a/x"};
  Backoff backoff(options, request);
  EXPECT_TRUE(backoff.wait_after_wrong("hash 1"));
  EXPECT_TRUE(backoff.wait_after_wrong("hash 2"));
  EXPECT_FALSE(backoff.wait_after_wrong("hash 2"));
}

// Fault under test: tests/faults.md 11.
TEST_F(HttpFetcherTest, Row11_ACutTransferGoesOnWhereItWas) {
  const std::string body = some_bytes(1'000'000);
  const std::string url = serve({.body = body, .cut_after = 300'000});
  EXPECT_TRUE(same(fetched({.url = url}), body));
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[1].header("range"), "bytes=300000-");
  EXPECT_EQ(requests[1].header("if-range"), "\"v1\"");
  EXPECT_EQ(requests[3].header("range"), "bytes=900000-");
  EXPECT_EQ(last_.size_bytes, body.size());

  EXPECT_TRUE(same(fetched({.url = url, .range = {100, 700'000}}), body.substr(100, 699'900)));
  serve({.body = body,
         .etag = "",
         .last_modified = "Mon, 02 Jan 2023 00:00:00 GMT",
         .cut_after = 300'000});
  EXPECT_TRUE(same(fetched({.url = url}), body));
}

// Fault under test: tests/faults.md 11.
TEST_F(HttpFetcherTest, Row11_CutsWithoutEndOfItAreGivenUp) {
  Fetchers::Options options = quick_options();
  // One byte per attempt is too slow to count as progress.
  options.low_speed_bytes_per_second = 1'000'000'000;
  fetchers_ = Fetchers(options);
  const std::string url = serve({.body = some_bytes(1000), .cut_after = 1});
  EXPECT_THAT(text_of({.url = url}), AllOf(StartsWith("cannot fetch: '" + url + "' ("),
                                           HasSubstr("after 3 attempts"), HasSubstr("later")));
  serve({.body = some_bytes(1000), .cut_after = 0});
  EXPECT_THAT(text_of({.url = url}), AllOf(HasSubstr("after 3 attempts"), HasSubstr("later")));
}

// Fault under test: tests/faults.md 11.
TEST_F(HttpFetcherTest, Row11_ACutWithoutRangesOrValidatorStartsAgain) {
  const std::string body = some_bytes(1'000'000);
  ServedFile without_ranges{.body = body, .has_ranges = false, .cut_after = 600'000, .num_cuts = 1};
  ServedFile without_validator{.body = body, .etag = "", .cut_after = 600'000, .num_cuts = 1};
  for (const ServedFile& file : {without_ranges, without_validator}) {
    StringSink sink;
    fetchers_.fetch({.url = serve(file)}, sink);
    EXPECT_TRUE(same(sink.bytes, body));
    EXPECT_EQ(sink.num_restarts, 1);

    StringSink stubborn(false);
    EXPECT_THAT(error_text([&] { fetchers_.fetch({.url = serve(file)}, stubborn); }),
                AllOf(HasSubstr("(the transfer was interrupted"), HasSubstr("from the start")));
  }
}

TEST_F(HttpFetcherTest, AFileThatChangesWhileItIsFetchedIsNeverMixed) {
  const std::string old_body(1'000'000, 'o'), new_body(1'200'000, 'n');
  ServedFile file{.body = old_body, .cut_after = 400'000, .num_cuts = 1};
  file.before_get = [&, count = 0](ServedFile& it) mutable {
    if (++count == 2) it = {.body = new_body, .etag = "\"v2\""};
  };
  StringSink sink;
  const Fetcher::Stat source = fetchers_.fetch({.url = serve(file)}, sink);
  EXPECT_TRUE(same(sink.bytes, new_body));
  EXPECT_EQ(source.validator, "\"v2\"");
  EXPECT_EQ(sink.num_restarts, 1);

  EXPECT_EQ(code_of({.url = serve(file), .validator = "\"v1\""}), ErrorCode::kStaleIndex);
  StringSink stubborn(false);
  EXPECT_THAT(error_text([&] { fetchers_.fetch({.url = serve(file)}, stubborn); }),
              HasSubstr("changed while"));

  // The server ignores If-Range, and sends a part of another version.
  file.before_get = [&, count = 0](ServedFile& it) mutable {
    if (++count == 2) it.body = new_body, it.etag = "\"v1\"", it.extra_headers = "ETag: \"v2\"\r\n";
  };
  StringSink third;
  fetchers_.fetch({.url = serve(file)}, third);
  EXPECT_TRUE(same(third.bytes, new_body));
}

// Fault under test: tests/faults.md 11.
TEST_F(HttpFetcherTest, Row11_LengthsThatAreNotTrueAreErrors) {
  const std::string body = some_bytes(10'000);
  EXPECT_EQ(code_of({.url = serve({.body = body, .length_error = 100})}), ErrorCode::kFetch);
  EXPECT_THAT(text_of({.url = serve({.body = body, .length_error = -100})}),
              AllOf(HasSubstr("more bytes"), HasSubstr("proxies")));
  EXPECT_THAT(text_of({.url = serve({.body = body, .excess = "more"})}), HasSubstr("more bytes"));
  EXPECT_THAT(text_of({.url = serve({.body = body, .has_length = false})}),
              AllOf(HasSubstr("no length"), HasSubstr("truncation")));
  EXPECT_EQ(code_of({.url = serve({.body = body, .extra_headers = "Content-Length: 77\r\n"})}),
            ErrorCode::kFetch);
}

// faults.md 11: bytes after the body are detected even if the body ends at the end of a buffer of
// libcurl.
TEST_F(HttpFetcherTest, Row11_ExcessIsSeenWhateverTheSize) {
  for (const std::size_t size : {1U, 16'384U, 65'536U, 262'144U, 524'288U, 1'048'576U}) {
    EXPECT_THAT(text_of({.url = serve({.body = some_bytes(size), .excess = "more"})}),
                HasSubstr("more bytes"))
        << size;
  }
}

// faults.md 12: libcurl may report that the last bytes came too slowly although they have arrived.
TEST(HttpDownloadTest, Row12_AnAnswerOfWhichAllCameIsWholeHoweverItsTransferEnded) {
  const std::string body = some_bytes(1000);
  struct Case {
    int status;
    Fetcher::Range range;
    std::size_t num_bytes;  // number of bytes that arrive before the transfer ends
    CURLcode code;
    bool has_excess, is_whole;
  };
  for (const Case& c :
       std::initializer_list<Case>{{200, {0, {}}, 1000, CURLE_OPERATION_TIMEDOUT, false, true},
                                   {200, {0, {}}, 999, CURLE_OPERATION_TIMEDOUT, false, false},
                                   {200, {0, 500}, 500, CURLE_OPERATION_TIMEDOUT, false, true},
                                   {206, {200, 700}, 500, CURLE_OPERATION_TIMEDOUT, false, true},
                                   {206, {200, 700}, 499, CURLE_OPERATION_TIMEDOUT, false, false},
                                   {206, {200, {}}, 800, CURLE_RECV_ERROR, false, true},
                                   {200, {0, {}}, 1000, CURLE_OPERATION_TIMEDOUT, true, false}}) {
    SCOPED_TRACE(std::to_string(c.status) + " " + std::to_string(c.num_bytes));
    const Fetcher::Request request{.url = "http://h/x.tar", .range = c.range};
    StringSink sink;
    SeenVersions versions;
    HttpDownload download(request, sink, versions, std::chrono::hours(1));
    download.next_query();
    HttpResult result;
    result.code = c.code;
    result.has_excess = c.has_excess;
    result.answer.status = c.status;
    result.answer.length = 1000;
    result.answer.etag = "\"v1\"";
    if (c.status == 206) {
      const std::uint64_t end = c.range.end.value_or(1000);
      result.answer.length = end - c.range.begin;
      result.answer.range = {.begin = c.range.begin, .end = end, .total = 1000};
    }
    download.begin(result.answer);
    EXPECT_TRUE(download.write(body.substr(c.range.begin, c.num_bytes)));
    if (c.has_excess) {
      EXPECT_THAT(error_text([&] { download.finish(result); }), HasSubstr("more bytes than it"));
      continue;
    }
    EXPECT_EQ(download.finish(result), c.is_whole);
    EXPECT_TRUE(same(sink.bytes, body.substr(c.range.begin, c.num_bytes)));
    EXPECT_EQ(download.file().validator, "\"v1\"");
  }
}

TEST(HttpDownloadTest, AnAnswerWithoutALengthMayNotTakeForever) {
  const Fetcher::Request request{.url = "http://h/x.tar"};
  HttpAnswer answer;
  answer.status = 200;
  answer.is_chunked = true;
  StringSink sink;
  SeenVersions versions;
  HttpDownload short_of_time(request, sink, versions, std::chrono::milliseconds(-1));
  short_of_time.begin(answer);
  EXPECT_THAT(
      error_text([&] { short_of_time.write("more"); }),
      AllOf(HasSubstr("'http://h/x.tar'"), HasSubstr("no length"), HasSubstr("not end after ")));
  EXPECT_TRUE(short_of_time.is_endless()) << "so that it is not begun again";
  HttpDownload patient(request, sink, versions, std::chrono::hours(1));
  patient.begin(answer);
  EXPECT_TRUE(patient.write("more"));
  // An answer with a length ends by itself, so it has no time limit.
  answer.is_chunked = false;
  answer.length = 8;
  HttpDownload with_length(request, sink, versions, std::chrono::milliseconds(-1));
  with_length.begin(answer);
  EXPECT_TRUE(with_length.write("more"));
}

TEST_F(HttpFetcherTest, AnAnswerThatEndsInItsHeaderIsAskedForAgain) {
  const std::string url = serve({.body = "12345", .statuses = {0, 0}});
  EXPECT_EQ(fetched({.url = url, .range = {1, 3}, .validator = "\"v1\""}), "23");
  EXPECT_EQ(server_.gets("/x.tar"), 3);
}

TEST_F(HttpFetcherTest, ContentEncodingIsNamedWhereItMayBeTheCause) {
  const std::string gzip = "Content-Encoding: gzip\r\n";
  const std::string url = serve({.body = "12345", .etag = "W/\"v1\"", .extra_headers = gzip});
  EXPECT_THAT(text_of({.url = url, .validator = "\"v1\""}),
              AllOf(HasSubstr("'\"v1\"' before"), HasSubstr("'W/\"v1\"' now"),
                    HasSubstr("Content-Encoding: gzip"), Not(HasSubstr("index` again"))));
  serve({.body = "12345", .has_ranges = false, .extra_headers = gzip});
  EXPECT_THAT(text_of({.url = url, .range = {1, 3}}), HasSubstr("Content-Encoding: gzip)"));
  serve({.body = "12345", .extra_headers = gzip});
  EXPECT_THAT(text_of({.url = url, .range = {1, 30}}),
              AllOf(HasSubstr("at byte 30"), HasSubstr("Content-Encoding: gzip)")));
  serve({.body = "12345", .extra_headers = gzip, .is_chunked = true});
  EXPECT_THAT(text_of({.url = url, .range = {1, 3}}), HasSubstr("Content-Encoding: gzip)"));
  serve({.body = "12345", .extra_headers = gzip, .has_length = false});
  EXPECT_THAT(text_of({.url = url}), HasSubstr("; the response has Content-Enc"));
  serve({.body = "12345",
         .has_ranges = false,
         .extra_headers = "x-goog-stored-content-encoding: gzip\r\n"});
  EXPECT_THAT(text_of({.url = url, .range = {1, 3}}),
              HasSubstr("stored with Content-Encoding: gzip"));
  // A file stored with this encoding, e.g. a .tar.gz, is returned unchanged. An encoding that no
  // reader supports is an error.
  EXPECT_EQ(fetched({.url = serve({.body = "12345", .extra_headers = gzip})}), "12345");
  serve({.body = "12345", .extra_headers = "Content-Encoding: BR\r\n"});
  EXPECT_THAT(text_of({.url = url}), HasSubstr("Content-Encoding: br"));
}

TEST_F(HttpFetcherTest, AServerThatGivesSeveralVersionsIsTold) {
  const std::string url = serve({.body = "12345", .has_many_nodes = true});
  const std::string version = fetchers_.stat({.url = url}).validator;
  EXPECT_THAT(
      text_of({.url = url, .validator = version}),
      AllOf(HasSubstr("changed at its source"), HasSubstr("(version '\"node-1\"' before, '\"node-"),
            HasSubstr("within seconds"), HasSubstr("same size")));
  // If the sizes differ, the file was replaced.
  serve({.body = "12345", .etag = "\"v1\""});
  fetchers_.stat({.url = url});
  serve({.body = "123456", .etag = "\"v2\""});
  EXPECT_THAT(text_of({.url = url, .validator = "\"v1\""}),
              AllOf(HasSubstr(" now"), HasSubstr("`shardwise index` again")));
}

// Fault under test: tests/faults.md 12.
TEST_F(HttpFetcherTest, Row12_AStallIsCutAndTriedAgain) {
  Fetchers::Options options = quick_options();
  options.low_speed_bytes_per_second = 1'000'000;
  options.low_speed_time = std::chrono::seconds(1);
  fetchers_ = Fetchers(options);
  const std::string body = some_bytes(200'000);
  EXPECT_TRUE(
      same(fetched({.url = serve({.body = body, .stall_after = 100'000, .num_stalls = 1})}), body));
  EXPECT_EQ(server_.requests().back().header("range"), "bytes=100000-");
}

// faults.md 12: a transfer below the speed limit also ends, and other fetches proceed meanwhile.
TEST_F(HttpFetcherTest, Row12_ASlowDripEndsAndOthersAreServedMeanwhile) {
  Fetchers::Options options = quick_options();
  options.max_retries = 0;
  options.low_speed_bytes_per_second = 100'000;
  options.low_speed_time = std::chrono::seconds(1);
  fetchers_ = Fetchers(options);
  server_.serve("/quick.tar", {.body = "quick"});
  const std::string url = serve(
      {.body = some_bytes(100'000), .drip_bytes = 10, .drip_wait = std::chrono::milliseconds(20)});
  std::atomic<bool> is_over{false};
  std::string text;
  std::thread slow([&] {
    text = text_of({.url = url});
    is_over = true;
  });
  StringSink sink;
  fetchers_.fetch({.url = server_.url("/quick.tar")}, sink);
  EXPECT_EQ(sink.bytes, "quick");
  EXPECT_FALSE(is_over);
  slow.join();
  EXPECT_THAT(text, AllOf(HasSubstr("after 1 attempt"), HasSubstr("later"), HasSubstr("for longer"),
                          HasSubstr("low_speed_time")));
}

// Fault under test: tests/faults.md 12.
TEST_F(HttpFetcherTest, Row12_CancelEndsAStallWithinAboutASecond) {
  Fetchers::Options options = quick_options();
  options.low_speed_time = std::chrono::seconds(100);
  fetchers_ = Fetchers(options);
  const std::string url = serve({.body = some_bytes(1000), .stall_after = 10});
  std::atomic<bool> cancel{false};
  std::thread canceller([&] {
    while (server_.gets("/x.tar") == 0) std::this_thread::yield();
    cancel = true;
  });
  EXPECT_EQ(text_of({.url = url, .cancel = &cancel}), "the fetch was cancelled: '" + url + "'");
  canceller.join();
  EXPECT_EQ(code_of({.url = url, .cancel = &cancel}), ErrorCode::kCancelled);
}

TEST_F(HttpFetcherTest, CancelEndsTheWaitBetweenAttempts) {
  Fetchers::Options options = quick_options();
  fetchers_ = Fetchers(options);
  const std::string url =
      serve({.body = "x", .statuses = {503}, .extra_headers = "Retry-After: 3600\r\n"});
  std::atomic<bool> cancel{false};
  std::thread canceller([&] {
    while (server_.gets("/x.tar") == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancel = true;
  });
  EXPECT_EQ(code_of({.url = url, .cancel = &cancel}), ErrorCode::kCancelled);
  canceller.join();
}

// faults.md 13: headers do not reveal this fault; only a hash in the index does.
TEST_F(HttpFetcherTest, Row13_WrongBytesOfTheRightLengthComeAsTheyAre) {
  EXPECT_EQ(fetched({.url = serve({.body = "wrong bytes"})}), "wrong bytes");
}

// Fault under test: tests/faults.md 14.
TEST_F(HttpFetcherTest, Row14_RedirectsAreFollowedFiveTimes) {
  server_.serve("/5", {.redirect_to = "/4"});
  server_.serve("/4", {.redirect_to = server_.url("/3")});
  server_.serve("/3", {.redirect_to = "2"});
  server_.serve("/2", {.redirect_to = "./a/../1"});
  server_.serve("/1", {.redirect_to = "/x.tar?q=1#f"});
  server_.serve("/6", {.redirect_to = "/5"});
  server_.serve("/loop", {.redirect_to = "/loop"});
  serve({.body = "here"});
  EXPECT_EQ(fetched({.url = server_.url("/5")}), "here");
  EXPECT_EQ(server_.requests().back().target, "/x.tar?q=1");
  EXPECT_THAT(text_of({.url = server_.url("/6")}), HasSubstr("(more than 5 redirects)"));
  EXPECT_THAT(text_of({.url = server_.url("/loop")}), HasSubstr("(more than 5 redirects)"));
}

// Fault under test: tests/faults.md 14.
TEST_F(HttpFetcherTest, Row14_RedirectsToOtherSchemesAreRefused) {
  for (const std::string to : {"file:///etc/passwd", "FILE:///etc/passwd", "ftp://127.0.0.1/x",
                               "gopher://127.0.0.1/x", "s3://bucket/key", "pipe:cat", "data:,x"}) {
    server_.serve("/x.tar", {.redirect_to = to});
    const std::string text = text_of({.url = server_.url("/x.tar")});
    EXPECT_THAT(text, AllOf(StartsWith("cannot fetch: 'http://127.0.0.1:"),
                            HasSubstr("(redirected to '"), HasSubstr("neither http nor https")))
        << to;
    EXPECT_EQ(error_code([&] { fetchers_.stat({.url = server_.url("/x.tar")}); }),
              ErrorCode::kFetch);
  }
}

// faults.md 14: credentials for the first host are not sent to the second.
TEST_F(HttpFetcherTest, Row14_CredentialsStayWithTheirHost) {
  TestHttpServer other;
  other.serve("/x.tar", {.body = "here"});
  server_.serve("/away", {.redirect_to = other.url("/x.tar")});
  server_.serve("/home", {.redirect_to = "/x.tar"});
  serve({.body = "home"});
  const std::string start = "http://user:pass%40word@127.0.0.1:" + std::to_string(server_.port());
  EXPECT_EQ(fetched({.url = start + "/away"}), "here");
  EXPECT_EQ(other.requests().at(0).header("authorization"), "");
  EXPECT_EQ(fetched({.url = start + "/home"}), "home");
  EXPECT_EQ(server_.requests().at(0).header("authorization"), "Basic dXNlcjpwYXNzQHdvcmQ=");
  EXPECT_EQ(server_.requests().back().header("authorization"), "Basic dXNlcjpwYXNzQHdvcmQ=");
}

TEST_F(HttpFetcherTest, NoSecretIsInAnyText) {
  const std::string host = "127.0.0.1:" + std::to_string(server_.port());
  const std::string query = "?X-Amz-Signature=sesame&plain&n=1#sesame";
  server_.serve("/away", {.redirect_to = "ftp://u:sesame@h/x?sesame"});
  server_.serve("/cut", {.body = "1234", .cut_after = 0});
  server_.serve("/stale", {.body = "1234"});
  std::atomic<bool> cancel{true};
  for (const std::string path : {"/none", "/away", "/cut", "/stale", "/cancel"}) {
    Fetcher::Request request{.url = "http://user:sesame@" + host + path + query};
    if (path == "/stale") request.validator = "\"other\"";
    if (path == "/cancel") request.cancel = &cancel;
    const std::string text = text_of(request);
    EXPECT_THAT(text, AllOf(Not(HasSubstr("sesame")), Not(HasSubstr("user:"))));
    EXPECT_THAT(text, HasSubstr("http://" + host + path + "?X-Amz-Signature=***&***&n=***"));
  }
  for (const std::string url :
       {"http://user:sesame@127.0.0.1:1/x", "http://user:ses/ame@h/x", "http://u:sesame@/x",
        "http://u:sesame@a b/x", "http:/u:sesame@h", "nope://u:sesame@h/x"}) {
    EXPECT_THAT(text_of({.url = url}), AllOf(Not(HasSubstr("ame@")), Not(HasSubstr("sesame"))));
  }
}

TEST_F(HttpFetcherTest, AServerThatIsNotThereIsNamed) {
  int port = 0;
  { port = TestHttpServer().port(); }
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + "/x.tar";
  EXPECT_THAT(text_of({.url = url}),
              AllOf(StartsWith("cannot fetch: '" + url + "' ("), HasSubstr("after 3 attempts"),
                    HasSubstr("host's name")));
}

TEST_F(HttpFetcherTest, WhatTheSinkThrowsReachesTheCaller) {
  struct Full : Fetcher::Sink {
    void write(std::string_view) override { throw std::runtime_error("full"); }
    bool restart() override { return true; }
  } sink;
  const std::string url = serve({.body = some_bytes(1'000'000)});
  try {
    fetchers_.fetch({.url = url}, sink);
    FAIL() << "did not throw";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "full");
  }
  EXPECT_EQ(server_.gets("/x.tar"), 1);
  EXPECT_EQ(fetched({.url = url}).size(), 1'000'000U);
}

TEST_F(HttpFetcherTest, ManyThreadsFetchAtOnce) {
  std::vector<std::string> bodies;
  for (int i = 0; i < 8; ++i) {
    bodies.push_back(some_bytes(200'000, static_cast<std::uint32_t>(i)));
    server_.serve("/" + std::to_string(i), {.body = bodies.back(), .cut_after = 150'000});
  }
  std::atomic<int> num_right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        const int file = (i + t) % 8;
        StringSink sink;
        fetchers_.fetch({.url = server_.url("/" + std::to_string(file))}, sink);
        if (sink.bytes == bodies[static_cast<std::size_t>(file)]) ++num_right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_right, 64);
}

void ignore_signal(int) {}

// Fault under test: tests/faults.md 28.
TEST_F(HttpFetcherTest, Row28_SignalsDoNotDisturb) {
  const std::string body = some_bytes(3'000'000);
  const std::string url = serve({.body = body,
                                 .cut_after = 1'000'000,
                                 .drip_bytes = 50'000,
                                 .drip_wait = std::chrono::milliseconds(1)});
  EXPECT_EQ(test::in_child([&]() -> std::string {
              struct sigaction action {};
              // SA_RESTART is not set, so system calls are interrupted.
              action.sa_handler = ignore_signal;
              ::sigaction(SIGALRM, &action, nullptr);
              ::signal(SIGPIPE, SIG_DFL);
              const itimerval every{{0, 1000}, {0, 1000}};
              ::setitimer(ITIMER_REAL, &every, nullptr);
              StringSink sink;
              Fetchers(quick_options()).fetch({.url = url}, sink);
              return sink.bytes == body ? "" : "other bytes";
            }),
            "");
}

TEST_F(HttpFetcherTest, AForkedChildOpensItsOwnConnections) {
  const std::string url = serve({.body = "here"});
  EXPECT_EQ(fetched({.url = url}), "here");
  EXPECT_EQ(test::in_child([&]() -> std::string {
              return fetched({.url = url}) == "here" && fetched({.url = url}) == "here" ? "" : "no";
            }),
            "");
  EXPECT_EQ(fetched({.url = url}), "here");
  EXPECT_EQ(server_.num_connections(), 2);
}

TEST_F(HttpFetcherTest, UrlsHoldNothingThatCouldBeMistaken) {
  server_.serve("/a%20b;$(touch%20x)'%22.tar", {.body = "odd"});
  EXPECT_EQ(fetched({.url = server_.url("/a b;$(touch x)'\".tar")}), "odd");
  using namespace std::string_literals;
  for (const std::string& path : {"/a\nb"s, "/a\r\nHost: evil"s, "/a\0b"s, "/\x7f"s}) {
    EXPECT_EQ(code_of({.url = server_.url(path)}), ErrorCode::kInvalidArgument);
  }
}

TEST(FetchersTest, OnlyKnownSchemesAreBrought) {
  const Fetchers fetchers;
  StringSink sink;
  const auto text = [&](const std::string& url) {
    return error_text([&] { fetchers.fetch({.url = url}, sink); });
  };
  EXPECT_THAT(text("ftp://b/x?k=sesame"),
              AllOf(HasSubstr("scheme 'ftp': 'ftp://b/x?k=***'"),
                    HasSubstr("http, https, s3, gs, az, hf or file"), HasSubstr("Fetchers::add")));
  EXPECT_THAT(text("train.tar"),
              AllOf(HasSubstr("not a URL: 'train.tar'"), HasSubstr("scheme://host/path")));
}

TEST(FetchersTest, UsersAddTheirOwn) {
  struct Echo : Fetcher {
    Fetcher::Stat stat(const Fetcher::Request& request) override {
      return {.size_bytes = request.url.size()};
    }
    Fetcher::Stat fetch(const Fetcher::Request& request, Fetcher::Sink& sink) override {
      sink.write(request.url);
      return stat(request);
    }
  };
  Fetchers fetchers;
  fetchers.add("gs", std::make_shared<Echo>());
  StringSink sink;
  EXPECT_EQ(fetchers.fetch({.url = "GS://b/x"}, sink).size_bytes, 8U);
  EXPECT_EQ(sink.bytes, "GS://b/x");
  for (const char* scheme : {"", "GS", "g s", "1a", "a/"}) {
    EXPECT_EQ(error_code([&] { fetchers.add(scheme, std::make_shared<Echo>()); }),
              ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(error_code([&] { fetchers.add("gs", nullptr); }), ErrorCode::kInvalidArgument);
}

TEST(FetchersTest, OptionsThatCannotBeMeantAreRefused) {
  const auto text = [](auto&& change) {
    Fetchers::Options options;
    change(options);
    return error_text([&] { Fetchers{options}; });
  };
  EXPECT_THAT(
      text([](Fetchers::Options& o) { o.max_retries = -1; }),
      AllOf(HasSubstr("not valid: Fetchers::Options::max_retries"), HasSubstr("0 or more")));
  EXPECT_THAT(text([](Fetchers::Options& o) { o.low_speed_time = std::chrono::seconds(0); }),
              HasSubstr("low_speed_time"));
  EXPECT_THAT(text([](Fetchers::Options& o) { o.connect_timeout = std::chrono::seconds(0); }),
              HasSubstr("connect_timeout"));
  EXPECT_THAT(text([](Fetchers::Options& o) { o.user_agent = "a\r\nb"; }), HasSubstr("user_agent"));
}

// Fault under test: tests/faults.md 47.
TEST(FileFetcherTest, Row47_AFileThatChangesWhileItIsReadIsStale) {
  const test::TempDir dir;
  const std::string path = dir / "x.tar";
  test::write_file(path, some_bytes(1'000'000));
  class Meddler : public StringSink {
   public:
    explicit Meddler(std::string path) : path_(std::move(path)) {}
    void write(std::string_view more) override {
      if (bytes.empty()) test::write_file(path_, some_bytes(1'000'000, 2));
      StringSink::write(more);
    }

   private:
    const std::string path_;
  } sink(path);
  EXPECT_THAT(error_text([&] { Fetchers().fetch({.url = "file://" + path}, sink); }),
              AllOf(HasSubstr("changed at its source"), HasSubstr(path)));
  // No byte of the changed file was delivered, since a caller may use the bytes before an error.
  EXPECT_TRUE(some_bytes(1'000'000).starts_with(sink.bytes));
}

TEST(FileFetcherTest, BringsLocalFiles) {
  const test::TempDir dir;
  test::write_file(dir / "a b.tar", "0123456789");
  const std::string url = "file://" + dir.path() + "/a%20b.tar";
  const Fetchers fetchers;
  StringSink sink;
  const Fetcher::Stat file = fetchers.fetch({.url = url, .range = {2, 5}}, sink);
  EXPECT_EQ(sink.bytes, "234");
  EXPECT_EQ(file.size_bytes, 10U);
  EXPECT_EQ(fetchers.stat({.url = url}).validator, file.validator);
  EXPECT_EQ(error_code([&] {
              fetchers.fetch({.url = url, .range = {5, 11}}, sink);
            }),
            ErrorCode::kFetch);
  test::write_file(dir / "a b.tar", "another");
  EXPECT_EQ(error_code([&] { fetchers.stat({.url = url, .validator = file.validator}); }),
            ErrorCode::kStaleIndex);
  EXPECT_EQ(error_code([&] { fetchers.stat({.url = "file:///no/such"}); }), ErrorCode::kNotFound);
  for (const char* bad : {"file://host/x", "file:x", "file:///x%zz", "file:///x?y"}) {
    EXPECT_EQ(error_code([&] { fetchers.stat({.url = bad}); }), ErrorCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace shardwise
