// `shardwise export`, and descriptors as a SOURCE of `shardwise index`.

#include "descriptor_claims.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/source_list.h"
#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ExportCommandTest, WritesAWidsDescriptorThatIsASourceOfTheSameIndex) {
  const SmallIndex index;
  const std::string json = index.dir() / "all.json";
  EXPECT_EQ(shardwise_output({"export", index.path(), "--format", "wids", "-o", json, "--md5",
                              "--name", "all of it"}),
            json + ": 7 samples in 2 shards\n");
  const auto descriptor = nlohmann::json::parse(read_file(json));
  EXPECT_EQ(descriptor["name"], "all of it");
  EXPECT_EQ(descriptor["shardlist"][1]["url"], "b.tar");
  EXPECT_EQ(descriptor["shardlist"][1]["nsamples"], 4);
  EXPECT_EQ(descriptor["shardlist"][1]["md5sum"].get<std::string>().size(), 32u);

  const auto fingerprint = [](const std::string& path) {
    return json_lines(shardwise_output({"info", "--json", path}))[0]["fingerprint"];
  };
  shardwise_output({"index", "-o", index.dir() / "again.idx", json});
  EXPECT_EQ(fingerprint(index.dir() / "again.idx"), fingerprint(index.path()));
}

TEST(ExportCommandTest, WritesDaliFilesAndTellsTheirNames) {
  const SmallIndex index;
  const std::string folder = index.dir() / "dali";
  EXPECT_EQ(shardwise_output({"export", index.path(), "--format", "dali", "-o", folder}),
            folder + ": 7 samples in 2 shards, one file per shard\n");
  EXPECT_THAT(read_file(folder + "/a.idx"), testing::StartsWith("v1.2 3\njpg 512 7 0.jpg cls "));
  const auto report = nlohmann::json::parse(
      shardwise_output({"export", index.path(), "--format", "dali", "--json", "-o", folder}));
  EXPECT_THAT(report["files"], ElementsAre(folder + "/a.idx", folder + "/b.idx"));
  EXPECT_EQ(report["samples"], 7);
}

TEST(ExportCommandTest, ReplacesNothingButWhatItMakes) {
  const SmallIndex index;
  const std::string shard = index.dir() / "a.tar";
  for (const std::string& victim : {index.path(), shard}) {
    const std::string before = read_file(victim);
    expect_failure(shardwise({"export", index.path(), "--format", "wids", "-o", victim}),
                   {"will not replace a file that is no wids descriptor: '" + victim + "'",
                    "choose another name, or remove the file"});
    EXPECT_EQ(read_file(victim), before);
  }
  std::filesystem::copy_file(index.path(), index.dir() / "a.idx");
  expect_failure(shardwise({"export", index.path(), "--format", "dali", "-o", index.dir().path()}),
                 {"will not replace a file that is no DALI index: '" + index.dir() / "a.idx'"});
}

TEST(ExportCommandTest, WrongUsageIsTwoAndFailureIsOne) {
  const SmallIndex index;
  const std::string out = index.dir() / "out";
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"export", index.path(), "-o", out},
        {"export", index.path(), "--format", "csv", "-o", out},
        {"export", index.path(), "--format", "wids"},
        {"export", index.path(), "--format", "dali", "--md5", "-o", out},
        {"export", index.path(), "--format", "dali", "--name", "x", "-o", out}}) {
    EXPECT_EQ(shardwise(wrong).code, 2);
  }
  write_file(index.dir() / "a.tar", small_shard(0, 1));
  for (const char* format : {"wids", "dali"}) {
    const Finished failed = shardwise({"export", index.path(), "--format", format, "-o", out});
    EXPECT_EQ(failed.code, 1);
    EXPECT_THAT(failed.out, IsEmpty());
    EXPECT_THAT(failed.err, AllOf(HasSubstr("a.tar"), HasSubstr("changed since it was indexed"),
                                  HasSubstr("shardwise index")));
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(DescriptorSourceTest, HostileDescriptorsFailWithOneLine) {
  const TempDir dir;
  for (const char* json : {"", "[", R"({"wids_version":2})",
                           R"({"wids_version":1,"shardlist":[{"url":"pipe:true","nsamples":1}]})",
                           R"({"wids_version":1,"shardlist":[{"url":"//h/x","nsamples":1}]})",
                           R"({"wids_version":1,"shardlist":[{"url":"none.tar","nsamples":1}]})"}) {
    write_file(dir / "d.json", json);
    const Finished failed = shardwise({"index", "-o", dir / "x.idx", dir / "d.json"});
    EXPECT_EQ(failed.code, 1) << json;
    EXPECT_EQ(lines_of(failed.err).size(), 1u) << failed.err;
    EXPECT_THAT(failed.err, HasSubstr(dir.path()));
  }
  EXPECT_THAT(dir.list(), ElementsAre("d.json"));
}

TEST(DescriptorSourceTest, ItsClaimsAreHeldAgainstTheIndex) {
  const SmallIndex index;
  const std::string json = index.dir() / "all.json";
  const auto check = [&](bool md5) {
    tools::check_descriptor_claims(*Index::open(index.path()), read_sources({json}).descriptors,
                                   nullptr, md5, true);
  };
  shardwise_output({"export", index.path(), "--format", "wids", "--md5", "-o", json});
  EXPECT_NO_THROW(check(true));
  std::string text = read_file(json);
  text.replace(text.find("\"md5sum\": \"") + 11, 4, "0000");
  write_file(json, text);
  EXPECT_NO_THROW(check(false));
  EXPECT_THAT(error_text([&] { check(true); }), HasSubstr("has md5 "));
  text.replace(text.find("\"nsamples\": 4"), 13, "\"nsamples\": 9");
  write_file(json, text);
  EXPECT_THAT(error_text([&] { check(false); }), HasSubstr("b.tar' has 4 samples, not 9"));
}

}  // namespace
}  // namespace shardwise::test
