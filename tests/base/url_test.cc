#include "base/url.h"

#include <string>

#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(UrlTest, KnowsSchemes) {
  EXPECT_EQ(scheme_of("HTTPS://h/x"), "https");
  EXPECT_EQ(scheme_of("s3://b/k"), "s3");
  EXPECT_EQ(scheme_of("C:/x"), "c");
  EXPECT_EQ(scheme_of("svn+ssh://h"), "svn+ssh");
  for (const char* none : {"", "x.tar", "a/b:c", "3s://x", "://x", "a b://x"}) {
    EXPECT_EQ(scheme_of(none), "") << none;
  }
  EXPECT_TRUE(is_remote_url("Http://h/x"));
  EXPECT_TRUE(is_remote_url("gs://b/x"));
  for (const char* local : {"file:///x", "/x", "x.tar", "pipe:cat x", "C:/x", "http:x"}) {
    EXPECT_FALSE(is_remote_url(local)) << local;
  }
  EXPECT_TRUE(is_command_url("pipe:cat x"));
  EXPECT_TRUE(is_command_url("PIPE:cat x"));
  EXPECT_TRUE(is_command_url("|cat x"));
  EXPECT_FALSE(is_command_url("pipe"));
}

TEST(UrlTest, OneFileHasOneSpelling) {
  struct Case {
    std::string written, canonical;
  };
  const Case cases[] = {
      {"HTTP://Host.Example:80/A", "http://host.example/A"},
      {"https://h:443", "https://h/"},
      {"https://h:80/x", "https://h:80/x"},
      {"http://h:0080/x", "http://h/x"},
      {"http://h:/x", "http://h/x"},
      {"http://user:pw@h/x", "http://h/x"},
      {"http://a@b:c@h/x", "http://h/x"},
      {"http://h/x?b=1&a=%2f#frag", "http://h/x?b=1&a=%2F"},
      {"http://h?q", "http://h/?q"},
      {"http://h/?", "http://h/?"},
      {"http://h/a/./b/../c", "http://h/a/c"},
      {"http://h/../../x", "http://h/x"},
      {"http://h/a/..", "http://h/"},
      {"http://h/a/.", "http://h/a/"},
      {"http://h/a/%2e%2E/x", "http://h/x"},
      {"http://h/a//b/", "http://h/a//b/"},
      {"http://h/%7euser/%41%2f", "http://h/~user/A%2F"},
      {"http://h/a b\"<>`{|}^\\", "http://h/a%20b%22%3C%3E%60%7B%7C%7D%5E%5C"},
      {"http://h/\xC3\xA4", "http://h/%C3%A4"},
      {"http://h/100%.tar", "http://h/100%.tar"},
      {"http://h/x;$(touch y)'&", "http://h/x;$(touch%20y)'&"},
      {"http://[::1]:8080/x", "http://[::1]:8080/x"},
      {"http://[FE80::1]/x", "http://[fe80::1]/x"},
      {"S3://Bucket/a/../b?c#d%20", "s3://Bucket/a/../b?c#d%20"},
      {"gs://Bucket/x", "gs://Bucket/x"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(canonical_url(c.written), c.canonical) << c.written;
    EXPECT_EQ(canonical_url(c.canonical), c.canonical);
  }
}

TEST(UrlTest, PartsAreToldApart) {
  const Url url = parse_url("HTTP://u:p@Host:8080/a/b?q=1#f");
  EXPECT_EQ(url.scheme, "http");
  EXPECT_EQ(url.userinfo, "u:p");
  EXPECT_EQ(url.host, "host");
  EXPECT_EQ(url.port, 8080);
  EXPECT_EQ(url.path, "/a/b");
  EXPECT_EQ(url.query, "q=1");
  EXPECT_EQ(url.origin(), "http://host:8080");
}

TEST(UrlTest, MalformedUrlsAreRefusedWithoutTheirSecrets) {
  for (const std::string url :
       {"http://", "http:///x", "http://u:sesame@/x", "http://h:99999/sesame?sesame",
        "http://h:0/x", "http://h:port/x", "http://a b/x", "http://h'/x", "http://$(sesame)/x",
        "http://[::1/x", "http://u:ses/ame@h/", "http://h/a\nb", "http://h/a\rb", "http://h/\x7f",
        "nothing", "http:/u:sesame@h/x"}) {
    const auto call = [&] { parse_url(url); };
    EXPECT_EQ(error_code(call), ErrorCode::kInvalidArgument) << url;
    EXPECT_THAT(error_text(call), Not(HasSubstr(":sesame"))) << url;
    EXPECT_THAT(error_text(call), Not(HasSubstr("ame@"))) << url;
    EXPECT_THAT(error_text(call), HasSubstr("scheme://host/path"));
  }
  EXPECT_THAT(error_text([] { parse_url("http://h/a\nb?k=sesame"); }),
              AllOf(HasSubstr("malformed: 'http://h/a\\nb?k=***'"), HasSubstr("control character"),
                    HasSubstr("%XX")));
  EXPECT_EQ(error_code([] { canonical_url(std::string("s3://b/\0k", 9)); }),
            ErrorCode::kInvalidArgument);
}

TEST(UrlTest, TextsHoldNoSecrets) {
  EXPECT_EQ(redacted_url("http://u:p@Host:80/x?a=1&b&=2&c=#f"),
            "http://Host:80/x?a=***&***&=***&c=***");
  EXPECT_EQ(redacted_url("http://u:p@x@h/"), "http://h/");
  EXPECT_EQ(redacted_url("http://u:p/w@h/x"), "http://***");
  EXPECT_EQ(redacted_url("http:u:p@h"), "http:***");
  EXPECT_EQ(redacted_url("s3://KEY:SECRET@bucket/k"), "s3://bucket/k");
  EXPECT_EQ(redacted_url("gs://b/k?token=1"), "gs://b/k?token=***");
  EXPECT_EQ(redacted_url("pipe:curl -H 'Authorization: x' u"), "pipe:curl ***");
  EXPECT_EQ(redacted_url("pipe: 'a b'"), "pipe: ***");
  EXPECT_EQ(redacted_url("|cat"), "pipe:cat");
  EXPECT_EQ(redacted_url("/a/b?c=d"), "/a/b?c=d");
  EXPECT_EQ(redacted_url("file:///a%20b"), "file:///a%20b");
}

TEST(UrlTest, PercentCodesAreBytes) {
  EXPECT_EQ(percent_decoded("a%20%2fb"), "a /b");
  EXPECT_EQ(percent_decoded("%00"), std::string(1, '\0'));
  for (const char* bad : {"%", "%2", "%zz", "a%2"}) EXPECT_EQ(percent_decoded(bad), std::nullopt);
  EXPECT_EQ(percent_encoded("a/b c\xFF~", "/"), "a/b%20c%FF~");
  EXPECT_EQ(percent_encoded("a/b"), "a%2Fb");
}

TEST(UrlTest, SignaturesAreLeftOutOfWhatNamesAFile) {
  const std::pair<const char*, const char*> cases[] = {
      {"https://h/x.tar", "https://h/x.tar"},
      {"https://u:p@h:8443/x.tar#part", "https://h:8443/x.tar"},
      {"https://h/x.tar?versionId=7&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a%2Fb&"
       "X-Amz-Date=20260101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=c",
       "https://h/x.tar?versionId=7"},
      {"https://h/x.tar?X-Goog-Algorithm=a&X-Goog-Signature=b&X-Goog-Date=c", "https://h/x.tar"},
      {"https://h/x.tar?AWSAccessKeyId=a&Signature=b&Expires=1", "https://h/x.tar"},
      {"https://h/x.tar?GoogleAccessId=a&Expires=1&Signature=b&n=1", "https://h/x.tar?n=1"},
      {"https://h/x.tar?Policy=a&Signature=b&Key-Pair-Id=c", "https://h/x.tar"},
      {"https://h/c/x.tar?sv=2022-11-02&st=a&se=b&sr=c&sp=r&sig=d%3D&snapshot=e",
       "https://h/c/x.tar?snapshot=e"},
      {"https://h/x.tar?n=1&X%2DAmz-Date=1&x-amz-%53ignature=2", "https://h/x.tar?n=1"},
      // CloudFront, with a canned policy.
      {"https://h/x.tar?Expires=1&Signature=b&Key-Pair-Id=c&n=1", "https://h/x.tar?n=1"},
      // Google Cloud CDN: signatures for one URL, and for all URLs below a prefix.
      {"https://h/x.tar?Expires=1&KeyName=k&Signature=s", "https://h/x.tar"},
      {"https://h/x.tar?v=1&URLPrefix=aHR0cHM&Expires=1&KeyName=k&Signature=s",
       "https://h/x.tar?v=1"},
      // Alibaba Cloud OSS, version 1, 2 and 4.
      {"https://h/x.tar?OSSAccessKeyId=a&Expires=1&Signature=s%3D&security-token=t&versionId=3",
       "https://h/x.tar?versionId=3"},
      {"https://h/x.tar?x-oss-access-key-id=a&x-oss-expires=1&x-oss-signature=s&"
       "x-oss-signature-version=OSS2&x-oss-process=style%2Fa",
       "https://h/x.tar?x-oss-process=style%2Fa"},
      {"https://h/x.tar?x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=a%2Fb&"
       "x-oss-date=20260101T000000Z&x-oss-expires=60&x-oss-additional-headers=host&"
       "x-oss-security-token=t&x-oss-signature=s",
       "https://h/x.tar"},
      // Tencent Cloud COS.
      {"https://h/x.tar?q-sign-algorithm=sha1&q-ak=a&q-sign-time=1;2&q-key-time=1;2&"
       "q-header-list=host&q-url-param-list=&q-signature=s&x-cos-security-token=t&versionId=3",
       "https://h/x.tar?versionId=3"},
  };
  for (const auto& [url, plain] : cases) EXPECT_EQ(unsigned_url(url), plain);
}

TEST(UrlTest, SoArePatternsAndMalformedOnes) {
  const std::pair<const char*, const char*> cases[] = {
      {"https://u:p@{a,b}.h/{0..9}.tar?X-Amz-Date=1&X-Amz-Signature=2",
       "https://{a,b}.h/{0..9}.tar"},
      {"https://u:p@h/*.tar?sv=1&sig=2&n=3", "https://h/*.tar?n=3"},
      {"https://u:p@a b:c/x.tar", "https://a b:c/x.tar"},
      {"https://u:p@", "https://"},
  };
  for (const auto& [url, plain] : cases) EXPECT_EQ(unsigned_url(url), plain);
}

TEST(UrlTest, WhatOnlyLooksLikeASignatureNamesTheFile) {
  for (const char* url :
       {"https://h/x.tar?Expires=1", "https://h/x?Signature=b", "https://h/x?sig=1&se=2",
        "https://h/x?x-amz-meta=1", "https://h/x?", "https://h/x?Expires=1&Signature=b",
        "https://h/x?KeyName=k&Expires=1", "https://h/x?KeyName=k&Signature=b",
        "https://h/x?URLPrefix=a", "https://h/x?OSSAccessKeyId=a&security-token=t&Expires=1",
        "https://h/x?x-oss-process=style%2Fa&x-oss-date=1", "https://h/x?q-ak=a&q-sign-time=1",
        "https://h/x?q-signature=a&q=1", "s3://b/k?X-Amz-Signature=1", "/a?sig=1&sv=2",
        "pipe:cat x"}) {
    EXPECT_EQ(unsigned_url(url), url);
  }
}

TEST(UrlTest, FilesAreFoundAtAnotherBase) {
  const auto moved = [](const char* url, const char* from, const char* to) {
    return rebased_url(url, from, to).value_or("none");
  };
  EXPECT_EQ(moved("https://h/d/x.tar", "https://h/d", "https://m/e"), "https://m/e/x.tar");
  EXPECT_EQ(moved("https://h/d/x.tar", "https://h/d/", "https://m/e"), "https://m/e/x.tar");
  EXPECT_EQ(moved("https://h/d/x.tar", "https://h/d", "https://m/e/"), "https://m/e/x.tar");
  EXPECT_EQ(moved("https://h/d/x.tar?v=1", "https://h/d", "https://m/?s=2"),
            "https://m/x.tar?v=1&s=2");
  EXPECT_EQ(moved("https://h/x.tar", "https://h/x.tar", "https://h/y.tar?s=2"),
            "https://h/y.tar?s=2");
  EXPECT_EQ(moved("https://h/d/a%20b.tar?v=1", "https://h/d", "s3://b/e"), "s3://b/e/a b.tar");
  EXPECT_EQ(moved("s3://b/d/a b?.tar", "s3://b", "https://h/e?s=1"),
            "https://h/e/d/a%20b%3F.tar?s=1");
  EXPECT_EQ(moved("https://h/d/x.tar", "https://h/d", "https://m/e#top"), "https://m/e/x.tar");
  EXPECT_EQ(moved("https://h/d/x.tar", "https://h/d", "https://m/e?s=1#top"),
            "https://m/e/x.tar?s=1");
  EXPECT_EQ(moved("https://h/d/x.tar", "https://h/d", "s3://m/e#2"), "s3://m/e#2/x.tar");
  EXPECT_EQ(moved("https://h/data2/x.tar", "https://h/data", "https://m"), "none");
  EXPECT_EQ(moved("https://g/x.tar", "https://h", "https://m"), "none");
}

TEST(UrlTest, ABaseIsFoundInAnotherSpelling) {
  for (const char* from :
       {"https://H.example:443/a/d%7e", "HTTPS://h.example/a/d~/", "https://h.example/a/./b/../d~",
        "https://me:secret@h.example/a/d~", "https://h.example/a/d~?sig=1&sv=2"}) {
    EXPECT_EQ(rebased_url("https://h.example/a/d~/x%20y.tar?v=1", from, "https://m/e"),
              "https://m/e/x%20y.tar?v=1")
        << from;
  }
  EXPECT_EQ(rebased_url("HTTPS://H.example:443/a/x.tar", "https://h.example", "https://m"),
            "https://m/a/x.tar");
  EXPECT_EQ(rebased_url("S3://b/k.tar", "s3://b", "https://m"), "https://m/k.tar");
  // These are not below `from`: they differ in the port, in the case of the bucket, or in the
  // folder's name.
  EXPECT_FALSE(rebased_url("https://h:8443/a/x.tar", "https://h/a", "https://m"));
  EXPECT_FALSE(rebased_url("s3://b/k.tar", "s3://B", "https://m"));
  EXPECT_FALSE(rebased_url("https://h/A/x.tar", "https://h/a", "https://m"));
}

}  // namespace
}  // namespace shardwise
