// Tests of writing an offset table that takes long.

#include "index/table_writer.h"

#include <atomic>

#include "index/segment.h"
#include "shardwise/base/error.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;

/// Finishes a table of `num_keys` keys in one shard. `hash_of` returns the hash of each key.
template <class HashOf>
void write_table(std::uint32_t num_keys, bool unique_keys, const CancelToken& cancel,
                 const HashOf& hash_of) {
  const TempDir dir;
  SegmentBuilder builder("x.tar");
  std::vector<std::uint64_t> hashes;
  for (std::uint32_t i = 0; i < num_keys; ++i) {
    builder.begin_sample(std::to_string(i));
    builder.add_member("txt", i * 1024ULL, 1);
    hashes.push_back(hash_of(i));
  }
  TableWriter table(dir / "t.idx");
  table.append(builder.finish(), hashes);
  UniqueKeys unique;
  if (unique_keys) unique.refuse = [](const RepeatedKey&) {};
  table.finish(unique, cancel);
}

TEST(TableWriterTest, SortingManyKeysStopsWhenItIsCancelled) {
  const std::atomic<bool> cancel = true;
  const auto hash_of = [](std::uint64_t i) { return i << 40; };
  EXPECT_THROW(write_table(100'000, false, &cancel, hash_of), Cancelled);
  EXPECT_NO_THROW(write_table(100'000, false, {}, hash_of));
}

TEST(TableWriterTest, SortingKeysOfOneHashStopsWhenItIsCancelled) {
  const std::atomic<bool> cancel = true;
  const auto hash_of = [](std::uint64_t) { return 7; };
  EXPECT_THROW(write_table(30'000, true, &cancel, hash_of), Cancelled);
  EXPECT_NO_THROW(write_table(30'000, true, {}, hash_of));
}

}  // namespace
}  // namespace shardwise
