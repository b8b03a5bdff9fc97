#include "shardwise/ingest/indexed_shard_writer.h"

#include "index/offset_table.h"
#include "shardwise/index/index.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;
using testing::HasSubstr;

TEST(IndexedShardWriterTest, WhatWasWrittenIsFoundByTheIndex) {
  const TempDir dir;
  IndexedShardWriter writer(dir / "t.idx", dir / "train-%03d.tar", {.max_samples = 10});
  for (int i = 0; i < 25; ++i) {
    const std::string text = "text " + std::to_string(i);
    writer.write("s" + std::to_string(i),
                 std::vector<ShardWriter::Field>{{"txt", text}, {"cls", i % 2 == 0 ? "0" : "1"}});
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "t.idx"));
  const BuildReport report = writer.close();
  EXPECT_EQ(report.summary.num_samples, 25U);
  const auto index = Index::open(dir / "t.idx");
  EXPECT_EQ(index->num_shards(), 3U);
  EXPECT_EQ(index->shard(2).path, dir / "train-002.tar");
  ASSERT_EQ(index->find("s17"), 17U);
  const SegmentView segment = index->segment(1);
  const MemberRecord& member = segment.members(7)[0];
  EXPECT_EQ(segment.field_name(member.field()), "txt");
  EXPECT_EQ(test::read_file(dir / "train-001.tar").substr(member.data_offset(), member.size_bytes),
            "text 17");
}

TEST(IndexedShardWriterTest, WithoutCloseThereIsNoIndex) {
  const TempDir dir;
  const std::vector<ShardWriter::Field> fields = {{"txt", "1"}};
  {
    IndexedShardWriter writer(dir / "t.idx", dir / "%d.tar", {.max_samples = 1});
    writer.write("a", fields);
    writer.write("b", fields);
  }
  EXPECT_THAT(dir.list(), testing::ElementsAre("0.tar"));
  IndexedShardWriter empty(dir / "t.idx", dir / "x%d.tar");
  EXPECT_EQ(test::error_code([&] { empty.close(); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(test::error_text(
                  [&] { IndexedShardWriter(dir / "t.idx", dir / "%d.tar", {.dry_run = true}); }),
              HasSubstr("a dry run makes no index"));
}

}  // namespace
}  // namespace shardwise
