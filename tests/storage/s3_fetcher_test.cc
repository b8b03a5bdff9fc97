#include "storage/s3_fetcher.h"

#include <curl/curl.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <sstream>

#include "base/text.h"
#include "base/url.h"
#include "storage/aws_environment.h"
#include "storage/aws_keys.h"
#include "storage/aws_profile.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/spawned.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::same;
using test::StringSink;
using test::TestHttpServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kId[] = "AKIDEXAMPLE";
constexpr char kSecret[] = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr char kToken[] = "FwoGZXIvYXdz//sesame==";

std::string hmac(std::string_view key, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
  return {reinterpret_cast<const char*>(digest), size};
}

std::string sha256_hex(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return hex({reinterpret_cast<const char*>(digest), sizeof digest});
}

/// Returns the text after `from`, up to the next `to`.
std::string between(const std::string& text, const std::string& from, char to) {
  const std::size_t found = text.find(from);
  if (found == std::string::npos) return {};
  const std::size_t begin = found + from.size();
  return text.substr(begin, text.find(to, begin) - begin);
}

/// Checks a request's signature by AWS's rules (signature version 4). Returns the error, or "".
std::string signature_fault(const test::LoggedRequest& request, const std::string& region) {
  const std::string authorization = request.header("authorization");
  const std::string credential = between(authorization, "Credential=", ',');
  const std::string names = between(authorization, "SignedHeaders=", ',');
  const std::string date_time = request.header("x-amz-date");
  const std::string scope = date_time.substr(0, 8) + "/" + region + "/s3/aws4_request";
  if (credential != kId + ("/" + scope)) return "credential " + credential;

  std::string headers;
  std::string last;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ';'); last = name) {
    if (name <= last) return "headers out of order: " + names;
    headers += name + ":" + request.header(name) + "\n";
  }
  for (const auto& [name, value] : request.headers) {
    const bool must_be_signed = name == "host" || name.starts_with("x-amz-");
    if (must_be_signed && (";" + names + ";").find(";" + name + ";") == std::string::npos) {
      return name + " is not signed";
    }
  }
  const std::string content = request.header("x-amz-content-sha256");
  if (content != sha256_hex("")) return "content hash '" + content + "'";
  const std::size_t mark = std::min(request.target.find('?'), request.target.size());
  const std::string path = request.target.substr(0, mark);
  const std::string query = mark == request.target.size() ? "" : request.target.substr(mark + 1);
  const std::string canonical =
      request.method + "\n" + path + "\n" + query + "\n" + headers + "\n" + names + "\n" + content;
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + date_time + "\n" + scope + "\n" + sha256_hex(canonical);
  std::string key = hmac(std::string("AWS4") + kSecret, date_time.substr(0, 8));
  for (const std::string& part : {region, std::string("s3"), std::string("aws4_request")}) {
    key = hmac(key, part);
  }
  const std::string expected = hex(hmac(key, to_sign));
  return authorization.ends_with("Signature=" + expected) ? "" : "signature of\n" + canonical;
}

class S3FetcherTest : public ::testing::Test {
 protected:
  S3FetcherTest() {
    options_.s3.endpoint = server_.url("");
    options_.s3.region = "eu-test-1";
    options_.s3.access_key_id = kId;
    options_.s3.secret_access_key = kSecret;
    server_.set_gate(
        [this](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
          fault_ = signature_fault(request, "eu-test-1");
          if (fault_.empty()) return std::nullopt;
          return std::pair(403, std::string("<Error><Code>SignatureDoesNotMatch</Code></Error>"));
        });
  }
  std::string fetched(const Fetcher::Request& request) {
    StringSink sink;
    Fetchers(options_).fetch(request, sink);
    return sink.bytes;
  }

  test::AwsEnvironment environment_;
  TestHttpServer server_;
  Fetchers::Options options_ = test::quick_options();
  std::string fault_;  // written by one server thread at a time
};

TEST_F(S3FetcherTest, RequestsAreSigned) {
  const std::string body = test::some_bytes(300'000);
  server_.serve("/bucket/a/x.tar", {.body = body, .cut_after = 200'000});
  EXPECT_TRUE(same(fetched({.url = "s3://bucket/a/x.tar"}), body)) << fault_;
  EXPECT_EQ(server_.requests().back().header("if-range"), "\"v1\"");
  EXPECT_TRUE(same(fetched({.url = "s3://bucket/a/x.tar", .range = {5, 9}}), body.substr(5, 4)))
      << fault_;
  EXPECT_EQ(Fetchers(options_).stat({.url = "s3://bucket/a/x.tar"}).size_bytes, body.size());

  // Fault under test: tests/faults.md 47.
  EXPECT_TRUE(same(fetched({.url = "s3://bucket/a/x.tar", .validator = "\"v1\""}), body)) << fault_;
  EXPECT_EQ(server_.requests().back().header("if-match"), "\"v1\"");
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/a/x.tar", .validator = "\"v0\""}); }),
              AllOf(HasSubstr("'s3://bucket/a/x.tar' (version '\"v0\"' before, '\"v1\"' now)")));

  options_.s3.session_token = kToken;
  EXPECT_TRUE(same(fetched({.url = "s3://bucket/a/x.tar"}), body)) << fault_;
  EXPECT_EQ(server_.requests().back().header("x-amz-security-token"), kToken);
}

TEST_F(S3FetcherTest, KeysAreBytes) {
  struct Case {
    std::string key, path;
  };
  const Case cases[] = {
      {"a b+c&d=e.tar", "/bucket/a%20b%2Bc%26d%3De.tar"},
      {"q?x#y%20.tar", "/bucket/q%3Fx%23y%2520.tar"},
      {"a//b/..c/.d", "/bucket/a//b/..c/.d"},
      {"\xC3\xA4;$(x)'\"~", "/bucket/%C3%A4%3B%24%28x%29%27%22~"},
  };
  for (const Case& c : cases) {
    server_.serve(c.path, {.body = c.key});
    EXPECT_EQ(fetched({.url = "s3://bucket/" + c.key}), c.key) << fault_;
    EXPECT_EQ(server_.requests().back().target, c.path);
  }
}

TEST_F(S3FetcherTest, DotsAsAPartOfAKeyNeedThatNobodySigns) {
  for (const std::string key : {"a/../b", "./a", "a/.", ".."}) {
    EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/" + key}); }),
                AllOf(HasSubstr("key"), HasSubstr("the part '"),
                      HasSubstr("': 's3://bucket/" + key + "'"), HasSubstr("another key")));
  }
  EXPECT_TRUE(server_.requests().empty());
  server_.set_gate([](const test::LoggedRequest&) { return std::nullopt; });
  options_.s3.access_key_id.clear();
  options_.s3.secret_access_key.clear();
  server_.serve("/bucket/a//b/../c/./d", {.body = "here"});
  EXPECT_EQ(fetched({.url = "s3://bucket/a//b/../c/./d"}), "here");
}

TEST_F(S3FetcherTest, TheBucketIsInThePathOrInTheHost) {
  server_.serve("/x", {.body = "host"});
  options_.s3.path_style = false;
  options_.s3.endpoint = "http://localhost:" + std::to_string(server_.port());
  EXPECT_EQ(fetched({.url = "s3://bucket/x"}), "host") << fault_;
  EXPECT_EQ(server_.requests().back().header("host"),
            "bucket.localhost:" + std::to_string(server_.port()));

  const auto url_of = [](const std::string& url, const Fetchers::S3Options& options) {
    return s3_target(url, resolve_s3_access(options, {})).url;
  };
  EXPECT_EQ(url_of("s3://b/k", {}), "https://b.s3.us-east-1.amazonaws.com/k");
  EXPECT_EQ(url_of("s3://b/k", {.region = "cn-north-1"}),
            "https://b.s3.cn-north-1.amazonaws.com.cn/k");
  EXPECT_EQ(url_of("s3://b.c/k", {}), "https://s3.us-east-1.amazonaws.com/b.c/k");
  EXPECT_EQ(url_of("s3://b/k", {.path_style = true}), "https://s3.us-east-1.amazonaws.com/b/k");
  EXPECT_EQ(url_of("s3://b/k", {.endpoint = "https://h:9/p/"}), "https://h:9/p/b/k");
  EXPECT_EQ(url_of("s3://b/k", {.endpoint = "https://h", .path_style = false}), "https://b.h/k");
}

TEST_F(S3FetcherTest, AccessIsLookedUpInTheOrderThatIsPromised) {
  const auto found = [](const Fetchers::S3Options& options = {}) {
    Fetchers::Options all;
    all.s3 = options;
    const AwsKeys keys = AwsKeyChain(all).find({}, {});
    const S3Access access = resolve_s3_access(options, keys);
    return keys.access_key_id + "|" + keys.secret_access_key + "|" + keys.session_token + "|" +
           access.region + "|" + access.endpoint + "|" + keys.source;
  };
  EXPECT_EQ(found(), "|||us-east-1||");
  test::write_file(environment_.home() / "credentials",
                   "# comment\n[default]\naws_access_key_id = FILE\naws_secret_access_key=s1\n\n"
                   "[other]\r\naws_access_key_id=OTHER\r\naws_secret_access_key=s2\r\n"
                   "aws_session_token=t2\r\n[nested]\naws_access_key_id = N\n"
                   "aws_secret_access_key = n\ns3 =\n  region = wrong\n");
  test::write_file(environment_.home() / "config",
                   "[default]\nregion = file-1\n[profile other]\nregion=other-1\n"
                   "endpoint_url = http://other\n[other]\nregion=wrong\n[profile nested]\n"
                   "s3 =\n  region = wrong\n");
  EXPECT_EQ(found(), "FILE|s1||file-1||the profile 'default'");
  EXPECT_EQ(found({.profile = "nested"}), "N|n||us-east-1||the profile 'nested'");
  environment_.set("AWS_PROFILE", "other");
  EXPECT_EQ(found(), "OTHER|s2|t2|other-1|http://other|the profile 'other'");
  environment_.set("AWS_ACCESS_KEY_ID", "ENV");
  environment_.set("AWS_SECRET_ACCESS_KEY", "s3");
  environment_.set("AWS_DEFAULT_REGION", "env-1");
  environment_.set("AWS_ENDPOINT_URL", "http://env");
  EXPECT_EQ(found(), "ENV|s3||env-1|http://env|the environment");
  environment_.set("AWS_REGION", "env-2");
  environment_.set("AWS_ENDPOINT_URL_S3", "http://env-s3");
  EXPECT_EQ(found(), "ENV|s3||env-2|http://env-s3|the environment");
  EXPECT_EQ(found({.profile = "default"}), "FILE|s1||env-2|http://env-s3|the profile 'default'");
  EXPECT_EQ(found({.endpoint = "http://o",
                   .region = "o-1",
                   .access_key_id = "O",
                   .secret_access_key = "s4"}),
            "O|s4||o-1|http://o|Fetchers::S3Options");

  EXPECT_THAT(
      error_text([&] { found({.profile = "none"}); }),
      AllOf(HasSubstr("S3 profile"), HasSubstr("not exist: 'none'"), HasSubstr("profile of '")));
  EXPECT_THAT(error_text([&] { found({.access_key_id = "x"}); }),
              AllOf(HasSubstr("missing: Fetchers::S3Options"), HasSubstr("access key id"),
                    HasSubstr("secret access key")));
}

/// Answers requests for a listing of `keys`, with `page_size` keys per page.
std::pair<int, std::string> list_answer(const std::string& target,
                                        const std::vector<std::string>& keys,
                                        std::size_t page_size) {
  const std::string prefix = percent_decoded(between(target, "prefix=", '&')).value_or("malformed");
  const std::string page = between(target, "continuation-token=p", '&');
  std::vector<std::string> found;
  for (const std::string& key : keys) {
    if (key.starts_with(prefix)) found.push_back(key);
  }
  const std::size_t begin = page.empty() ? 0 : std::stoul(page);
  const std::size_t end = std::min(begin + page_size, found.size());
  std::string text =
      "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><EncodingType>url</EncodingType>"
      "<IsTruncated>";
  text += end < found.size() ? "true</IsTruncated><NextContinuationToken>p" + std::to_string(end) +
                                   "</NextContinuationToken>"
                             : "false</IsTruncated>";
  for (std::size_t i = begin; i < end; ++i) {
    text += "<Contents><Key>" + percent_encoded(found[i], "/") + "</Key><Size>3</Size></Contents>";
  }
  return {200, text + "</ListBucketResult>"};
}

TEST_F(S3FetcherTest, KeysAreListedPageByPage) {
  std::vector<std::string> keys;
  for (int i = 0; i < 10'000; ++i) keys.push_back("d/train-" + std::to_string(i) + ".tar");
  keys.emplace_back("d/a b+c&<\n\xC3\xA4.tar");
  keys.emplace_back("e/other.tar");
  server_.set_gate(
      [&](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
        fault_ = signature_fault(request, "eu-test-1");
        if (!fault_.empty()) return std::pair(403, std::string());
        return list_answer(request.target, keys, 1000);
      });
  keys.pop_back();
  std::vector<std::string> wanted;
  for (const std::string& key : keys) wanted.push_back("s3://bucket/" + key);
  std::ranges::sort(wanted);
  keys.emplace_back("e/other.tar");
  const Fetchers fetchers(options_);
  EXPECT_EQ(fetchers.list({.url = "s3://bucket/d/"}), wanted) << fault_;
  EXPECT_EQ(server_.requests().size(), 11U);
  EXPECT_EQ(server_.requests().front().target,
            "/bucket/?encoding-type=url&list-type=2&prefix=d%2F");
  EXPECT_EQ(fetchers.list({.url = "s3://bucket/e/"}),
            std::vector<std::string>{"s3://bucket/e/other.tar"});
  EXPECT_EQ(fetchers.list({.url = "s3://bucket/none/"}), std::vector<std::string>{});
  Fetchers::Options moved = options_;
  moved.moved = {{"s3://old/a", "s3://bucket/e"}};
  EXPECT_EQ(Fetchers(moved).list({.url = "s3://old/a/"}),
            std::vector<std::string>{"s3://old/a/other.tar"});
  EXPECT_EQ(fetchers.list({.url = "s3://bucket/"}).size(), keys.size());
}

TEST_F(S3FetcherTest, KeysThatTheServerDidNotEncodeAreTakenAsTheyAre) {
  server_.set_gate([&](const test::LoggedRequest&) {
    return std::pair(200, std::string("<ListBucketResult><Contents><Key>d/a+b%41&amp;.tar</Key>"
                                      "</Contents></ListBucketResult>"));
  });
  EXPECT_EQ(Fetchers(options_).list({.url = "s3://bucket/d/"}),
            std::vector<std::string>{"s3://bucket/d/a+b%41&.tar"});
}

TEST_F(S3FetcherTest, WhatIsNoListIsAnError) {
  std::string text = "<html>";
  int status = 200;
  server_.set_gate([&](const test::LoggedRequest&) { return std::pair(status, text); });
  const auto error = [&] {
    return error_text([&] { (void)Fetchers(options_).list({.url = "s3://bucket/d/"}); });
  };
  EXPECT_THAT(error(), AllOf(HasSubstr("cannot fetch: 's3://bucket/d/'"), HasSubstr("send a list"),
                             HasSubstr("protocol")));
  text =
      "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>p"
      "</NextContinuationToken></ListBucketResult>";
  EXPECT_THAT(error(), HasSubstr("send a list")) << "the same page for ever";
  text = "<Error><Code>AccessDenied</Code></Error>";
  status = 403;
  EXPECT_THAT(error(), AllOf(HasSubstr("HTTP status 403, AccessDenied, after 1 attempt"),
                             HasSubstr("keys")));
}

TEST(ListTest, OtherSchemesSayThatTheyCannot) {
  for (const char* url : {"https://host/d/", "file:///d/"}) {
    const auto call = [&] { (void)Fetchers().list({.url = url}); };
    EXPECT_EQ(error_code(call), ErrorCode::kUnsupported);
    EXPECT_THAT(error_text(call),
                AllOf(HasSubstr("cannot be listed: '" + std::string(url) + "'"),
                      HasSubstr("train-{000000..000146}.tar"), HasSubstr("@list.txt")));
  }
}

TEST_F(S3FetcherTest, WhoAsksForItIsAnonymousWhateverKeysThereAre) {
  server_.set_gate(nullptr);
  server_.serve("/bucket/x", {.body = "public"});
  options_.s3.anonymous = true;
  EXPECT_EQ(fetched({.url = "s3://bucket/x"}), "public");
  EXPECT_EQ(server_.requests().back().header("authorization"), "");
}

TEST_F(S3FetcherTest, WithoutKeysNothingIsSigned) {
  server_.set_gate(nullptr);
  server_.serve("/bucket/x", {.body = "public"});
  options_.s3.access_key_id = options_.s3.secret_access_key = "";
  EXPECT_EQ(fetched({.url = "s3://bucket/x"}), "public");
  EXPECT_EQ(server_.requests().back().header("authorization"), "");
  server_.serve("/bucket/x", {.body = "public", .statuses = {403}});
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              AllOf(HasSubstr("HTTP status 403, after 1 attempt"), HasSubstr("AWS_ACCESS_KEY_ID")));
}

TEST_F(S3FetcherTest, RefusalsSayWhatS3SaysAndNoSecret) {
  options_.s3.secret_access_key = "another-sesame";
  options_.s3.session_token = kToken;
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              AllOf(HasSubstr("cannot fetch: 's3://bucket/x'"),
                    HasSubstr("HTTP status 403, SignatureDoesNotMatch, after 1 attempt"),
                    HasSubstr("keys (from Fetchers::S3Options)"), HasSubstr("region"),
                    HasSubstr("bucket's policy"), Not(HasSubstr("sesame")), Not(HasSubstr(kId))));

  server_.set_gate(nullptr);
  server_.serve("/bucket/x", {.extra_headers = "x-amz-bucket-region: eu-west-9\r\n",
                              .redirect_to = "http://127.0.0.1:1/elsewhere"});
  EXPECT_THAT(
      error_text([&] { fetched({.url = "s3://bucket/x"}); }),
      AllOf(HasSubstr("HTTP status 302, after 2 attempts"), HasSubstr("region 'eu-west-9'")));
  options_.s3.session_token = "line\nsesame";
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              AllOf(HasSubstr("keys are malformed: Fetchers::S3Options"),
                    HasSubstr("printable characters"), HasSubstr("without spaces")));
}

// If a request is signed for the wrong region, Amazon names the right one in a header or in the
// text. A HEAD response has only the header.
TEST_F(S3FetcherTest, TheRegionThatTheServerNamesIsAsked) {
  const std::string malformed =
      "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-real-1</Region></Error>";
  const auto region_of = [](const test::LoggedRequest& request) {
    const std::string scope = between(request.header("authorization"), "Credential=", ',');
    return scope.find("/eu-real-1/") != std::string::npos ? "eu-real-1" : "eu-test-1";
  };
  for (const int status : {301, 307, 400, 403}) {
    for (const bool is_in_text : {false, true}) {
      if (is_in_text && status != 400) continue;
      SCOPED_TRACE(std::to_string(status) + (is_in_text ? " text" : " header"));
      server_.set_gate(
          [&](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
            const std::string region = region_of(request);
            fault_ = signature_fault(request, region);
            if (!fault_.empty()) return std::pair(403, fault_);
            if (is_in_text && region != "eu-real-1") return std::pair(status, malformed);
            return std::nullopt;
          });
      const auto serve = [&](int times) {
        server_.serve("/bucket/x", {.body = "here",
                                    .statuses = std::vector<int>(is_in_text ? 0 : times, status),
                                    .extra_headers = "x-amz-bucket-region: eu-real-1\r\n"});
      };
      serve(1);
      const Fetchers fetchers(options_);
      EXPECT_EQ(fetchers.stat({.url = "s3://bucket/x"}).size_bytes, 4U) << fault_;
      EXPECT_EQ(region_of(server_.requests().back()), std::string("eu-real-1"));
      const std::size_t before = server_.requests().size();
      StringSink sink;
      fetchers.fetch({.url = "s3://bucket/x"}, sink);
      EXPECT_EQ(sink.bytes, "here");
      EXPECT_EQ(server_.requests().size(), before + 1) << "it is known by now";
      serve(1);
      EXPECT_EQ(fetched({.url = "s3://bucket/x"}), "here") << fault_;
      if (is_in_text || status == 403) continue;
      serve(9);
      EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
                  HasSubstr("; set the region 'eu-real-1'"));
    }
  }
  server_.set_gate([](const test::LoggedRequest&) {
    return std::pair(301, std::string("<Error><Code>PermanentRedirect</Code><Endpoint>"
                                      "s3-eu.example</Endpoint></Error>"));
  });
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              HasSubstr("which is at 's3-eu.example'"));
  server_.set_gate([](const test::LoggedRequest&) {
    return std::pair(400, std::string("<Error><Code>AuthorizationHeaderMalformed</Code><Region>"
                                      "evil/host</Region></Error>"));
  });
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }), Not(HasSubstr("evil")));
}

TEST_F(S3FetcherTest, AServerOfOnesOwnMayCallItsRegionAsItLikes) {
  server_.serve("/bucket/x", {.body = "here"});
  for (const std::string region : {"RegionOne", "DC_2.b"}) {
    options_.s3.region = region;
    server_.set_gate(
        [&](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
          fault_ = signature_fault(request, region);
          if (fault_.empty()) return std::nullopt;
          return std::pair(403, std::string());
        });
    EXPECT_EQ(fetched({.url = "s3://bucket/x"}), "here") << fault_;
  }
  // At Amazon the region is part of a host name, so its characters are restricted.
  EXPECT_THAT(
      error_text([] { s3_target("s3://b/k", resolve_s3_access({.region = "RegionOne"}, {})); }),
      AllOf(HasSubstr("region is malformed: 'RegionOne'"), HasSubstr("us-east-1")));
}

TEST_F(S3FetcherTest, ClocksThatDifferAreNamedAndNotTheKeys) {
  server_.set_gate([](const test::LoggedRequest&) {
    return std::pair(403, std::string("<Error><Code>RequestTimeTooSkewed</Code><RequestTime>"
                                      "20200101T000000Z</RequestTime><ServerTime>"
                                      "2001-02-03T04:05:06Z</ServerTime></Error>"));
  });
  const auto is_told = [](const std::string& theirs) {
    return AllOf(HasSubstr("clock"), HasSubstr("at 20"), HasSubstr("server's is at " + theirs),
                 Not(HasSubstr("check the keys")));
  };
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              AllOf(HasSubstr("HTTP status 403, RequestTimeTooSkewed, after 1 attempt"),
                    is_told("2001-02-03T04:05:06Z")));
  EXPECT_THAT(error_text([&] { (void)Fetchers(options_).stat({.url = "s3://bucket/x"}); }),
              is_told("2001-02-03T04:05:06Z"));
  // Other servers do not say why they refuse a signature.
  server_.set_gate(nullptr);
  const auto serve = [&](std::time_t when) {
    std::tm parts{};
    ::gmtime_r(&when, &parts);
    char date[64];
    std::strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    server_.serve("/bucket/x",
                  {.statuses = {403, 403}, .extra_headers = "Date: " + std::string(date) + "\r\n"});
  };
  serve(981173106);
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              is_told("2001-02-03T04:05:06Z"));
  serve(std::time(nullptr) - 60);
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }), HasSubstr("check the keys"));
  options_.s3.anonymous = true;
  serve(981173106);
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }), Not(HasSubstr("clock")));
}

TEST_F(S3FetcherTest, HeadersOfTheStoreAreSignedAndOthersAreSaidNotToBeSent) {
  server_.serve("/bucket/x", {.body = "here"});
  options_.headers = {"X-Amz-Request-Payer: requester"};
  EXPECT_EQ(fetched({.url = "s3://bucket/x"}), "here") << fault_;
  EXPECT_EQ(server_.requests().back().header("x-amz-request-payer"), "requester");
  server_.serve("/bucket/x", {.statuses = {403, 403, 403}});
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              AllOf(HasSubstr("'x-amz-request-payer: requester'"), Not(HasSubstr("not sent"))));
  options_.headers.emplace_back("X-Tenant: sesame");
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://bucket/x"}); }),
              AllOf(HasSubstr("were not sent"), Not(HasSubstr("sesame"))));
  EXPECT_EQ(server_.requests().back().header("x-tenant"), "");
}

// Amazon's own tools read profiles with Python's configparser.
TEST_F(S3FetcherTest, ProfilesAreReadHoweverTheyAreWritten) {
  const auto found = [](const std::string& profile) {
    Fetchers::Options all;
    all.s3.profile = profile;
    const AwsKeys keys = AwsKeyChain(all).find({}, {});
    const S3Access access = resolve_s3_access(all.s3, keys);
    return keys.access_key_id + "|" + keys.secret_access_key + "|" + access.region + "|" +
           access.endpoint;
  };
  const auto write = [&](const char* file, const std::string& text) {
    test::write_file(environment_.home() / file, text);
  };
  write("credentials",
        "\xEF\xBB\xBF[capitals]\nAWS_ACCESS_KEY_ID = A\nAws_Secret_Access_Key=s\n"
        "[colon]\naws_access_key_id: A\naws_secret_access_key:s=:t\n"
        "[indented]\n  aws_access_key_id = A\n  # not a key\n\n  aws_secret_access_key = s\n"
        " [also]\n\taws_access_key_id=A\n\taws_secret_access_key=s\n"
        "[Default]\naws_access_key_id = A\naws_secret_access_key = s\n");
  write("config",
        "[Profile capitals]\nREGION=r-1\n[profile\t\"colon\"]\nregion : r-1\n"
        "[profile indented]\n    s3 =\n        endpoint_url = http://wrong\n"
        "        addressing_style = virtual\n    region = r-1\n"
        "[profile also]\nregion = r-1\n[profile default]\nregion = r-1\n");
  EXPECT_EQ(found("capitals"), "A|s|r-1|");
  EXPECT_EQ(found("colon"), "A|s=:t|r-1|");
  EXPECT_EQ(found("indented"), "A|s|r-1|");
  EXPECT_EQ(found("also"), "A|s|r-1|");
  EXPECT_EQ(found("default"), "A|s|r-1|");
  EXPECT_EQ(resolve_s3_access({.profile = "indented"}, {}).path_style, false);
  EXPECT_EQ(resolve_s3_access({.path_style = true, .profile = "indented"}, {}).path_style, true);
  EXPECT_EQ(resolve_s3_access({.profile = "also"}, {}).path_style, std::nullopt);
  write("credentials", "[typo]\naws_access_key_id sesame\n");
  EXPECT_THAT(error_text([&] { found("typo"); }),
              AllOf(HasSubstr("S3 profile is malformed: '"), HasSubstr("credentials', line 2"),
                    HasSubstr("name = value"), Not(HasSubstr("sesame"))));
}

TEST_F(S3FetcherTest, TheServicesOfAProfileSayWhereTheyAre) {
  const auto endpoint = [](const std::string& service) {
    return aws_endpoint(read_aws_profile("p", true), service);
  };
  const auto write = [&](const std::string& text) {
    test::write_file(environment_.home() / "config", text);
  };
  const std::string services =
      "[services lab]\ns3 =\n  endpoint_url = http://s3.lab/\nsts =\n  "
      "endpoint_url=http://sts.lab\n";
  write("[profile p]\nservices = lab\nendpoint_url = http://all.lab\n" + services);
  EXPECT_EQ(endpoint("s3"), "http://s3.lab");
  EXPECT_EQ(endpoint("sts"), "http://sts.lab");
  EXPECT_EQ(endpoint("sso_oidc"), "http://all.lab");
  EXPECT_EQ(resolve_s3_access({.profile = "p"}, {}).endpoint, "http://s3.lab");
  environment_.set("AWS_ENDPOINT_URL", "http://env");
  EXPECT_EQ(endpoint("s3"), "http://env");
  environment_.set("AWS_ENDPOINT_URL_SSO_OIDC", "http://env-oidc");
  EXPECT_EQ(endpoint("sso_oidc"), "http://env-oidc");
  environment_.set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "TRUE");
  EXPECT_EQ(endpoint("s3"), "");
  environment_.unset("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
  write("[profile p]\nservices = none\n" + services);
  EXPECT_THAT(error_text([&] { endpoint("s3"); }),
              AllOf(HasSubstr("services section"), HasSubstr("'none'"), HasSubstr("profile 'p'")));
}

TEST_F(S3FetcherTest, MalformedUrlsAndEndpointsAreRefused) {
  for (const char* url : {"s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3:bucket/key",
                          "s3://a b/k", "s3://../k", "s3://KEY:sesame@bucket/k", "s3://b/a\nb"}) {
    const auto call = [&] { fetched({.url = url}); };
    EXPECT_EQ(error_code(call), ErrorCode::kInvalidArgument) << url;
    EXPECT_THAT(error_text(call), Not(HasSubstr("sesame")));
  }
  for (const char* endpoint : {"host:9000", "ftp://h", "http://u:sesame@h", "http://h/?sesame"}) {
    options_.s3.endpoint = endpoint;
    const auto call = [&] { fetched({.url = "s3://b/k"}); };
    EXPECT_EQ(error_code(call), ErrorCode::kInvalidArgument) << endpoint;
    EXPECT_THAT(error_text(call), Not(HasSubstr("sesame")));
  }
  options_.s3.endpoint = "http://h";
  options_.s3.region = "eu.evil/";  // also an error for an endpoint that is not Amazon's
  EXPECT_THAT(error_text([&] { fetched({.url = "s3://b/k"}); }),
              HasSubstr("region is malformed: 'eu.evil/'"));
}

// --- Against moto, a server by other authors -------------------------------------------

std::size_t append(char* bytes, std::size_t, std::size_t size, void* text) {
  static_cast<std::string*>(text)->append(bytes, size);
  return size;
}

/// Sends one request that prepares the server. Returns the body of the answer.
std::string call(const std::string& method, const std::string& url, const std::string& service,
                 const std::string& body) {
  std::string answer;
  CURL* const handle = curl_easy_init();
  // The signature is invalid: the server does not check signatures yet. It takes the service's name
  // from this header.
  const std::string authorization =
      "Authorization: AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/" + service +
      "/aws4_request, SignedHeaders=host, Signature=x";
  curl_slist* headers = curl_slist_append(nullptr, authorization.c_str());
  if (service == "s3") headers = curl_slist_append(headers, "Content-Type: application/x-tar");
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, method.c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
  if (!body.empty()) {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  }
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &answer);
  const CURLcode code = curl_easy_perform(handle);
  curl_slist_free_all(headers);
  curl_easy_cleanup(handle);
  return code == CURLE_OK ? answer : "";
}

/// moto's server checks signatures with botocore once it is prepared.
TEST(S3ServerTest, MotoAcceptsTheSignatures) {
  const auto program = test::find_program("moto_server");
  if (!program)
    GTEST_SKIP()
        << "needs moto_server (the Python package moto[server]); skipped because it is not in PATH";
  const test::AwsEnvironment environment;
  const std::string port = std::to_string(test::free_port());
  const std::string server = "http://127.0.0.1:" + port;
  ::setenv("INITIAL_NO_AUTH_ACTION_COUNT", "5", 1);
  const test::Spawned moto({*program, "-H", "127.0.0.1", "-p", port});
  ::unsetenv("INITIAL_NO_AUTH_ACTION_COUNT");
  if (!test::wait_for_port(std::stoi(port), std::chrono::seconds(60)))
    GTEST_SKIP() << "needs moto_server; skipped because it did not start within a minute";

  const std::string body = test::some_bytes(100'000);
  call("PUT", server + "/bucket", "s3", "");
  call("PUT", server + "/bucket/a%20b/x.tar", "s3", body);
  call("POST", server, "iam", "Action=CreateUser&Version=2010-05-08&UserName=u");
  call("POST", server, "iam",
       "Action=PutUserPolicy&Version=2010-05-08&UserName=u&PolicyName=p&PolicyDocument="
       "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C"
       "%22Action%22%3A%22s3%3A%2A%22%2C%22Resource%22%3A%22%2A%22%7D%5D%7D");
  const std::string keys =
      call("POST", server, "iam", "Action=CreateAccessKey&Version=2010-05-08&UserName=u");

  Fetchers::Options options = test::quick_options();
  options.s3.endpoint = server;
  options.s3.access_key_id = between(keys, "<AccessKeyId>", '<');
  options.s3.secret_access_key = between(keys, "<SecretAccessKey>", '<');
  ASSERT_NE(options.s3.secret_access_key, "") << keys;
  const Fetcher::Request request{.url = "s3://bucket/a b/x.tar"};
  StringSink sink;
  const Fetcher::Stat file = Fetchers(options).fetch(request, sink);
  EXPECT_TRUE(same(sink.bytes, body));
  EXPECT_EQ(file.size_bytes, body.size());
  EXPECT_EQ(Fetchers(options).stat(request).validator, file.validator);
  StringSink part;
  Fetchers(options).fetch({.url = request.url, .range = {10, 20}, .validator = file.validator},
                          part);
  EXPECT_TRUE(same(part.bytes, body.substr(10, 10)));

  // Without a slash at the end, because moto decodes %2F before it checks the signature; S3 does
  // not.
  EXPECT_EQ(Fetchers(options).list({.url = "s3://bucket/a"}),
            std::vector<std::string>{"s3://bucket/a b/x.tar"});

  options.s3.region = "RegionOne";
  options.headers = {"x-amz-request-payer: requester"};
  StringSink elsewhere;
  Fetchers(options).fetch(request, elsewhere);
  EXPECT_TRUE(same(elsewhere.bytes, body));

  options.s3.secret_access_key += "x";
  EXPECT_THAT(error_text([&] { Fetchers(options).fetch(request, sink); }),
              HasSubstr("(HTTP status 403, SignatureDoesNotMatch"));
}

}  // namespace
}  // namespace shardwise
