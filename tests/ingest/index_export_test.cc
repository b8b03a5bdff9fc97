#include "shardwise/ingest/index_export.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <sstream>

#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/source_list.h"
#include "shardwise/ingest/wids_descriptor.h"
#include "support/one_tar.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::read_file;
using test::TarBuilder;
using test::TempDir;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Two small shards in a directory, and an index next to them.
class IndexExportTest : public testing::Test {
 protected:
  IndexExportTest() {
    std::filesystem::create_directory(dir_ / "sub");
    write_file(dir_ / "a.tar", TarBuilder()
                                   .file("k/0.JPG", "image")
                                   .file("k/0.seg.png", std::string(700, 'm'))
                                   .file("k/1.jpg", "")
                                   .end()
                                   .bytes());
    write_file(dir_ / "sub/b \"\xc3\xa9\".tar", TarBuilder().file("2.jpg", "x").end().bytes());
    build({dir_ / "a.tar", dir_ / "sub/b \"\xc3\xa9\".tar"});
  }

  void build(const std::vector<std::string>& shards,
             DefectPolicies::OnDefect on_bad = DefectPolicies::OnDefect::kError) {
    build_index(dir_ / "x.idx", shards,
                {.threads = 1, .content = {.policies = DefectPolicies::all(on_bad)}});
    index_ = Index::open(dir_ / "x.idx");
  }

  /// Builds an index of one shard with this name and content.
  void build_one(const std::string& name, const std::string& bytes,
                 DefectPolicies::OnDefect on_bad = DefectPolicies::OnDefect::kError) {
    write_file(dir_ / name, bytes);
    build({dir_ / name}, on_bad);
  }

  TempDir dir_;
  std::shared_ptr<const Index> index_;
};

TEST_F(IndexExportTest, WidsText) {
  write_wids_descriptor(*index_, dir_ / "d.json", {.name = "tr\"ain", .md5 = true});
  EXPECT_EQ(read_file(dir_ / "d.json"), R"({
  "__kind__": "wids-shard-index-v1",
  "wids_version": 1,
  "name": "tr\"ain",
  "shardlist": [
    {"url": "a.tar", "nsamples": 2, "filesize": 4096, "md5sum": "eb7dd78c449713552cd0bfc27eba6893"},
    {"url": "sub/b \"é\".tar", "nsamples": 1, "filesize": 2048, "md5sum": "54053ac22313b2724801544afce62f76"}
  ]
}
)");
  write_wids_descriptor(*index_, dir_ / "sub/d.json");
  EXPECT_EQ(read_file(dir_ / "sub/d.json"), R"({
  "__kind__": "wids-shard-index-v1",
  "wids_version": 1,
  "shardlist": [
    {"url": ")" + dir_ / "a.tar" + R"(", "nsamples": 2, "filesize": 4096},
    {"url": "b \"é\".tar", "nsamples": 1, "filesize": 2048}
  ]
}
)");
}

TEST_F(IndexExportTest, AnIndexOfTheDescriptorIsTheSame) {
  write_wids_descriptor(*index_, dir_ / "d.json", {.md5 = true});
  const SourceList list = read_sources({dir_ / "d.json"});
  build_index(dir_ / "sub/again.idx", list.shards);
  const auto again = Index::open(dir_ / "sub/again.idx");
  EXPECT_EQ(again->fingerprint(), index_->fingerprint());
  ASSERT_EQ(list.descriptors.size(), 1u);
  EXPECT_NO_THROW(check_against_descriptor(*again, list.descriptors[0], {.md5 = true}));
}

TEST_F(IndexExportTest, NamesThatReadAsUrlsAreFoundAgain) {
  std::vector<std::string> shards;
  for (const char* name : {"pipe:x.tar", "|x.tar", "file:x.tar", "a%20b.tar", "-", "@x"}) {
    shards.push_back(dir_ / name);
    write_file(shards.back(), test::TarBuilder().file("1.a", name).end().bytes());
  }
  std::filesystem::create_directory(dir_ / "http:");
  shards.push_back(dir_ / "http:/x.tar");
  write_file(shards.back(), test::TarBuilder().file("1.a", "x").end().bytes());
  build(shards);
  write_wids_descriptor(*index_, dir_ / "d.json");
  EXPECT_THAT(read_file(dir_ / "d.json"), HasSubstr("\"./pipe:x.tar\""));
  EXPECT_EQ(expand_sources({dir_ / "d.json"}), shards);
}

TEST_F(IndexExportTest, WhatWidsWouldReadOtherwiseIsRefused) {
  build_one("latin\xe9.tar", TarBuilder().file("1.a", "x").end().bytes());
  const auto write = [&](const WidsDescriptor::ExportOptions& options) {
    write_wids_descriptor(*index_, dir_ / "d.json", options);
  };
  EXPECT_EQ(error_code([&] { write({}); }), ErrorCode::kUnsupported);
  EXPECT_THAT(error_text([&] { write({}); }),
              AllOf(HasSubstr("path is not UTF-8"), HasSubstr("wids descriptor"),
                    HasSubstr("'" + dir_ / "latin\\xe9.tar'")));
  EXPECT_THAT(error_text([&] { write({.name = "\xe9"}); }), HasSubstr("name is not UTF-8"));
  build_one("bad.tar",
            TarBuilder().file("1.a", "x").file("1.a", "y").file("2.a", "z").end().bytes(),
            DefectPolicies::OnDefect::kSkip);
  EXPECT_THAT(error_text([&] { write({}); }),
              AllOf(HasSubstr("left out"), HasSubstr("x.idx"), HasSubstr("ls --left-out")));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "d.json"));
}

TEST_F(IndexExportTest, WhatWidsOwnTarReaderReadsOtherwiseIsRefused) {
  const auto text = [&] {
    EXPECT_EQ(error_code([&] { write_wids_descriptor(*index_, dir_ / "d.json"); }),
              ErrorCode::kUnsupported);
    return error_text([&] { write_wids_descriptor(*index_, dir_ / "d.json"); });
  };
  const std::string one = TarBuilder().file("1.a", "x").end().bytes();
  build_one("c.tar.gz", test::compress(one, Compression::kGzip));
  EXPECT_THAT(text(), AllOf(HasSubstr("the shard is compressed"), HasSubstr("c.tar.gz'"),
                            HasSubstr("expand the shard")));
  build_one("m.tar", one + TarBuilder().file("2.a", "x").end().bytes());
  EXPECT_THAT(text(), AllOf(HasSubstr("the shard holds several archives"), HasSubstr("m.tar'")));
  write_file(dir_ / "h.tar",
             TarBuilder().file("1.a", "x").entry("2.a", '1', "", "1.a").end().bytes());
  build_index(dir_ / "x.idx", {dir_ / "h.tar"},
              {.content = {.policies = {.link = DefectPolicies::OnLink::kResolve}}});
  index_ = Index::open(dir_ / "x.idx");
  EXPECT_THAT(text(), AllOf(HasSubstr("member is a hard link"), HasSubstr("h.tar', '2.a'"),
                            HasSubstr("without links")));
  const std::string name = std::string(99, 'n') + ".a";
  build_one("l.tar", TarBuilder().pax({{"path", name}}).file("short.a", "x").end().bytes());
  EXPECT_THAT(text(), AllOf(HasSubstr("name of the member"), HasSubstr("more than 100 bytes"),
                            HasSubstr("l.tar', '" + name)));
  build_one("l.tar", TarBuilder().file(name.substr(1), "x").end().bytes());
  EXPECT_NO_THROW(write_wids_descriptor(*index_, dir_ / "d.json")) << "100 bytes are read";
  build_one("u.tar", TarBuilder().file("\xe9.a", "x").end().bytes());
  EXPECT_THAT(text(), AllOf(HasSubstr("not UTF-8"), HasSubstr("u.tar', '\\xe9.a'")));
  write_file(dir_ / "t.tar", TarBuilder()
                                 .file("1.a", "x")
                                 .file("2.a", "x")
                                 .file("1.b", "x")
                                 .file("2.a", "y")
                                 .end()
                                 .bytes());
  build_index(dir_ / "x.idx", {dir_ / "t.tar"},
              {.content = {.policies = {.repeated_key = DefectPolicies::OnDefect::kKeep}}});
  index_ = Index::open(dir_ / "x.idx");
  EXPECT_THAT(text(),
              AllOf(HasSubstr("occurs twice"), HasSubstr("t.tar', '2.a'"), HasSubstr("rename")));
}

TEST_F(IndexExportTest, OnlyFilesOfTheSameKindAreReplaced) {
  const auto wids = [&](const std::string& path) {
    return [this, path] { write_wids_descriptor(*index_, path); };
  };
  std::filesystem::create_directory(dir_ / "dali");
  const auto dali = [&] { write_dali_index(*index_, dir_ / "dali"); };
  const auto expect_refused = [&](const auto& write, const std::string& path,
                                  const std::string& kind) {
    const std::string before = read_file(path);
    EXPECT_EQ(error_code(write), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error_text(write), AllOf(HasSubstr("not a " + kind), HasSubstr("'" + path + "'"),
                                         HasSubstr("another name"), HasSubstr("remove the file")));
    EXPECT_EQ(read_file(path), before);
  };
  expect_refused(wids(dir_ / "x.idx"), dir_ / "x.idx", "wids descriptor");
  expect_refused(wids(dir_ / "a.tar"), dir_ / "a.tar", "wids descriptor");
  for (const char* text : {"{}", "[1]", "notes", "{\"wids_version\": 1"}) {
    write_file(dir_ / "o.json", text);
    expect_refused(wids(dir_ / "o.json"), dir_ / "o.json", "wids descriptor");
  }
  write_file(dir_ / "o.json",
             R"( {"wids_version":1,"shardlist":[{"url":"gone.tar","nsamples":1}]})");
  EXPECT_NO_THROW(wids(dir_ / "o.json")());
  EXPECT_NO_THROW(wids(dir_ / "o.json")()) << "its own";
  write_file(dir_ / "empty.json", "");
  EXPECT_NO_THROW(wids(dir_ / "empty.json")()) << "nothing is lost";

  for (const char* text : {"v1", "v1.2", "v2.0 1\n", "SQLite format 3", "v1.2 x"}) {
    write_file(dir_ / "dali/b \"\xc3\xa9\".idx", text);
    expect_refused(dali, dir_ / "dali/b \"\xc3\xa9\".idx", "DALI index");
    EXPECT_FALSE(std::filesystem::exists(dir_ / "dali/a.idx")) << "all are looked at first";
  }
  write_file(dir_ / "dali/b \"\xc3\xa9\".idx", "v1.1 7\n");
  EXPECT_NO_THROW(dali());
  EXPECT_NO_THROW(dali()) << "its own";
}

TEST_F(IndexExportTest, APartIsNoDescriptorOfTheWhole) {
  build_index(dir_ / "x.idx", {dir_ / "a.tar", dir_ / "sub/b \"\xc3\xa9\".tar"},
              {.part = BuildOptions::Part{1, 2}});
  index_ = Index::open(dir_ / "x.idx");
  EXPECT_EQ(error_code([&] { write_wids_descriptor(*index_, dir_ / "d.json"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_text([&] { write_wids_descriptor(*index_, dir_ / "d.json"); }),
              AllOf(HasSubstr("the index is part 1/2"), HasSubstr("shardwise merge")));
  EXPECT_EQ(write_dali_index(*index_, dir_ / "dali").size(), 1u) << "a file a shard";
}

TEST_F(IndexExportTest, AShardThatChangedIsNotExported) {
  write_file(dir_ / "a.tar", TarBuilder().file("1.a", "x").end().bytes());
  EXPECT_EQ(error_code([&] { write_wids_descriptor(*index_, dir_ / "d.json"); }),
            ErrorCode::kStaleIndex);
  EXPECT_EQ(error_code([&] { write_dali_index(*index_, dir_ / "dali"); }), ErrorCode::kStaleIndex);
  EXPECT_THAT(dir_.list(), Not(testing::Contains(testing::AnyOf("d.json", "dali"))));
}

TEST_F(IndexExportTest, CancellingLeavesNothing) {
  const std::atomic<bool> cancel = true;
  EXPECT_EQ(
      error_code([&] { write_wids_descriptor(*index_, dir_ / "d.json", {.cancel = &cancel}); }),
      ErrorCode::kCancelled);
  EXPECT_EQ(error_code([&] { write_dali_index(*index_, dir_ / "dali", &cancel); }),
            ErrorCode::kCancelled);
  EXPECT_THAT(dir_.list(), Not(testing::Contains(testing::AnyOf(HasSubstr("json"), "dali"))));
}

TEST_F(IndexExportTest, DaliText) {
  EXPECT_THAT(write_dali_index(*index_, dir_ / "dali"),
              ElementsAre(dir_ / "dali/a.idx", dir_ / "dali/b \"\xc3\xa9\".idx"));
  EXPECT_EQ(read_file(dir_ / "dali/a.idx"),
            "v1.2 2\n"
            "jpg 512 5 k/0.jpg seg.png 1536 700 k/0.seg.png\n"
            "jpg 3072 0 k/1.jpg\n");
  EXPECT_EQ(read_file(dir_ / "dali/b \"\xc3\xa9\".idx"), "v1.2 1\njpg 512 1 2.jpg\n");
  EXPECT_NO_THROW(write_dali_index(*index_, dir_ / "dali")) << "may be there already";
}

TEST_F(IndexExportTest, DaliFilesAreNamedLikeTheShardWithoutTheQueryOfAUrl) {
  const std::pair<const char*, const char*> kNames[] = {
      {"https://host/d/a.tar", "a.idx"},       {"https://host/d/a.tar?version=2#part", "a.idx"},
      {"https://host/d/a.tar#part?", "a.idx"}, {"s3://bucket/d/what?.tar", "what?.idx"},
      {"gs://bucket/a?b/c#1.tar", "c#1.idx"},  {"s3://bucket/d/a.tar?", "a.tar?.idx"}};
  for (const auto& [url, name] : kNames) {
    std::filesystem::remove(dir_ / "x.idx");
    build_index(dir_ / "x.idx", {url}, {.remote = std::make_shared<test::OneTar>()});
    EXPECT_THAT(write_dali_index(*Index::open(dir_ / "x.idx"), dir_ / "dali"),
                ElementsAre(dir_ / "dali/" + name))
        << url;
  }
}

TEST_F(IndexExportTest, DaliOffsetsPointAtTheMembersBytes) {
  const auto shards = test::write_shards(dir_, 2, 5);
  build(shards);
  const auto paths = write_dali_index(*index_, dir_ / "dali");
  ASSERT_EQ(paths.size(), 2u);
  int sample = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string shard = read_file(shards[i]);
    std::istringstream in(read_file(paths[i]));
    std::string version, field, name;
    std::size_t count = 0, offset = 0, size = 0;
    in >> version >> count;
    EXPECT_EQ(count, 5u);
    for (; in >> field >> offset >> size >> name; sample += field == "cls" ? 1 : 0) {
      EXPECT_EQ(shard.substr(offset, size),
                field == "cls" ? std::to_string(sample % 10) : "text " + std::to_string(sample));
      EXPECT_THAT(name, HasSubstr("." + field));
    }
  }
  EXPECT_EQ(sample, 10);
}

TEST_F(IndexExportTest, WhatDaliCannotReadIsRefused) {
  const auto text = [&] { return error_text([&] { write_dali_index(*index_, dir_ / "dali"); }); };
  build_one("w.tar", TarBuilder().file("a b.jpg", "x").end().bytes());
  EXPECT_THAT(text(), AllOf(HasSubstr("name of the member"), HasSubstr("white space"),
                            HasSubstr("w.tar', 'a b'")));
  build_one("w.tar", TarBuilder().file("a.j\tpg", "x").end().bytes());
  EXPECT_THAT(text(), HasSubstr("w.tar', 'j\\tpg'"));
  build_one("c.tar.gz",
            test::compress(TarBuilder().file("1.a", "x").end().bytes(), Compression::kGzip));
  EXPECT_THAT(text(), AllOf(HasSubstr("the shard is compressed"), HasSubstr("c.tar.gz'"),
                            HasSubstr("expand the shard")));
  build_one("e.tar", TarBuilder().entry("folder/", '5', "").end().bytes());
  EXPECT_THAT(text(), AllOf(HasSubstr("the shard has no samples"), HasSubstr("e.tar'")));
  write_file(dir_ / "sub/a.tar", TarBuilder().file("3.jpg", "x").end().bytes());
  build({dir_ / "a.tar", dir_ / "sub/a.tar"});
  EXPECT_THAT(text(),
              AllOf(HasSubstr("two shards"), HasSubstr("one index file"), HasSubstr("'a.idx'"),
                    HasSubstr("/a.tar' and '"), HasSubstr("sub/a.tar'")));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "dali"));
  build({dir_ / "a.tar"});
  EXPECT_THAT(error_text([&] { write_dali_index(*index_, dir_ / "no/such"); }),
              HasSubstr("cannot make the folder"));
}

}  // namespace
}  // namespace shardwise
