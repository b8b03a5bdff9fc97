// Checks docs/formats/cache-directory.md: a Python program that was written only from that page
// reads a cache.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/file.h"
#include "base/hasher.h"
#include "shardwise/base/hash.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_directory.h"
#include "storage/cache_locks.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/python.h"

namespace shardwise {
namespace {

using nlohmann::json;
using test::TempDir;

constexpr const char* kReader = "tests/storage/read_cache.py";

std::vector<json> read_cache(const std::string& directory) {
  std::vector<json> shards;
  for (const std::string& line : test::run_python(kReader, {directory})) {
    shards.push_back(json::parse(line));
  }
  return shards;
}

TEST(CacheSpecificationTest, AReaderWrittenFromThePageReadsIt) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  const TempDir dir;
  test::TestHttpServer server;
  const std::string plain = test::some_bytes(10'000, 3), small = "less than a page";
  server.serve("/plain.tar", {.body = plain});
  test::write_file(dir / "small.tar", small);
  const std::string packed = test::compress(plain, Compression::kGzip);
  test::write_file(dir / "plain.tar.gz", packed);
  const auto identity = file_identity(dir / "plain.tar.gz");
  const auto cache = ShardCache::open({.directory = dir / "cache", .budget_bytes = 1 << 30});
  const std::vector<CacheRequest> requests{
      {.source = {.url = server.url("/plain.tar")},
       .admission = {.make_note = [] { return "a note"; }}},
      {.source = {.url = dir / "small.tar"},
       .admission = {.check = [](const std::string&) {}, .checked_as = Hash128{1, 2}}},
      {.source = {.url = dir / "plain.tar.gz",
                  .validator = local_validator(identity.size_bytes, identity.mtime_ns),
                  .compression = Compression::kGzip}}};
  const std::vector<std::string> at_source{plain, small, packed};
  std::map<std::string, json> expected;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CacheAccess::get(*cache, requests[i]);
    const std::string name = CacheAccess::name_of(requests[i]);
    json record{{"name", name},
                {"url", requests[i].source.url},
                {"compression", compression_name(requests[i].source.compression)},
                {"source_size", at_source[i].size()},
                {"source_hash", to_string(hash128(at_source[i]))},
                {"is_intact", true},
                {"is_same_at_a_glance", true},
                {"checked_as", nullptr},
                {"note", nullptr},
                {"fetch_byte", detail::fetch_byte(name)},
                {"use_byte", detail::use_byte(name)}};
    if (requests[i].admission.checked_as)
      record["checked_as"] = to_string(*requests[i].admission.checked_as);
    if (requests[i].admission.make_note) record["note"] = to_string(hash128("a note"));
    expected[name] = record;
  }
  const std::vector<json> found = read_cache(dir / "cache");
  ASSERT_EQ(found.size(), expected.size());
  for (json shard : found) {
    // Do not compare validators: a local shard's record has the file's own, whatever was requested.
    shard.erase("validator");
    EXPECT_EQ(shard, expected[shard["name"]]);
  }
  // Replace the note of shard 1 by that of shard 0, which belongs to other bytes.
  const auto note_of = [&](std::size_t i) {
    return dir / ("cache/shards/" + CacheAccess::name_of(requests[i]) + ".note");
  };
  test::write_file(note_of(1), test::read_file(note_of(0)));
  for (const json& shard : read_cache(dir / "cache")) {
    EXPECT_EQ(shard["note"].is_null(), shard["name"] != CacheAccess::name_of(requests[0]));
  }
  // Another program writes to a shard, then restores its time.
  const std::string path = dir / ("cache/shards/" + CacheAccess::name_of(requests[1]) + ".tar");
  struct stat before {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  test::write_file(path, "more than a page");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  for (const json& shard : read_cache(dir / "cache")) {
    const bool is_written = shard["name"] == CacheAccess::name_of(requests[1]);
    EXPECT_EQ(shard["is_intact"], !is_written);
    EXPECT_EQ(shard["is_same_at_a_glance"], !is_written);
  }
}

TEST(CacheSpecificationTest, NamesOfShardsFollowFromThePage) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  std::mt19937_64 random(test::random_seed());
  const auto one_of = [&](const std::vector<std::string>& parts) {
    return parts[random() % parts.size()];
  };
  std::vector<CacheRequest> requests{
      {.source = {.url = "http://host/a/0.tar", .validator = "\"x\""}},
      {.source = {.url = "/data/0.tar.gz",
                  .validator = "1000-1700000000000000000",
                  .compression = Compression::kGzip}}};
  for (int i = 0; i < 400; ++i) {
    std::string url = one_of({"http", "HTTP", "https", "hTTps", "gs", "s3", "S3", "file", "pipe"}) +
                      one_of({"://", "://", "://", ":", "://me@", "://me:secret@", "://a@b@"});
    url += one_of({"host", "Host.EXAMPLE", "[::1]", "[FE80::2]", "h\xc3\xa9", "", "a b", "[]"});
    url += one_of({"", "", ":80", ":443", ":0080", ":8080", ":", ":0", ":65536", ":x"});
    for (auto left = random() % 6; left > 0; --left) {
      url +=
          one_of({"/", "/a", "/.", "/..", "/%2e%2E", "/%41b", "/%c3%a9", "/\xc3\xa9", "/%", "/%zz",
                  "/a b", "/\"q\"", "/0-1_2.3~", "/[x]", "/..a", "/a:b@c", "\x7f", "\t"});
    }
    url += one_of({"", "", "?", "?x=%7e&y=a b", "?a/../b", "?x?y",
                   "?X-Amz-Date=1&x=2&x-amz-SIGNATURE=3", "?sig=1&SE=2&sv=3&",
                   "?&Signature=1&Expires=2&Key-Pair-Id=3", "?Expires=1&&sig=2",
                   "?Expires=1&KeyName=2&Signature=3&URLPrefix=4&v=5", "?KeyName=2&Signature=3",
                   "?OSSAccessKeyId=1&Expires=2&Signature=3&security-token=4",
                   "?x-oss-process=style/a&x-oss-date=1&x-oss-signature=2",
                   "?q-ak=1&q-signature=2&q-key-time=3&x-cos-security-token=4&x=5"}) +
           one_of({"", "#", "#a?b/c"});
    requests.push_back(
        {.source = {.url = url,
                    .validator = one_of({"", "\"etag\"", "Thu, 01 Jan 1970 00:00:00 GMT"}),
                    .compression = random() % 2 == 0 ? Compression::kNone : Compression::kXz}});
  }
  std::string input;
  const auto in_latin = [](const std::string& bytes) {  // each byte becomes one character
    std::string text;
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x80) text += static_cast<char>(0xC0 | byte >> 6);
      text += static_cast<char>(byte >= 0x80 ? 0x80 | (byte & 0x3F) : byte);
    }
    return text;
  };
  std::vector<std::string> expected;
  for (const CacheRequest& request : requests) {
    input += json{in_latin(request.source.url), compression_name(request.source.compression),
                  in_latin(request.source.validator)}
                 .dump() +
             "\n";
    try {
      expected.push_back("\"" + CacheAccess::name_of(request) + "\"");
    } catch (const InvalidArgument&) {
      expected.push_back("null");
    }
  }
  const std::vector<std::string> found = test::run_python(kReader, {"--batch"}, input);
  ASSERT_EQ(found.size(), requests.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i], expected[i]) << requests[i].source.url;
  }
  EXPECT_GE(std::count(expected.begin(), expected.end(), "null"), 20);
  EXPECT_LE(std::count(expected.begin(), expected.end(), "null"), 350);
  // The page gives the names of the first two requests.
  const std::string page = test::read_file(test::source_dir() + "/docs/formats/cache-directory.md");
  EXPECT_THAT(page, testing::HasSubstr(CacheAccess::name_of(requests[0])));
  EXPECT_THAT(page, testing::HasSubstr(CacheAccess::name_of(requests[1])));
}

}  // namespace
}  // namespace shardwise
