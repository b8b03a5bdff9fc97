#include <string>
#include <vector>

#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/tar/shard_writer.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;

TEST(WrittenShardsTest, AnIndexOfThePathsFindsWhatWasWritten) {
  const TempDir dir;
  ShardWriter writer(dir / "train-%03d.tar", {.max_samples = 10});
  for (int i = 0; i < 25; ++i) {
    const std::string text = "text " + std::to_string(i);
    writer.write("s" + std::to_string(i),
                 std::vector<ShardWriter::Field>{{"txt", text}, {"cls", i % 2 == 0 ? "0" : "1"}});
  }
  writer.close();
  EXPECT_EQ(build_index(dir / "t.idx", writer.paths()).summary.num_samples, 25U);
  const auto index = Index::open(dir / "t.idx");
  EXPECT_EQ(index->num_shards(), 3U);
  EXPECT_EQ(index->shard(2).path, dir / "train-002.tar");
  ASSERT_EQ(index->find("s17"), 17U);
  const SegmentView segment = segment_of(*index, 1);
  const MemberRecord& member = segment.members(7)[0];
  EXPECT_EQ(segment.field_name(member.field()), "txt");
  EXPECT_EQ(test::read_file(dir / "train-001.tar").substr(member.data_offset(), member.size_bytes),
            "text 17");
}

}  // namespace
}  // namespace shardwise
