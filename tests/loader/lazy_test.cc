// The Loader over the shards of a descriptor, without an index (Dataset::open_lazily).
#include <cstdint>
#include <string>
#include <vector>

#include "data/lazy_dataset.h"
#include "shardwise/loader/loader.h"

namespace shardwise {
namespace {

using test::error_text;
using test::ServedDescriptor;
using ::testing::HasSubstr;

Loader::Options options_with(unsigned threads) {
  return {.columns = {columns::text("txt"), columns::integer("cls"), columns::key()},
          .order = {.seed = 17, .kind = Sharded{}},
          .batch_size = 7,
          .threads = threads};
}

/// Returns the rows of the loader's current epoch as text.
std::vector<std::string> rows_of(Loader& loader, int max_batches = 1000) {
  std::vector<std::string> rows;
  for (int i = 0; i < max_batches; ++i) {
    const auto batch = loader.next();
    if (!batch) break;
    for (std::size_t row = 0; row < batch->size(); ++row) {
      rows.push_back(std::to_string(batch->samples()[row]) + " " +
                     std::string((*batch)["__key__"].text(row)) + " " +
                     std::to_string((*batch)["cls"].values<std::int64_t>()[row]) + " " +
                     std::string((*batch)["txt"].text(row)));
    }
  }
  return rows;
}

TEST(LazyLoaderTest, EpochsAreThoseOfAnIndexAndProven) {
  const ServedDescriptor served;
  Loader expected(served.indexed(), options_with(0));
  for (const unsigned threads : {0U, 3U}) {
    Loader loader(served.open(), options_with(threads));
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      expected.set_epoch(epoch);
      loader.set_epoch(epoch);
      EXPECT_EQ(rows_of(loader), rows_of(expected));
      EXPECT_THAT(loader.prove(), HasSubstr("61 samples, each exactly once: proven"));
    }
  }
  EXPECT_EQ(served.gets(), 16) << "six for the index, and five for each cache";
}

TEST(LazyLoaderTest, ATokenIsTakenByAnotherLazyOneAndRefusedByAnIndex) {
  const ServedDescriptor served;
  Loader whole(served.open(), options_with(2));
  std::vector<std::string> expected = rows_of(whole);
  Loader first(served.open(), options_with(2));
  std::vector<std::string> rows = rows_of(first, 3);
  const std::string token = first.state().to_text();
  Loader second(served.open(), options_with(0));
  second.restore(ResumeToken::from_text(token));
  for (std::string& row : rows_of(second)) rows.push_back(std::move(row));
  EXPECT_EQ(rows, expected);
  Loader indexed(served.indexed(), options_with(0));
  EXPECT_THROW(indexed.restore(ResumeToken::from_text(token)), Mismatch);
}

TEST(LazyLoaderTest, BatchesByLengthNeedAnIndex) {
  const ServedDescriptor served;
  Loader::Options options = options_with(0);
  options.by_length = Loader::ByLength{.field = "txt"};
  EXPECT_THAT(error_text([&] { Loader(served.open(), options); }), HasSubstr("has no index"));
  EXPECT_EQ(served.gets(), 0);
}

TEST(LazyLoaderTest, AWrongClaimReachesTheLoopWhenItsShardDoes) {
  ServedDescriptor served;
  served.shards[4].claim = 29;
  served.write();
  Loader::Options options = options_with(2);
  options.order = {.kind = Sequential{}};
  Loader loader(served.open(), options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next().has_value());
  EXPECT_THAT(error_text([&] { loader.next(); }), HasSubstr("has 30 samples, not 29 as in"));
}

}  // namespace
}  // namespace shardwise
