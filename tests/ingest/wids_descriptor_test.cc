// Wids descriptors: their meaning, and hostile ones (faults.md 42 to 44).

#include "shardwise/ingest/wids_descriptor.h"

#include <filesystem>
#include <map>

#include "base/file.h"
#include "ingest/md5.h"
#include "ingest/remote_shards.h"
#include "ingest/shard_url.h"
#include "ingest/wids_claims.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/source_list.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::TempDir;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

WidsDescriptor parse(const std::string& json) {
  return parse_wids_descriptor(json, "/data/d.json");
}

std::string text_of(const std::string& json) {
  return error_text([&] { parse(json); });
}
std::optional<ErrorCode> code_of(const std::string& json) {
  return error_code([&] { parse(json); });
}

/// Returns a descriptor of one shard with this URL, which must be escaped for JSON.
std::string with_url(const std::string& url) {
  return R"({"wids_version":1,"shardlist":[{"nsamples":1,"url":")" + url + R"("}]})";
}
std::string path_of(const std::string& url) {
  return parse(with_url(url)).datasets.at(0).shards.at(0).path;
}

TEST(WidsDescriptorTest, SaysNameShardsAndTheirClaims) {
  const WidsDescriptor d = parse(R"({
    "__kind__": "wids-shard-index-v1", "wids_version": 1, "name": "train", "info": {"by": ["me"]},
    "shardlist": [
      {"url": "a.tar", "md5sum": "00112233445566778899AABBCCDDEEFF", "nsamples": 3, "filesize": 5},
      {"url": "sub/b.tar", "nsamples": 0, "dataset": "x", "md5sum": null}]})");
  EXPECT_EQ(d.path, "/data/d.json");
  EXPECT_EQ(d.name, "train");
  ASSERT_EQ(d.datasets.size(), 1u);
  const WidsDescriptor::Set& set = d.datasets[0];
  EXPECT_EQ(set.name, "train");
  EXPECT_EQ(set.weight, 1);
  EXPECT_EQ(set.num_samples(), 3u);
  EXPECT_THAT(set.paths(), ElementsAre("/data/a.tar", "/data/sub/b.tar"));
  EXPECT_EQ(set.shards[0].url, "a.tar");
  EXPECT_EQ(set.shards[0].md5, "00112233445566778899aabbccddeeff");
  EXPECT_EQ(set.shards[0].size_bytes, 5u);
  EXPECT_EQ(set.shards[1].md5, std::nullopt);
  EXPECT_EQ(set.shards[1].size_bytes, std::nullopt);
}

TEST(WidsDescriptorTest, RelativeUrlsBeginAtTheNearestBase) {
  const WidsDescriptor d = parse(R"({"wids_version":1,
    "shardlist": [{"url":"a.tar","nsamples":1}, {"url":"../up.tar","nsamples":1},
                  {"url":"/abs/a.tar","nsamples":1}],
    "datasets": [
      {"name":"inherits","shardlist":[{"url":"b.tar","nsamples":1}]},
      {"base":"own","shardlist":[{"url":"c.tar","nsamples":1}]},
      {"base":"/else/where/","shardlist":[{"url":"d.tar","nsamples":1}]}],
    "base": "shards"})");
  ASSERT_EQ(d.datasets.size(), 4u);
  EXPECT_THAT(d.datasets[0].paths(),
              ElementsAre("/data/shards/a.tar", "/data/up.tar", "/abs/a.tar"));
  EXPECT_THAT(d.datasets[1].paths(), ElementsAre("/data/shards/b.tar"));
  EXPECT_THAT(d.datasets[2].paths(), ElementsAre("/data/shards/own/c.tar"));
  EXPECT_THAT(d.datasets[3].paths(), ElementsAre("/else/where/d.tar"));
}

TEST(WidsDescriptorTest, ADescriptorInTheCurrentDirectoryGivesRelativePaths) {
  const WidsDescriptor d = parse_wids_descriptor(with_url("./x/a.tar"), "d.json");
  EXPECT_THAT(d.datasets[0].paths(), ElementsAre("x/a.tar"));
}

TEST(WidsDescriptorTest, FileUrlsAreDecoded) {
  EXPECT_EQ(path_of("file:///x/a%20b.tar"), "/x/a b.tar");
  EXPECT_EQ(path_of("FILE://localhost/x/a.tar"), "/x/a.tar");
  EXPECT_EQ(path_of("file:a.tar"), "/data/a.tar");
  EXPECT_EQ(path_of("a%20b.tar"), "/data/a%20b.tar") << "a path is a path";
  for (const char* url : {"file:///a%2", "file:///a%zz", "file:", "file:///a?x", "file:///a#x"}) {
    EXPECT_THAT(text_of(with_url(url)),
                AllOf(HasSubstr("URL is malformed"), HasSubstr("'" + std::string(url) + "'"),
                      HasSubstr("'/data/d.json', shardlist[0].url")));
  }
}

TEST(WidsDescriptorTest, DataSetsKeepTheirOrderNamesAndWeights) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "sub");
  write_file(dir / "sub/y.json",
             R"({"wids_version":1,"name":"y's own name","weight":9,
                 "shardlist":[{"url":"y.tar","nsamples":2}]})");
  write_file(dir / "d.json", R"({"wids_version":1, "name":"all", "weight": 0.5,
    "shardlist":[{"url":"a.tar","nsamples":1}],
    "datasets":[{"source_url":"sub/y.json","weight":3},
                {"source_url":"sub/y.json","name":"again"},
                {"name":"empty","weight":0,"shardlist":[]}]})");
  const WidsDescriptor d = read_wids_descriptor(dir / "d.json");
  ASSERT_EQ(d.datasets.size(), 4u);
  EXPECT_EQ(d.datasets[0].name, "all");
  EXPECT_EQ(d.datasets[0].weight, 0.5);
  EXPECT_EQ(d.datasets[1].name, "y's own name");
  EXPECT_EQ(d.datasets[1].weight, 3) << "the weight is the reference's";
  EXPECT_THAT(d.datasets[1].paths(), ElementsAre(dir / "sub/y.tar"));
  EXPECT_EQ(d.datasets[2].name, "again");
  EXPECT_EQ(d.datasets[2].weight, 1);
  EXPECT_EQ(d.datasets[3].weight, 0);
}

// Fault under test: tests/faults.md 42.
TEST(WidsDescriptorTest, HostileValuesAreRefusedWithTheirPlace) {
  const auto shard = [](const std::string& members) {
    return R"({"wids_version":1,"shardlist":[{"url":"a","nsamples":1},{)" + members + "}]}";
  };
  const auto set = [](const std::string& members) {
    return R"({"wids_version":1,"datasets":[{)" + members + "}]}";
  };
  const std::string list = R"("shardlist":[{"url":"a","nsamples":1}])";
  const struct {
    std::string json, what, place;
  } cases[] = {
      {shard(R"("url":"b","nsamples":-1)"), "a negative number where a whole number from 0 on",
       "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":1.5)"), "a number with a fraction or too big",
       "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":1e3)"), "a number with a fraction", "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":9223372036854775808)"), "a number too big",
       "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":99999999999999999999999)"), "or too big",
       "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":"7")"), "a string where a whole number",
       "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":null)"), "null where", "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":[7])"), "a list where a number", "shardlist[1].nsamples"},
      {shard(R"("url":"b","nsamples":1,"filesize":-5)"), "a negative", "shardlist[1].filesize"},
      {shard(R"("url":7,"nsamples":1)"), "a number where a string", "shardlist[1].url"},
      {shard(R"("url":{},"nsamples":1)"), "an object where a string", "shardlist[1].url"},
      {shard(R"("url":"","nsamples":1)"), "the URL names no file", "shardlist[1].url"},
      {shard(R"("url":"a\u0000b","nsamples":1)"), "the URL names no file", "shardlist[1].url"},
      {shard(R"("url":"b")"), "a shard without nsamples", "shardlist[1];"},
      {shard(R"("nsamples":1)"), "a shard without a url", "shardlist[1];"},
      {shard(R"("url":"b","nsamples":1,"md5sum":"abc")"), "32 hexadecimal", "shardlist[1].md5sum"},
      {shard(R"("url":"b","url":"c","nsamples":1)"), "a key is repeated", "shardlist[1].url"},
      {shard(R"("url":"b","nsamples":9223372036854775807},{"url":"c","nsamples":1)"),
       "add up to more than 2^63", "shardlist[2].nsamples"},
      {R"({"wids_version":1,"shardlist":[7]})", "a number where an object", "shardlist[0]"},
      {R"({"wids_version":1,"shardlist":{}})", "object where a list", "shardlist"},
      {R"({"wids_version":1,"shardlist":null})", "null where a list", "shardlist"},
      {R"({"wids_version":1,"datasets":"x"})", "string where a list", "datasets"},
      {R"({"wids_version":1,"datasets":[[]]})", "a list where an object", "datasets[0]"},
      {R"({"wids_version":1})", "neither shardlist nor datasets", "d.json'"},
      {R"({"wids_version":1,"shardlist":[]})", "names no shards", "d.json'"},
      {"{" + list + "}", "no wids_version", "d.json'"},
      {R"({"wids_version":1,"source_url":"x.json",)" + list + "}", "outside of datasets",
       "source_url"},
      {set(R"("name":"x")"), "a shardlist nor a source_url", "datasets[0]"},
      {set(R"("source_url":"x.json",)" + list), "shardlist and a source_url", "datasets[0]"},
      {set(R"("datasets":[],)" + list), "data sets in a data set", "datasets[0].datasets"},
      {set(R"("name":7,)" + list), "a number where a string", "datasets[0].name"},
      {set(R"("weight":-1,)" + list), "a negative number", "datasets[0].weight"},
      {set(R"("weight":-0.5,)" + list), "negative", "datasets[0].weight"},
      {set(R"("weight":"1",)" + list), "a string where a number", "datasets[0].weight"},
      {"[]", "a list where an object", "d.json'"},
      {"7", "a number where an object", "d.json'"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(text_of(c.json),
                AllOf(HasSubstr("'/data/d.json'"), HasSubstr(c.what), HasSubstr(c.place)))
        << c.json;
    EXPECT_EQ(code_of(c.json), ErrorCode::kInvalidArgument) << c.json;
  }
}

TEST(WidsDescriptorTest, WhatIsNoJsonIsRefusedWithItsOffset) {
  EXPECT_THAT(text_of(""), AllOf(HasSubstr("not JSON"), HasSubstr("ends where a value"),
                                 HasSubstr("'/data/d.json', offset 0;")));
  EXPECT_THAT(text_of(R"({"wids_version":1,)"), HasSubstr("offset 18"));
  EXPECT_THAT(text_of(with_url("a") + "{}"), HasSubstr("the descriptor is not JSON"));
  EXPECT_THAT(text_of(with_url("a\xff")), HasSubstr("the descriptor is not JSON"));
  EXPECT_THAT(text_of(R"({"wids_version":1,"datasets":[{"weight":1e999)"),
              HasSubstr("the descriptor is not JSON"));
}

TEST(WidsDescriptorTest, AnotherVersionIsRefusedAsSuch) {
  for (const char* version : {"2", "0", "1.0", "\"1\"", "-1", "null"}) {
    const std::string json = std::string(R"({"wids_version":)") + version + R"(,"shardlist":[]})";
    EXPECT_EQ(code_of(json), ErrorCode::kVersionMismatch) << version;
    EXPECT_THAT(text_of(json), HasSubstr("'/data/d.json', wids_version")) << version;
  }
}

TEST(WidsDescriptorTest, DeepNestingIsRefusedWhereverItIs) {
  for (const char* begin : {"", R"({"info":)", R"({"shardlist":[{"x":)"}) {
    std::string json = begin;
    for (int i = 0; i < 1'000'000; ++i) json += i % 2 == 0 ? R"({"a":)" : "[";
    EXPECT_EQ(code_of(json), ErrorCode::kInvalidArgument);
    json = begin + std::string(1'000'000, '[');
    EXPECT_EQ(code_of(json), ErrorCode::kInvalidArgument);
  }
  std::string json =
      R"({"wids_version":1,"info":)" + std::string(70, '[') + std::string(70, ']') + "}";
  EXPECT_THAT(text_of(json), HasSubstr("nested too deep: '/data/d.json'"));
  json = R"({"wids_version":1,"shardlist":[{"url":"a","nsamples":1}],"info":)" +
         std::string(60, '[') + std::string(60, ']') + "}";
  EXPECT_EQ(parse(json).datasets.size(), 1u);
}

TEST(WidsDescriptorTest, HugeFilesAndTooManyDataSetsAreRefused) {
  const TempDir dir;
  write_file(dir / "d.json", "");
  std::filesystem::resize_file(dir / "d.json", (std::uint64_t{256} << 20) + 1);
  EXPECT_THAT(error_text([&] { read_wids_descriptor(dir / "d.json"); }),
              HasSubstr("exceed 256 MiB: '" + dir / "d.json'"));
  std::string json = R"({"wids_version":1,"datasets":[)";
  for (int i = 0; i < 65'537; ++i) json += R"({"shardlist":[]},)";
  EXPECT_THAT(text_of(json), HasSubstr("more than 65,536 data sets"));
}

TEST(WidsDescriptorTest, ReferencesGoOneLevelDeep) {
  const TempDir dir;
  const std::string reference = R"({"wids_version":1,"datasets":[{"source_url":"d.json"}]})";
  write_file(dir / "d.json", reference);
  EXPECT_THAT(
      error_text([&] { read_wids_descriptor(dir / "d.json"); }),
      AllOf(HasSubstr("has no shardlist"), HasSubstr("d.json' from '"), HasSubstr("datasets[0]")));
  write_file(dir / "e.json", R"({"wids_version":1,"datasets":[{"source_url":"none.json"}]})");
  EXPECT_THAT(error_text([&] { read_wids_descriptor(dir / "e.json"); }), HasSubstr("none.json"));
  write_file(dir / "v2.json", R"({"wids_version":2,"shardlist":[]})");
  write_file(dir / "f.json", R"({"wids_version":1,"datasets":[{"source_url":"v2.json"}]})");
  EXPECT_EQ(error_code([&] { read_wids_descriptor(dir / "f.json"); }), ErrorCode::kVersionMismatch);
  write_file(dir / "g.json",
             R"({"wids_version":1,"datasets":[{"source_url":"https://h/x.json"}]})");
  EXPECT_EQ(error_code([&] { read_wids_descriptor(dir / "g.json"); }), ErrorCode::kUnsupported);
}

// Fault under test: tests/faults.md 43.
TEST(WidsDescriptorTest, CommandsAreRefusedAndShellCharactersAreNames) {
  for (const char* url : {"pipe:touch sentinel", "PIPE:touch sentinel", "|touch sentinel"}) {
    EXPECT_EQ(code_of(with_url(url)), ErrorCode::kUnsupported) << url;
    EXPECT_THAT(text_of(with_url(url)),
                AllOf(HasSubstr("is a command"), HasSubstr("'pipe:touch ***'"),
                      HasSubstr("shardlist[0].url")))
        << "what a command says may be a secret";
  }
  EXPECT_EQ(code_of(R"({"wids_version":1,"base":"pipe:x","shardlist":[]})"),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(R"({"wids_version":1,"datasets":[{"source_url":"pipe:x"}]})"),
            ErrorCode::kUnsupported);

  const TempDir dir;
  for (const std::string& name :
       {"$(touch " + dir / "sentinel" + ").tar", "`touch " + dir / "sentinel" + "`.tar",
        "a.tar; touch " + dir / "sentinel", "'; touch " + dir / "sentinel" + " #.tar",
        "a\\ntouch " + dir / "sentinel", std::string("*.tar"), std::string("{0..1}.tar"),
        std::string("@list.txt"), std::string("-")}) {
    write_file(dir / "d.json", with_url(name));
    EXPECT_EQ(error_code([&] { build_index(dir / "x.idx", expand_sources({dir / "d.json"})); }),
              ErrorCode::kNotFound)
        << name;
  }
  EXPECT_THAT(dir.list(), ElementsAre("d.json"));
}

/// A remote source that serves texts by URL.
class TextShards : public RemoteShards {
 public:
  explicit TextShards(std::map<std::string, std::string> texts) : texts_(std::move(texts)) {}
  State state(const std::string& url) override { return {.size_bytes = text(url).size()}; }
  void read(const std::string& url, const State&, std::uint64_t, std::optional<std::uint64_t>,
            const std::function<void(std::string_view)>& take) override {
    take(text(url));
  }
  std::optional<Copy> copy(const std::string&, const State&) override { return std::nullopt; }
  void keep_expanded(const std::string&, const State&, const std::string&, Compression,
                     std::uint64_t) override {}

 private:
  const std::string& text(const std::string& url) const {
    const auto found = texts_.find(url);
    if (found == texts_.end()) throw NotFound("no such URL", url, "");
    return found->second;
  }
  const std::map<std::string, std::string> texts_;
};

TEST(WidsDescriptorTest, ShardsMayBeRemote) {
  for (const char* url : {"http://h/a.tar", "s3://b/a.tar", "gs://b/a.tar"}) {
    const WidsDescriptor descriptor = parse_wids_descriptor(with_url(url), "/data/d.json");
    EXPECT_EQ(descriptor.datasets[0].shards[0].path, url);
  }
  EXPECT_EQ(
      parse_wids_descriptor(
          R"({"wids_version":1,"base":"http://h/x","shardlist":[{"url":"a.tar","nsamples":1}]})",
          "/data/d.json")
          .datasets[0]
          .shards[0]
          .path,
      "http://h/x/a.tar");
  for (const char* url : {"//host/a.tar", "http:///a.tar", "http://h:99999/a.tar"}) {
    EXPECT_EQ(code_of(with_url(url)), ErrorCode::kInvalidArgument) << url;
  }
  EXPECT_THAT(text_of(with_url("file://host/etc/passwd")),
              AllOf(HasSubstr("names another machine"), HasSubstr("'file://host/etc/passwd'")));
  EXPECT_THAT(error_text([] { read_wids_descriptor("http://h/d.json"); }),
              AllOf(HasSubstr("remote descriptor"), HasSubstr("RemoteAccess"),
                    HasSubstr("'http://h/d.json'")));
}

TEST(WidsDescriptorTest, KeysOfObjectsHaveNoQuery) {
  EXPECT_EQ(base_of_reference("gs://bucket/a?b/c#d.json"), "gs://bucket/a?b");
  EXPECT_EQ(base_of_reference("https://host/a/b.json?c/d"), "https://host/a");
  const auto fingerprint = [](const std::string& path) {
    return detail::claimed_fingerprint({{.url = path, .path = path, .num_samples = 1}});
  };
  for (const char* scheme : {"s3", "gs", "az", "hf"}) {
    const std::string folder = std::string(scheme) + "://a/b/";
    EXPECT_NE(fingerprint(folder + "c?1.tar"), fingerprint(folder + "c?2.tar")) << scheme;
    EXPECT_NE(fingerprint(folder + "c#1.tar"), fingerprint(folder + "c#2.tar")) << scheme;
  }
  EXPECT_EQ(fingerprint("https://a/b/c.tar?1"), fingerprint("https://a/b/c.tar?2"));
}

TEST(WidsDescriptorTest, ARemoteDescriptorNamesWhatLiesBesideIt) {
  const auto remote = std::make_shared<TextShards>(std::map<std::string, std::string>{
      {"http://h/x/d.json?token=1", R"({"wids_version":1,
      "shardlist":[{"url":"a.tar","nsamples":1},{"url":"https://g/b.tar","nsamples":1}],
      "datasets":[{"source_url":"sub/e.json"}]})"},
      {"http://h/x/sub/e.json",
       R"({"wids_version":1,"shardlist":[{"url":"c.tar","nsamples":1}]})"}});
  const WidsDescriptor descriptor = read_wids_descriptor("http://h/x/d.json?token=1", remote);
  EXPECT_THAT(descriptor.datasets[0].paths(), ElementsAre("http://h/x/a.tar", "https://g/b.tar"));
  EXPECT_THAT(descriptor.datasets[1].paths(), ElementsAre("http://h/x/sub/c.tar"));
  EXPECT_THAT(expand_sources({"http://h/x/d.json?token=1", "http://h/y-{0..1}.tar"}, remote),
              ElementsAre("http://h/x/a.tar", "https://g/b.tar", "http://h/x/sub/c.tar",
                          "http://h/y-0.tar", "http://h/y-1.tar"));
}

// Fault under test: tests/faults.md 44.
TEST(WidsDescriptorTest, ARemoteDescriptorCannotReachThisMachine) {
  for (const char* url : {"file:///etc/passwd", "file:x", "/etc/passwd", "pipe:cat", "//h/a.tar",
                          "s3://b/a.tar", "gs://b/a.tar"}) {
    const auto remote = std::make_shared<TextShards>(
        std::map<std::string, std::string>{{"https://h/d.json", with_url(url)}});
    const std::string text = error_text([&] { read_wids_descriptor("https://h/d.json", remote); });
    EXPECT_THAT(text, AllOf(HasSubstr(url), HasSubstr("shardlist[0].url"))) << url;
    EXPECT_EQ(error_code([&] { read_wids_descriptor("https://h/d.json", remote); }),
              ErrorCode::kUnsupported)
        << url;
  }
  const auto down = std::make_shared<TextShards>(
      std::map<std::string, std::string>{{"https://h/d.json", with_url("http://h/a.tar")}});
  EXPECT_THAT(error_text([&] { read_wids_descriptor("https://h/d.json", down); }),
              HasSubstr("of another scheme"));
  const auto base = std::make_shared<TextShards>(std::map<std::string, std::string>{
      {"https://h/d.json", R"({"wids_version":1,"base":"/etc","shardlist":[]})"}});
  EXPECT_EQ(error_code([&] { read_wids_descriptor("https://h/d.json", base); }),
            ErrorCode::kUnsupported);
}

TEST(SourceListTest, ADescriptorStandsForItsShardsInOrder) {
  const TempDir dir;
  write_file(dir / "d.json", R"({"wids_version":1,"shardlist":[{"url":"z.tar","nsamples":1}],
    "datasets":[{"shardlist":[{"url":"x[1].tar","nsamples":1},{"url":"a.tar","nsamples":1}]}]})");
  write_file(dir / "list.txt", dir / "d.json" + "\n");
  const auto expected = ElementsAre("first.tar", dir / "z.tar", dir / "x[1].tar", dir / "a.tar");
  EXPECT_THAT(expand_sources({"first.tar", dir / "d.json"}), expected);
  EXPECT_THAT(expand_sources({"first.tar", "@" + dir / "list.txt"}), expected);
  const SourceList list = read_sources({"first.tar", dir / "*.json"});
  EXPECT_THAT(list.shards, expected);
  ASSERT_EQ(list.descriptors.size(), 1u);
  EXPECT_EQ(list.descriptors[0].path, dir / "d.json");
  EXPECT_THAT(error_text([&] {
                expand_sources({dir / "a.tar", dir / "d.json"});
              }),
              HasSubstr("a shard is named twice"));
}

TEST(Md5Test, GivesTheValuesOfRfc1321AndOfLongFiles) {
  const auto md5_of = [&](const std::string& bytes) {
    Md5 md5;
    md5.update(bytes);
    return md5.digest();
  };
  EXPECT_EQ(md5_of(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_of("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5_of(std::string(3'000'000, '\0')), "c9fc2d3dd83ab67a129ac10b09c9ebbb");
}

class WidsClaimsTest : public testing::Test {
 protected:
  WidsClaimsTest() { build_index(dir_ / "x.idx", shards_); }

  std::string check(const std::string& shardlist,
                    const WidsDescriptor::CheckOptions& options = {}) {
    write_file(dir_ / "d.json", R"({"wids_version":1,"shardlist":[)" + shardlist + "]}");
    return error_text([&] {
      check_against_descriptor(*Index::open(dir_ / "x.idx"), read_wids_descriptor(dir_ / "d.json"),
                               options);
    });
  }

  TempDir dir_;
  std::vector<std::string> shards_ = test::write_shards(dir_, 3, 4);
};

TEST_F(WidsClaimsTest, RightOnesPass) {
  const std::string size = std::to_string(std::filesystem::file_size(shards_[0]));
  write_file(dir_ / "d.json", R"({"wids_version":1,"shardlist":[{"url":")" + shards_[0] +
                                  R"(","nsamples":4,"filesize":)" + size + "}]}");
  EXPECT_NO_THROW(check_against_descriptor(*Index::open(dir_ / "x.idx"),
                                           read_wids_descriptor(dir_ / "d.json"), {.md5 = true}));
}

TEST_F(WidsClaimsTest, AWrongCountNamesTheShardAndBoth) {
  const std::string wrong = R"({"url":")" + shards_[1] + R"(","nsamples":5},{"url":")" +
                            shards_[2] + R"(","nsamples":3})";
  EXPECT_THAT(check(wrong),
              AllOf(HasSubstr("'" + shards_[1] + "' has 4 samples, not 5"),
                    HasSubstr("'" + dir_ / "d.json" + "'"), HasSubstr("1 more shard)"),
                    HasSubstr("shardwise export --format wids")));
}

TEST_F(WidsClaimsTest, AWrongSizeOrAShardThatIsNotThereIsAMismatch) {
  EXPECT_THAT(check(R"({"url":")" + shards_[0] + R"(","nsamples":4,"filesize":7})"),
              HasSubstr("bytes long, not 7 as in"));
  EXPECT_THAT(check(R"({"url":"other.tar","nsamples":4})"),
              HasSubstr("other.tar' is not in '" + dir_ / "x.idx"));
}

TEST_F(WidsClaimsTest, Md5IsCheckedOnlyWhenAskedFor) {
  const std::string claim =
      R"({"url":")" + shards_[0] + R"(","nsamples":4,"md5sum":"00000000000000000000000000000000"})";
  std::uint64_t last = 0;
  EXPECT_THAT(
      check(claim, {.md5 = true, .progress = [&](const Progress& at) { last = at.bytes_done; }}),
      AllOf(HasSubstr("'" + shards_[0] + "' has md5 "),
            HasSubstr(", not 00000000000000000000000000000000 as in")));
  EXPECT_EQ(last, std::filesystem::file_size(shards_[0]));
  EXPECT_NO_THROW(check_against_descriptor(*Index::open(dir_ / "x.idx"),
                                           read_wids_descriptor(dir_ / "d.json")));
  const std::atomic<bool> cancel = true;
  EXPECT_THAT(check(claim, {.md5 = true, .cancel = &cancel}), HasSubstr("cancel"));
  test::write_file(shards_[0], "changed");
  EXPECT_THAT(check(claim, {.md5 = true}), HasSubstr("shard changed since"));
}

}  // namespace
}  // namespace shardwise
