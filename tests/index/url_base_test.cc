// Tests of the common folder of URLs, and of URLs stored relative to it.

#include "index/url_base.h"

#include <random>

#include "support/support.h"

namespace shardwise {
namespace {

std::string base_of(const std::vector<std::string>& urls) {
  UrlBase base;
  for (const std::string& url : urls) base.add(url);
  return base.text();
}

TEST(UrlBaseTest, IsTheDeepestFolderOfAll) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, ""},
      {{"https://h/d/0.tar"}, "https://h/d/"},
      {{"https://h/d/0.tar", "https://h/d/1.tar"}, "https://h/d/"},
      {{"https://h/d/0.tar", "https://h/d2/1.tar"}, "https://h/"},
      {{"https://h/d/a/0.tar", "https://h/d/b/1.tar"}, "https://h/d/"},
      {{"https://h/d/a/0.tar", "https://h/d/1.tar"}, "https://h/d/"},
      {{"https://h:8443/0.tar", "https://h:8443/1.tar"}, "https://h:8443/"},
      {{"https://h/get?f=a/0.tar", "https://h/get?f=a/1.tar"}, "https://h/"},
      {{"s3://b/k?f=a/0.tar", "s3://b/k?f=a/1.tar"}, "s3://b/k?f=a/"},
      {{"https://h/d//0.tar", "https://h/d//1.tar"}, "https://h/d//"},
      // Paths and commands are ignored.
      {{"a/0.tar", "pipe:cat x", "https://h/d/0.tar", "/mnt/1.tar"}, "https://h/d/"},
      {{"a/0.tar", "/mnt/1.tar", "|cat x"}, ""},
      // URLs with different hosts, ports, schemes or buckets; hosts with the same beginning; no
      // folder.
      {{"https://h/0.tar", "https://g/0.tar"}, ""},
      {{"https://host/0.tar", "https://host2/0.tar"}, ""},
      {{"https://h/0.tar", "https://h:8443/0.tar"}, ""},
      {{"https://h/0.tar", "http://h/0.tar"}, ""},
      {{"s3://b/0.tar", "s3://b2/0.tar"}, ""},
      {{"https://h", "https://h/d/0.tar"}, ""},
      {{"https://h/d/0.tar", "https://h"}, ""},
      {{"https://h/a/0.tar", "https://g/a/0.tar", "https://h/a/1.tar"}, ""},
  };
  for (auto [urls, base] : cases) {
    EXPECT_EQ(base_of(urls), base) << testing::PrintToString(urls);
    std::reverse(urls.begin(), urls.end());
    EXPECT_EQ(base_of(urls), base) << "in another order: " << testing::PrintToString(urls);
  }
}

TEST(UrlBaseTest, WhatLiesBelowItIsStoredBehindAColon) {
  const std::pair<const char*, const char*> cases[] = {
      {"https://h/d/0.tar", ":0.tar"},
      {"https://h/d/a/0.tar?v=1", ":a/0.tar?v=1"},
      {"https://h/d///0.tar", "://0.tar"},
      {"https://h/d/", ":"},
      {"https://h/e/0.tar", "https://h/e/0.tar"},
      {"a/0.tar", "a/0.tar"},
      {"./:0.tar", "./:0.tar"},
      {"pipe:cat https://h/d/0.tar", "pipe:cat https://h/d/0.tar"},
  };
  for (const auto& [url, stored] : cases) {
    EXPECT_EQ(below_base(url, "https://h/d/"), stored);
    EXPECT_EQ(from_base(stored, "https://h/d/"), url);
    EXPECT_EQ(below_base(url, ""), url);
  }
  EXPECT_EQ(from_base(":0.tar", ""), std::nullopt);
}

TEST(UrlBaseTest, OnlyAFolderOfUrlsIsOne) {
  for (const char* text : {"https://h/", "https://h:1/d/", "s3://b/", "s3://b/k?/"}) {
    EXPECT_TRUE(is_url_base(text)) << text;
  }
  for (const char* text : {"", "https://h", "https://", "https:///", "https:/", "/d/", "d/",
                           "pipe:x/", "file:///d/", "https://h/d", "https://h/d?x/"}) {
    EXPECT_FALSE(is_url_base(text)) << text;
  }
}

// Random URLs are unchanged after storing and reading. No URL below the base is stored in full.
TEST(UrlBaseTest, RandomUrlsComeBackAsTheyWere) {
  std::mt19937_64 random(test::random_seed());
  const auto pick = [&](std::initializer_list<const char*> of) {
    return std::string(of.begin()[random() % of.size()]);
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> urls;
    const std::string origin = pick({"https://h", "https://h.example:81", "s3://b", "gs://b"});
    for (std::size_t i = 1 + random() % 5; i > 0; --i) {
      std::string url = random() % 8 == 0 ? pick({"https://h", "s3://bb"}) : origin;
      for (std::size_t depth = 1 + random() % 4; depth > 0; --depth) {
        url += "/" + pick({"a", "b", "ab", "", ":", "%3A", "a?b"});
      }
      urls.push_back(url);
    }
    const std::string base = base_of(urls);
    for (const std::string& url : urls) {
      const std::string stored = below_base(url, base);
      EXPECT_EQ(from_base(stored, base), url);
      EXPECT_EQ(stored.starts_with(':'), !base.empty()) << url << " beside " << base;
    }
  }
}

}  // namespace
}  // namespace shardwise
