// Tests that the programs of examples/ do what their opening comments say.

#include "storage/test_http_server.h"
#include "support/environment.h"
#include "tools/process.h"

namespace shardwise::test {
namespace {

using testing::HasSubstr;

/// Three shards of ten samples with the classes 0, 1 and 2 in turn. Indexes are cached in the
/// test's own folder.
class ExamplesTest : public testing::Test {
 protected:
  static constexpr int kShards = 3;
  static constexpr int kSamples = 10;

  ExamplesTest() {
    environment_.set("XDG_CACHE_HOME", dir_ / "cache");
    std::filesystem::create_directory(dir_ / "data");
    for (int shard = 0; shard < kShards; ++shard) {
      TarBuilder tar;
      for (int i = kSamples * shard; i < kSamples * (shard + 1); ++i) {
        tar.file(std::to_string(i) + ".cls", std::to_string(i % 3));
        tar.file(std::to_string(i) + ".txt", "sample " + std::to_string(i));
      }
      write_file(this->shard(shard), tar.end().bytes());
    }
  }

  std::string shard(int number) const {
    return dir_ / "data/train-" + std::to_string(number) + ".tar";
  }

  static Finished example(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SHARDWISE_EXAMPLES + name);
    return run(std::move(arguments));
  }

  TempDir dir_;
  Environment environment_;
};

TEST_F(ExamplesTest, ReadSamplesReadsByNumberAndByKey) {
  const Finished by_number = example("read_samples", {dir_ / "data"});
  EXPECT_EQ(by_number.out, "30 samples\nsample 15, key 15\n  cls: 1 bytes\n  txt: 9 bytes\n")
      << by_number.err;
  const Finished by_key = example("read_samples", {dir_ / "data", "7"});
  EXPECT_EQ(by_key.out, "30 samples\nsample 7, key 7\n  cls: 1 bytes\n  txt: 8 bytes\n");
  const Finished missing = example("read_samples", {dir_ / "data", "77"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("'77'"));
}

TEST_F(ExamplesTest, ExactEpochResumesOnFewerRanksAndProvesTheEpoch) {
  const Finished finished = example("exact_epoch", {dir_ / "data"});
  EXPECT_EQ(finished.out,
            "stopped after 24 samples\nepoch 0: 30 samples, each exactly once: proven\n")
      << finished.err;
}

TEST_F(ExamplesTest, RemoteShardsFetchesEachShardOnce) {
  TestHttpServer server;
  for (int i = 0; i < kShards; ++i) {
    server.serve("/" + std::to_string(i) + ".tar", {.body = read_file(shard(i))});
  }
  const std::string pattern = server.url("/{0..2}.tar");
  const Finished indexing = example("remote_shards", {pattern, dir_ / "other"});
  EXPECT_EQ(indexing.code, 0) << indexing.err;
  const int gets = server.gets("/1.tar");
  const Finished finished = example("remote_shards", {pattern, dir_ / "shards"});
  EXPECT_EQ(finished.out,
            "epoch 0: 30 samples, 290 bytes; 3 shards fetched so far\n"
            "epoch 1: 30 samples, 290 bytes; 3 shards fetched so far\n")
      << finished.err;
  EXPECT_EQ(server.gets("/1.tar"), gets + 1) << "the index is there, so only the cache fetched it";
}

TEST_F(ExamplesTest, SelectBySqlReadsTheSamplesOfOneClass) {
  const Finished finished =
      example("select_by_sql", {dir_ / "train.idx", "2", shard(0), shard(1), shard(2)});
  EXPECT_THAT(finished.out,
              HasSubstr("class 0: 10 samples\nclass 1: 10 samples\nclass 2: 10 samples\n"))
      << finished.err;
  std::istringstream lines(finished.out.substr(finished.out.rfind("samples\n") + 8));
  std::vector<int> keys;
  for (int key = 0; lines >> key;) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  EXPECT_THAT(keys, testing::ElementsAre(2, 5, 8, 11, 14, 17, 20, 23, 26, 29));
}

}  // namespace
}  // namespace shardwise::test
