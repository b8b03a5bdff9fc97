#include "shardwise/data/dataset.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/shards.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::content_of;
using test::error_code;
using test::error_text;
using test::in_child;
using test::key_of;
using test::Shards;
using test::TarBuilder;
using test::TempDir;
using test::write_file;
using test::wrong_with;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DatasetTest, GivesEverySampleByNumberInShardListOrder) {
  const Shards shards(5, 13);
  const Dataset data = Dataset::open(shards.index_path());
  ASSERT_EQ(data.size(), 65U);
  EXPECT_FALSE(data.empty());
  EXPECT_EQ(wrong_with(data), "");
  for (std::uint64_t i = data.size(); i-- > 0;) {
    const Sample sample = data[i];
    EXPECT_EQ(sample.index(), i);
    EXPECT_EQ(sample["bin"], content_of(i));
    EXPECT_EQ(sample.shard_path(), shards.path(i / 13));
  }
}

TEST(DatasetTest, ADatasetWithoutSamplesIsEmpty) {
  const TempDir dir;
  write_file(dir / "none.tar", TarBuilder().end().bytes());
  build_index(dir / "x.idx", {dir / "none.tar"}, {.threads = 1});
  const Dataset data = Dataset::open(dir / "x.idx");
  EXPECT_TRUE(data.empty());
  EXPECT_EQ(data.find("a"), std::nullopt);
  EXPECT_EQ(error_code([&] { data[0]; }), ErrorCode::kOutOfRange);
}

TEST(DatasetTest, ASampleOutOfRangeSaysHowManyThereAre) {
  const Shards shards(2, 3);
  const Dataset data = Dataset::open(shards.index_path());
  EXPECT_THAT(error_text([&] { data[6]; }),
              AllOf(HasSubstr("sample 6 of '" + shards.index_path() + "'"), HasSubstr("[0, 6)")));
  EXPECT_EQ(error_code([&] { data[6]; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(error_code([&] { data[~std::uint64_t{0}]; }), ErrorCode::kOutOfRange);
  EXPECT_EQ(wrong_with(data), "");
}

TEST(DatasetTest, AMissingIndexIsNotFound) {
  const TempDir dir;
  EXPECT_EQ(error_code([&] { Dataset::open(dir / "none.idx"); }), ErrorCode::kNotFound);
  EXPECT_THAT(error_text([&] { Dataset::open(dir / "none.idx"); }), HasSubstr(dir / "none.idx"));
}

TEST(DatasetTest, FindsEverySampleByKey) {
  const Shards shards(4, 50);
  const Dataset data = Dataset::open(shards.index_path());
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    const auto sample = data.find(key_of(i));
    ASSERT_TRUE(sample.has_value()) << i;
    EXPECT_EQ(sample->index(), i);
    EXPECT_EQ((*sample)["bin"], content_of(i));
    EXPECT_EQ(data.get(key_of(i)).index(), i);
  }
  EXPECT_EQ(data.find(key_of(200)), std::nullopt);
  EXPECT_EQ(data.find(""), std::nullopt);
  EXPECT_EQ(data.find("dir/000001.bin"), std::nullopt);
}

TEST(DatasetTest, AKeyInSeveralShardsGivesTheFirst) {
  const TempDir dir;
  std::vector<std::string> paths;
  for (const std::string name : {"c", "a", "b"}) {
    TarBuilder tar;
    for (int i = 0; i < 30; ++i) tar.file("k" + std::to_string(i) + ".txt", "of shard " + name);
    tar.file("only-" + name + ".txt", name);
    paths.push_back(dir / name + ".tar");
    write_file(paths.back(), tar.end().bytes());
  }
  build_index(dir / "x.idx", paths, {.threads = 1});
  const Dataset data = Dataset::open(dir / "x.idx");
  for (std::uint64_t i = 0; i < 30; ++i) {
    const Sample sample = data.get("k" + std::to_string(i));
    EXPECT_EQ(sample.index(), i);
    EXPECT_EQ(sample["txt"], "of shard c");
  }
  const Sample last = data.get("only-b");
  EXPECT_EQ(last["txt"], "b");
}

TEST(DatasetTest, AKeyThatIsNotThereIsNotFound) {
  const Shards shards(1, 3);
  const Dataset data = Dataset::open(shards.index_path());
  EXPECT_EQ(error_code([&] { data.get("no\nsuch"); }), ErrorCode::kNotFound);
  EXPECT_THAT(error_text([&] { data.get("no\nsuch"); }),
              AllOf(HasSubstr("key 'no\\nsuch': '" + shards.index_path() + "'"),
                    HasSubstr("`shardwise ls`")));
}

TEST(DatasetTest, KeysAndFieldsAreBytes) {
  const TempDir dir;
  write_file(dir / "x.tar", TarBuilder()
                                .file("Andr\xE9/\x01 a\nb.txt", "latin")
                                .file("../../etc/passwd.JPG", "never a path")
                                .end()
                                .bytes());
  build_index(dir / "x.idx", {dir / "x.tar"}, {.threads = 1});
  const Dataset data = Dataset::open(dir / "x.idx");
  const Sample latin = data.get("Andr\xE9/\x01 a\nb");
  EXPECT_EQ(latin["txt"], "latin");
  EXPECT_THAT(latin.describe(), HasSubstr("sample 0 ('Andr\\xe9/\\x01 a\\nb') in shard"));
  const Sample passwd = data.get("../../etc/passwd");
  EXPECT_EQ(passwd["jpg"], "never a path");
}

TEST(DatasetTest, AShardIsMappedWhenItIsFirstTouched) {
  const Shards shards(4, 5);
  const Dataset data = Dataset::open(shards.index_path());
  EXPECT_EQ(data.pool_stats().opened, 0U);
  data[0];
  data[4];
  EXPECT_EQ(data.pool_stats().opened, 1U);
  data[5];
  EXPECT_EQ(data.pool_stats().opened, 2U);
  EXPECT_EQ(data.pool_stats().open_bytes,
            fs::file_size(shards.path(0)) + fs::file_size(shards.path(1)));
}

TEST(DatasetTest, WhatIsMappedCanBeTakenWithoutWaiting) {
  const Shards shards(3, 10);
  const Dataset data = Dataset::open(shards.index_path(), {.max_open_shards = 1});
  const Dataset view = data.subset(std::vector<std::uint64_t>{3, 12});
  EXPECT_EQ(data.try_get(3), std::nullopt);
  EXPECT_EQ(data.pool_stats().opened, 0u) << "it opens nothing";
  const Sample sample = data[2];
  EXPECT_EQ(data.try_get(3)->index(), 3u);
  EXPECT_EQ(view.try_get(0)->index(), 0u);
  EXPECT_EQ(view.try_get(0)->number_in_index(), 3u);
  EXPECT_EQ(view.try_get(1), std::nullopt);
  const Sample kept = *data.try_get(5);
  static_cast<void>(data[25]);
  EXPECT_EQ(kept["bin"], content_of(5)) << "it holds its shard";
  EXPECT_THAT(test::error_text([&] { data.try_get(30); }), HasSubstr("no such sample: sample 30"));

  const Dataset read = Dataset::open(shards.index_path(), {.access = Dataset::Access::kRead});
  static_cast<void>(read[0]);
  EXPECT_EQ(read.try_get(0), std::nullopt) << "its bytes would have to be read";
}

TEST(DatasetTest, CopiesShareOneIndexAndOnePool) {
  const Shards shards(2, 5);
  const Dataset data = Dataset::open(shards.index_path());
  const Dataset copy = data;
  copy[0];
  EXPECT_EQ(data.pool_stats().opened, 1U);
  EXPECT_EQ(&copy.index(), &data.index());
  EXPECT_EQ(copy.fingerprint(), data.index().fingerprint());
}

TEST(DatasetTest, TwoDatasetsMayShareAnIndex) {
  const Shards shards(2, 5);
  const auto index = Index::open(shards.index_path());
  const Dataset first(index);
  const Dataset second(index, {.max_open_shards = 1});
  EXPECT_EQ(wrong_with(first), "");
  EXPECT_EQ(wrong_with(second), "");
  EXPECT_EQ(first.pool_stats().open_shards, 2U);
  EXPECT_EQ(second.pool_stats().open_shards, 1U);
}

// Reading a view into an unmapped shard would end the process.
TEST(DatasetTest, ViewsOutliveEvictionAndTheDataset) {
  const Shards shards(6, 10);
  std::vector<Sample> kept;
  std::vector<std::string_view> views;
  {
    const Dataset data = Dataset::open(shards.index_path(), {.max_open_shards = 1});
    for (std::uint64_t i = 0; i < data.size(); i += 7) {
      kept.push_back(data[i]);
      views.push_back(kept.back()["bin"]);
    }
    for (std::uint64_t i = 0; i < data.size(); ++i) data[i];
    EXPECT_GT(data.pool_stats().opened, 6U - 1);
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(views[i], content_of(7 * i));
    EXPECT_EQ(kept[i].key(), key_of(7 * i));
    EXPECT_EQ(kept[i].integer("cls"), static_cast<std::int64_t>(7 * i % 10));
    EXPECT_THAT(kept[i].describe(), HasSubstr(shards.path(7 * i / 10)));
  }
}

TEST(DatasetTest, ViewsOutliveTheFilesOnDisk) {
  const Shards shards(1, 10);
  const Dataset data = Dataset::open(shards.index_path());
  const Sample sample = data[3];
  for (const auto& entry : fs::directory_iterator(shards.dir().path())) fs::remove(entry);
  EXPECT_EQ(sample["bin"], content_of(3));
  EXPECT_EQ(wrong_with(data), "");
}

TEST(DatasetTest, AnIndexMovesTogetherWithItsShards) {
  const TempDir dir;
  fs::create_directories(dir / "old/shards");
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < 3; ++i) {
    paths.push_back(dir / "old/shards/" + std::to_string(i) + ".tar");
    write_file(paths.back(), test::shard_bytes(10 * i, 10));
  }
  build_index(dir / "old/x.idx", paths, {.threads = 1});
  const Hash128 fingerprint = Dataset::open(dir / "old/x.idx").fingerprint();
  fs::rename(dir / "old", dir / "new");
  const Dataset moved = Dataset::open(dir / "new/x.idx");
  EXPECT_EQ(wrong_with(moved), "");
  EXPECT_EQ(moved.fingerprint(), fingerprint);
}

TEST(DatasetTest, RelativePathsAreOfTheDirectoryAtTheCall) {
  const TempDir dir;
  fs::create_directories(dir / "home/shards");
  fs::create_directories(dir / "elsewhere");
  write_file(dir / "home/shards/0.tar", test::shard_bytes(0, 10));
  write_file(dir / "home/shards/1.tar", test::shard_bytes(10, 10));
  EXPECT_EQ(in_child([&]() -> std::string {
              fs::current_path(dir / "home");
              build_index("x.idx", {"shards/0.tar", "./shards/../shards/1.tar"}, {.threads = 1});
              fs::current_path(dir / "elsewhere");
              const Dataset data = Dataset::open("../home/x.idx");
              if (std::string wrong = wrong_with(data, 0); !wrong.empty()) return wrong;
              fs::current_path("/");
              // The first access to another shard is made from another working directory.
              return wrong_with(data);
            }),
            "");
}

}  // namespace
}  // namespace shardwise
