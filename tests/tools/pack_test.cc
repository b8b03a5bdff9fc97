#include <algorithm>
#include <filesystem>
#include <set>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void write_below(const std::string& path, const std::string& content) {
  fs::create_directories(fs::path(path).parent_path());
  write_file(path, content);
}

/// "sample key.field=content" of every member of the shards in a folder.
std::vector<std::string> contents_of(const std::string& shards) {
  const TempDir dir;
  shardwise_output({"index", "-o", dir / "x.idx", shards});
  std::vector<std::string> contents;
  for (const auto& member : json_lines(shardwise_output({"ls", "--json", dir / "x.idx"}))) {
    const std::string sample = std::to_string(member["sample"].get<std::uint64_t>());
    const std::string field = member["field"];
    contents.push_back(sample + " " + member["key"].get<std::string>() + "." + field + "=" +
                       shardwise_output({"cat", dir / "x.idx", sample, field}));
  }
  return contents;
}

/// Two classes of five images each.
class PackTest : public testing::Test {
 protected:
  PackTest() {
    for (int i = 0; i < 5; ++i) {
      write_below(dir_ / "in/circle/" + std::to_string(i) + ".png", "c" + std::to_string(i));
      write_below(dir_ / "in/square/" + std::to_string(i) + ".jpg", "s" + std::to_string(i));
    }
  }

  Finished pack(std::vector<std::string> more) const {
    more.insert(more.begin(), "pack");
    return shardwise(more);
  }
  Finished pack_images(const std::string& out, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--images", dir_ / "in", "-o", dir_ / out});
    return pack(std::move(more));
  }
  std::vector<std::string> list(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_ / folder)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const TempDir dir_;
};

TEST_F(PackTest, ImagesBecomeSamplesWithTheirClass) {
  const Finished finished = pack_images("out", {"--max-samples", "4"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("10 samples in 3 shards"), HasSubstr("2 classes")));
  EXPECT_THAT(finished.err, HasSubstr("--shuffle"));
  EXPECT_THAT(list("out"), ElementsAre("classes.json", "shard-000000.tar", "shard-000001.tar",
                                       "shard-000002.tar"));
  EXPECT_EQ(nlohmann::json::parse(read_file(dir_ / "out/classes.json")),
            nlohmann::json::parse(R"({"classes": ["circle", "square"]})"));
  const auto contents = contents_of(dir_ / "out");
  ASSERT_EQ(contents.size(), 20u);
  EXPECT_EQ(contents[0], "0 circle/0.png=c0");
  EXPECT_EQ(contents[1], "0 circle/0.cls=0");
  EXPECT_EQ(contents[18], "9 square/4.jpg=s4");
  EXPECT_EQ(contents[19], "9 square/4.cls=1");
  // Its own list of classes is no stranger.
  for (const char* folder : {"out", "out/"}) {
    const Finished indexed = shardwise({"index", "-o", dir_ / "x.idx", dir_ / folder});
    EXPECT_EQ(indexed.err, "");
  }
  write_file(dir_ / "out/other.json", "{}");
  EXPECT_THAT(shardwise({"index", "-o", dir_ / "x.idx", dir_ / "out"}).err,
              AllOf(HasSubstr("1 file is in the folders"), HasSubstr("other.json")));
}

TEST_F(PackTest, ShufflingMixesTheSamplesTheSameWayForASeed) {
  ASSERT_EQ(pack_images("a", {"--shuffle", "--seed", "1"}).code, 0);
  ASSERT_EQ(pack_images("b", {"--shuffle", "--seed", "1"}).code, 0);
  ASSERT_EQ(pack_images("c", {"--shuffle", "--seed", "2"}).code, 0);
  const std::string shard = "/shard-000000.tar";
  EXPECT_EQ(read_file(dir_ / "a" + shard), read_file(dir_ / "b" + shard));
  EXPECT_NE(read_file(dir_ / "a" + shard), read_file(dir_ / "c" + shard));
  const auto without_number = [](const std::vector<std::string>& contents) {
    std::set<std::string> set;
    for (const std::string& text : contents) set.insert(text.substr(text.find(' ')));
    return set;
  };
  const auto a = contents_of(dir_ / "a");
  EXPECT_EQ(without_number(a), without_number(contents_of(dir_ / "c")));
  EXPECT_EQ(without_number(a).size(), 20u);
}

TEST_F(PackTest, BytesDoNotDependOnTimesOrModes) {
  ASSERT_EQ(pack_images("a").code, 0);
  fs::last_write_time(dir_ / "in/circle/0.png", fs::file_time_type{});
  fs::permissions(dir_ / "in/circle/1.png", fs::perms::owner_all);
  ASSERT_EQ(pack_images("b").code, 0);
  EXPECT_EQ(read_file(dir_ / "a/shard-000000.tar"), read_file(dir_ / "b/shard-000000.tar"));
}

TEST_F(PackTest, DotsInANameDoNotCutItsKey) {
  const std::string folder = dir_ / "in/circle/";
  write_below(folder + "1.5.x.PNG", "dots");
  write_below(folder + "v1.0/a.png", "below");
  write_below(folder + ".hidden.png", "hidden");
  write_below(folder + "notes.txt", "no image");
  const Finished finished = pack_images("out");
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.err, AllOf(HasSubstr("1 file left out"), HasSubstr("notes.txt")));
  EXPECT_THAT(contents_of(dir_ / "out"),
              testing::IsSupersetOf({"1 circle/1_5_x.png=dots", "6 circle/v1.0/a.png=below"}));

  write_below(folder + "1_5_x.jpg", "another");
  const Finished same_key = pack_images("out2");
  EXPECT_EQ(same_key.code, 1);
  EXPECT_THAT(same_key.err,
              AllOf(HasSubstr("1.5.x.PNG"), HasSubstr("1_5_x.jpg"), HasSubstr("rename")));
}

TEST_F(PackTest, FilesAreGroupedByBaseName) {
  const std::string folder = dir_ / "files/";
  write_below(folder + "a.jpg", "1");
  write_below(folder + "a.seg.PNG", "2");
  write_below(folder + "a-b.json", "3");
  write_below(folder + "deep/a.jpg", "4");
  write_below(folder + "README", "no field");
  const Finished finished = pack({"--files", dir_ / "files", "-o", dir_ / "out"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("README"));
  EXPECT_THAT(contents_of(dir_ / "out"),
              ElementsAre("0 a.jpg=1", "0 a.seg.png=2", "1 a-b.json=3", "2 deep/a.jpg=4"));
  EXPECT_THAT(list("out"), ElementsAre("shard-000000.tar"));

  write_below(folder + "a.JPG", "5");
  const Finished twice = pack({"--files", dir_ / "files", "-o", dir_ / "out2"});
  EXPECT_EQ(twice.code, 1);
  EXPECT_THAT(twice.err, AllOf(HasSubstr("a.JPG"), HasSubstr("a.jpg")));
}

TEST_F(PackTest, LongAndForeignNamesArriveWhole) {
  const std::string name(180, 'n');
  write_below(dir_ / "files/" + name + ".jpg", "long");
  write_below(dir_ / "files/d\xc3\xa9j\xc3\xa0.jpg", "utf-8");
  ASSERT_EQ(pack({"--files", dir_ / "files", "-o", dir_ / "out"}).code, 0);
  EXPECT_THAT(contents_of(dir_ / "out"),
              ElementsAre("0 d\xc3\xa9j\xc3\xa0.jpg=utf-8", "1 " + name + ".jpg=long"));
}

TEST_F(PackTest, MaxBytesBoundsEachShard) {
  for (int i = 0; i < 20; ++i) {
    write_below(dir_ / "files/" + std::to_string(i) + ".bin", std::string(3000, 'x'));
  }
  write_below(dir_ / "files/big.bin", std::string(50'000, 'x'));
  ASSERT_EQ(pack({"--files", dir_ / "files", "-o", dir_ / "out", "--max-bytes", "20kB"}).code, 0);
  const auto names = list("out");
  EXPECT_EQ(names.size(), 5u);  // five samples of 3,584 bytes a shard, and the big one alone
  for (const std::string& name : names) {
    EXPECT_THAT(fs::file_size(dir_ / "out/" + name), testing::AnyOf(20'480u, testing::Gt(50'000u)));
  }
}

TEST_F(PackTest, ShardsThatAreThereAreReplacedOnlyByForce) {
  ASSERT_EQ(pack_images("out", {"--max-samples", "2"}).code, 0);
  write_file(dir_ / "out/shard-notes.tar", "not ours");
  const Finished refused = pack_images("out");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr(dir_ / "out"), HasSubstr("--force")));
  EXPECT_EQ(list("out").size(), 7u);
  ASSERT_EQ(pack_images("out", {"--force"}).code, 0);
  EXPECT_THAT(list("out"), ElementsAre("classes.json", "shard-000000.tar", "shard-notes.tar"));
}

TEST_F(PackTest, ForceReplacesOnlyWhatPackWrote) {
  ASSERT_EQ(pack_images("out", {"--max-samples", "4"}).code, 0);
  const std::string theirs = dir_ / "out/shard-000007.tar";
  const auto expect_refused = [&](const std::string& path) {
    const std::string before = read_file(path);
    const std::string first = read_file(dir_ / "out/shard-000000.tar");
    expect_failure(
        pack_images("out", {"--force", "--quiet"}),
        {"the file was not written by `shardwise pack`, and is not replaced: '" + path + "'",
         "move it away, or choose another folder or --prefix"});
    EXPECT_EQ(read_file(path), before);
    EXPECT_EQ(read_file(dir_ / "out/shard-000000.tar"), first) << "nothing is written before";
    EXPECT_EQ(list("out").size(), 5u);
  };
  // A shard of the tests has a time and an owner, as those of tar and Python do.
  std::string of_nobody = small_shard(0, 3);  // as Python's tarfile writes it by default
  const std::string zeros = std::string(7, '0') + '\0';
  of_nobody.replace(108, 16, zeros + zeros).replace(136, 12, std::string(4, '0') + zeros);
  for (const std::string& content :
       {small_shard(0, 3), of_nobody, std::string("notes"), std::string()}) {
    write_file(theirs, content);
    expect_refused(theirs);
  }
  fs::remove(theirs);
  fs::create_symlink(dir_ / "in/circle/0.png", theirs);
  expect_refused(theirs);
  fs::remove(theirs);
  const std::string classes = dir_ / "out/classes.json";
  write_file(dir_ / "out/shard-000003.tar", read_file(dir_ / "out/shard-000002.tar"));
  for (const char* text : {"", "{\"classes\": 7}", "{\"classes\": [], \"mine\": 1}"}) {
    write_file(classes, text);
    expect_refused(classes);
  }
  fs::remove(classes);
  ASSERT_EQ(pack_images("out", {"--force"}).code, 0);
  EXPECT_THAT(list("out"), ElementsAre("classes.json", "shard-000000.tar"));
}

TEST_F(PackTest, NothingToPackIsAnError) {
  fs::create_directory(dir_ / "empty");
  EXPECT_THAT(pack({"--images", dir_ / "empty", "-o", dir_ / "out"}).err,
              HasSubstr("there is no folder of a class"));
  EXPECT_THAT(pack({"--files", dir_ / "empty", "-o", dir_ / "out"}).err, HasSubstr("no file"));
  EXPECT_THAT(pack({"--images", dir_ / "none", "-o", dir_ / "out"}).err,
              AllOf(HasSubstr(dir_ / "none"), HasSubstr("check the path")));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(PackTest, ReportsInJson) {
  const Finished finished = pack_images("out", {"--json", "--quiet"});
  const auto report = nlohmann::json::parse(finished.out);
  EXPECT_EQ(report["samples"], 10);
  EXPECT_EQ(report["members"], 20);
  EXPECT_EQ(report["shards"], 1);
  EXPECT_EQ(report["classes"], 2);
  EXPECT_EQ(report["content_bytes"], 30);
  EXPECT_EQ(report["shard_bytes"], fs::file_size(dir_ / "out/shard-000000.tar"));
  EXPECT_THAT(finished.err, IsEmpty());
}

}  // namespace
}  // namespace shardwise::test
