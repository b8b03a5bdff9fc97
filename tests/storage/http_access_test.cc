// What HTTP requests contain in addition to the URL, and how many are sent concurrently.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "shardwise/storage/fetcher.h"
#include "storage/authorities.h"
#include "storage/fetch_support.h"
#include "storage/host_gate.h"
#include "storage/test_http_server.h"
#include "support/environment.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::StringSink;
using test::TestHttpServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HttpAccessTest : public ::testing::Test {
 protected:
  HttpAccessTest() {
    environment_.set("HOME", home_.path());
    environment_.unset("NETRC");
    server_.serve("/x.tar", {.body = "here"});
  }
  std::string fetched(const std::string& url) {
    StringSink sink;
    Fetchers(options_).fetch({.url = url}, sink);
    return sink.bytes;
  }
  std::string sent(const std::string& header) { return server_.requests().back().header(header); }

  test::TempDir home_;
  test::Environment environment_;
  TestHttpServer server_;
  Fetchers::Options options_ = test::quick_options();
};

TEST_F(HttpAccessTest, HeadersGoToTheHostThatIsNamedAndNotToOthers) {
  TestHttpServer other;
  other.serve("/x.tar", {.body = "there"});
  server_.serve("/home", {.redirect_to = "/x.tar"});
  server_.serve("/away", {.redirect_to = other.url("/x.tar")});
  options_.headers = {"X-Tenant: shards", "Authorization: Token sesame"};
  EXPECT_EQ(fetched(server_.url("/home")), "here");
  EXPECT_EQ(sent("x-tenant"), "shards");
  EXPECT_EQ(sent("authorization"), "Token sesame");
  EXPECT_EQ(fetched(server_.url("/away")), "there");
  EXPECT_EQ(sent("x-tenant"), "shards");
  EXPECT_EQ(other.requests().back().header("x-tenant"), "");
  EXPECT_EQ(other.requests().back().header("authorization"), "");
}

TEST_F(HttpAccessTest, HeadersThatWouldChangeTheRequestAreRefused) {
  for (const char* header : {"", "X", ": y", "X:", "X: ", "a b: c", "X: a\r\nY: b", "Host: other",
                             "range: bytes=0-1", "If-Match: x", "Accept-Encoding: gzip"}) {
    options_.headers = {header};
    EXPECT_THAT(error_text([&] { Fetchers{options_}; }), HasSubstr("Fetchers::Options::headers"))
        << header;
  }
  options_.headers = {};
  options_.moved = {{"data", "https://new/data"}};
  EXPECT_THAT(error_text([&] { Fetchers{options_}; }), HasSubstr("Fetchers::Options::moved"));
  options_.moved = {};
  options_.max_connections_per_host = -1;
  EXPECT_THAT(error_text([&] { Fetchers{options_}; }), HasSubstr("max_connections_per_host"));
}

TEST_F(HttpAccessTest, ABearerTokenIsReadAnewForEachFile) {
  options_.bearer_token_file = home_ / "token";
  options_.bearer_token_loopback = true;
  const Fetchers fetchers(options_);
  StringSink sink;
  for (const std::string token : {"first", "second"}) {
    test::write_file(home_ / "token", token + "\nwhat follows is no token\n");
    fetchers.fetch({.url = server_.url("/x.tar")}, sink);
    EXPECT_EQ(sent("authorization"), "Bearer " + token);
  }
  test::write_file(home_ / "token", "\xEF\xBB\xBFthird\r\n");
  fetchers.fetch({.url = server_.url("/x.tar")}, sink);
  EXPECT_EQ(sent("authorization"), "Bearer third");
  test::write_file(home_ / "token", "second");
  server_.serve("/x.tar", {.body = "here", .statuses = {401, 401}});
  EXPECT_THAT(error_text([&] { fetched(server_.url("/x.tar")); }),
              AllOf(HasSubstr("HTTP status 401, after 2 attempts"),
                    HasSubstr("token in '" + home_ / "token"), Not(HasSubstr("second"))));
}

TEST_F(HttpAccessTest, ABearerTokenIsNotSentWithoutEncryption) {
  options_.bearer_token_file = home_ / "token";
  test::write_file(home_ / "token", "sesame");
  // The token is not sent to this machine either, because any of its users could be the server.
  EXPECT_THAT(error_text([&] { fetched(server_.url("/x.tar")); }),
              AllOf(HasSubstr("bearer token"), HasSubstr("without encryption"),
                    HasSubstr("Options::bearer_token_loopback")));
  EXPECT_TRUE(server_.requests().empty());
  options_.bearer_token_loopback = true;
  EXPECT_THAT(
      error_text([&] { fetched("http://user.example:1/x.tar"); }),
      AllOf(HasSubstr("bearer token"),
            HasSubstr("without encryption: 'http://user.example:1/x.tar'"), HasSubstr("https")));
}

TEST_F(HttpAccessTest, AFileThatHoldsNoTokenIsAnError) {
  options_.bearer_token_file = home_ / "token";
  options_.bearer_token_loopback = true;
  EXPECT_THAT(
      error_text([&] { fetched(server_.url("/x.tar")); }),
      AllOf(HasSubstr("bearer token: '" + (home_ / "token") + "'"), HasSubstr("No such file")));
  for (const std::string text : {"", "\n\n", "two sesame", "\x01", "\xC3\xA4"}) {
    test::write_file(home_ / "token", text);
    EXPECT_THAT(
        error_text([&] { fetched(server_.url("/x.tar")); }),
        AllOf(HasSubstr("no bearer token: '" + (home_ / "token") + "'"), HasSubstr("first line")));
  }
}

TEST_F(HttpAccessTest, NetrcSaysWhoAsks) {
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
  EXPECT_EQ(sent("authorization"), "");
  test::write_file(home_ / ".netrc",
                   "machine other.example login o password p\n"
                   "machine 127.0.0.1 login user password pass@word\n");
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
  EXPECT_EQ(sent("authorization"), "Basic dXNlcjpwYXNzQHdvcmQ=");

  test::write_file(home_ / "second", "machine 127.0.0.1 login a password b\n");
  environment_.set("NETRC", home_ / "second");
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
  EXPECT_EQ(sent("authorization"), "Basic YTpi");
  environment_.set("NETRC", home_ / "none");
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
  EXPECT_EQ(sent("authorization"), "");
  options_.netrc_file = home_ / "second";
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
  EXPECT_EQ(sent("authorization"), "Basic YTpi");

  const std::string host = "127.0.0.1:" + std::to_string(server_.port());
  EXPECT_EQ(fetched("http://c:d@" + host + "/x.tar"), "here");
  EXPECT_EQ(sent("authorization"), "Basic Yzpk") << "the URL comes first";
  options_.headers = {"Authorization: mine"};
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
  EXPECT_EQ(sent("authorization"), "mine");
  options_.headers = {};
  options_.netrc_file = home_ / "none";
  EXPECT_THAT(error_text([&] { fetched(server_.url("/x.tar")); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("netrc file: '" + (home_ / "none") + "'")));
}

// libcurl ignores lines of the file that are not ASCII, so the request would be anonymous.
TEST_F(HttpAccessTest, ANetrcFileThatIsNoTextIsAnError) {
  const std::string path = home_ / ".netrc", line = "machine 127.0.0.1 login user password p\n";
  std::string wide = "\xFF\xFE";
  for (const char c : line) wide += {c, '\0'};
  const std::map<std::string, std::vector<std::string>> texts = {
      {"\xEF\xBB\xBF" + line, {"byte order mark: '" + path + "'", "UTF-8"}},
      {wide, {"UTF-16 or UTF-32", "'" + path + "'", "save it as UTF-8"}},
      {"machine a login b password c" + std::string(1, '\0') + "\n" + line,
       {"NUL byte: '" + path + "', line 1", "`find -print`"}}};
  for (const auto& [text, parts] : texts) {
    test::write_file(path, text);
    const std::string error = error_text([&] { fetched(server_.url("/x.tar")); });
    for (const std::string& part : parts)
      EXPECT_THAT(error, AllOf(HasSubstr("netrc file"), HasSubstr(part)));
  }
  EXPECT_TRUE(server_.requests().empty());

  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
  options_.netrc_file = path;
  EXPECT_THAT(error_text([&] { fetched(server_.url("/x.tar")); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("netrc file: '" + path + "'")));
  // Like <(pass show netrc): a second request finds the pipe empty.
  options_.netrc_file = home_ / "pipe";
  ASSERT_EQ(::mkfifo(options_.netrc_file.c_str(), 0600), 0);
  EXPECT_THAT(error_text([&] { fetched(server_.url("/x.tar")); }),
              AllOf(HasSubstr("netrc file is a pipe"), HasSubstr("'" + options_.netrc_file + "'"),
                    HasSubstr("regular file")));
  options_.netrc_file = "/dev/null";
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here");
}

TEST_F(HttpAccessTest, ATokenThatNobodyWritesIntoItsPipeIsWaitedForUntilCancelled) {
  options_.bearer_token_file = home_ / "token";
  options_.bearer_token_loopback = true;
  ASSERT_EQ(::mkfifo(options_.bearer_token_file.c_str(), 0600), 0);
  const CancelToken::Flag cancelled{true};
  StringSink sink;
  EXPECT_EQ(error_code([&] {
              Fetchers(options_).fetch({.url = server_.url("/x.tar"), .cancel = &cancelled}, sink);
            }),
            ErrorCode::kCancelled);
}

TEST_F(HttpAccessTest, FilesAreFetchedFromWhereTheyAreToday) {
  server_.serve("/mirror/d/x.tar", {.body = "mirror"});
  server_.serve("/signed/x.tar", {.body = "signed"});
  options_.moved = {{"http://old.example/d2", "http://127.0.0.1:1/"},
                    {"http://old.example/d", server_.url("/mirror/d?sig=sesame")}};
  EXPECT_EQ(fetched("http://old.example/d/x.tar?v=1"), "mirror");
  EXPECT_EQ(server_.requests().back().target, "/mirror/d/x.tar?v=1&sig=sesame");
  EXPECT_EQ(fetched(server_.url("/x.tar")), "here") << "others stay where they are";
  EXPECT_EQ(fetched("http://old.example/d/x.tar?X-Amz-Date=1&X-Amz-Signature=2"), "mirror");
  EXPECT_EQ(server_.requests().back().target, "/mirror/d/x.tar?sig=sesame")
      << "an old signature does not go along";

  std::vector<std::string> asked;
  options_.resolve = [&](const std::string& url) {
    asked.push_back(url);
    return server_.url("/signed/x.tar?sig=") + std::to_string(asked.size());
  };
  options_.moved = {};
  EXPECT_EQ(fetched("s3://bucket/x.tar"), "signed");
  EXPECT_EQ(fetched("s3://bucket/x.tar"), "signed");
  EXPECT_EQ(server_.requests().back().target, "/signed/x.tar?sig=2") << "asked each time";
  EXPECT_EQ(asked, (std::vector<std::string>{"s3://bucket/x.tar", "s3://bucket/x.tar"}));
  fetched("http://old.example/x.tar?v=1&X-Amz-Date=1&X-Amz-Signature=2");
  EXPECT_EQ(asked.back(), "http://old.example/x.tar?v=1") << "it signs what is not signed";
  for (const char* none :
       {"", "//h/x.tar?sig=sesame", "h/x.tar?sig=sesame", " http://me:sesame@h"}) {
    options_.resolve = [&](const std::string&) { return none; };
    EXPECT_THAT(error_text([&] { fetched("http://old.example/data/x.tar?Signature=sesame"); }),
                AllOf(HasSubstr("no URL"), HasSubstr("'http://old.example/data/x.tar"),
                      Not(HasSubstr("sesame"))));
  }
  options_.resolve = [](const std::string&) -> std::string { throw std::runtime_error("no"); };
  EXPECT_THROW(fetched("s3://bucket/x.tar"), std::runtime_error);
}

TEST_F(HttpAccessTest, AHostHasNoMoreConnectionsThanItMay) {
  constexpr int kThreads = 8;
  options_.max_connections_per_host = 2;
  const Fetchers fetchers(options_);
  for (int i = 0; i < kThreads; ++i) {
    server_.serve("/" + std::to_string(i),
                  {.body = test::some_bytes(300'000), .drip_bytes = 50'000});
  }
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      StringSink sink;
      fetchers.fetch({.url = server_.url("/" + std::to_string(t))}, sink);
      EXPECT_EQ(sink.bytes.size(), 300'000U);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(server_.num_connections(), 2);
}

constexpr std::chrono::milliseconds kAnHour = std::chrono::hours(1);

TEST(HostGateTest, WhoWaitsForAHostCanBeCancelledAndOtherHostsAreFree) {
  HostGate gate;
  std::atomic<bool> cancel{true};
  const Fetcher::Request request{.url = "http://a/x"};
  const auto first = gate.enter("http://a", 1, request, kAnHour);
  const auto other = gate.enter("http://b", 1, request, kAnHour);
  EXPECT_EQ(gate.try_enter("http://a", 1), nullptr);
  EXPECT_EQ(error_code([&] {
              gate.enter("http://a", 1, {.url = "http://a/y", .cancel = &cancel}, kAnHour);
            }),
            ErrorCode::kCancelled);
}

TEST(HostGateTest, ARefusalPausesAllTransfersWithTheHost) {
  HostGate gate;
  std::atomic<bool> cancel{true};
  const Fetcher::Request request{.url = "http://a/x"};
  gate.enter("http://a", 0, request, kAnHour)->refused(std::chrono::hours(1), kAnHour, kAnHour);
  EXPECT_EQ(gate.try_enter("http://a", 0), nullptr);
  EXPECT_NE(gate.try_enter("http://b", 0), nullptr);
  EXPECT_EQ(error_code([&] {
              gate.enter("http://a", 0, {.url = "http://a/x", .cancel = &cancel}, kAnHour);
            }),
            ErrorCode::kCancelled);
  // A request that has no time left to wait is sent in spite of the pause.
  EXPECT_NE(gate.enter("http://a", 0, request, std::chrono::milliseconds(0)), nullptr);
}

TEST(HostGateTest, AfterAPauseEachAnswerAllowsOneMoreTransfer) {
  constexpr std::chrono::milliseconds kShort(1);
  const Fetcher::Request request{.url = "http://a/x"};
  HostGate gate;
  const auto before = gate.enter("http://a", 0, request, kAnHour);
  gate.enter("http://a", 0, request, kAnHour)->refused({}, kShort, kShort);
  before->accepted();  // was sent before the refusal
  EXPECT_EQ(gate.try_enter("http://a", 0), nullptr) << "the old transfer still runs";
  HostGate fresh;
  std::vector<std::unique_ptr<HostGate::Turn>> turns;
  fresh.enter("http://a", 0, request, kAnHour)->refused({}, kShort, kShort);
  turns.push_back(fresh.enter("http://a", 0, request, kAnHour));
  for (std::size_t allowed = 1; allowed < 63; ++allowed) {
    EXPECT_EQ(fresh.try_enter("http://a", 0), nullptr) << allowed;
    turns.front()->accepted();
    turns.push_back(fresh.try_enter("http://a", 0));
    ASSERT_NE(turns.back(), nullptr) << allowed;
  }
  turns.front()->accepted();
  for (int i = 0; i < 100; ++i) turns.push_back(fresh.try_enter("http://a", 0));
  EXPECT_TRUE(std::ranges::all_of(turns, [](const auto& turn) { return turn != nullptr; }))
      << "the host is no longer slowed down";
}

TEST(AwsAuthoritiesTest, AwsCaBundleIsForServicesOfAws) {
  test::Environment environment;
  environment.set("AWS_CA_BUNDLE", "/aws.pem");
  environment.set("CURL_CA_BUNDLE", "/curl.pem");
  EXPECT_EQ(find_authorities("", true).file, "/aws.pem");
  EXPECT_EQ(find_authorities("", true).setting, "AWS_CA_BUNDLE");
  EXPECT_EQ(find_authorities("", false).file, "/curl.pem");
  EXPECT_EQ(find_authorities("/given.pem", true).file, "/given.pem");
}

}  // namespace
}  // namespace shardwise
