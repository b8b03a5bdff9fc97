// Tests `shardwise export --format dali`.

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::ElementsAre;

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
  std::filesystem::copy_file(index.path(), index.dir() / "a.idx");
  expect_failure(shardwise({"export", index.path(), "--format", "dali", "-o", index.dir().path()}),
                 {"cannot replace", "DALI", "'" + index.dir() / "a.idx'"});
}

}  // namespace
}  // namespace shardwise::test
