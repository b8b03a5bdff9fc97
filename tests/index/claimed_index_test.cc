// Tests of an index without files, made from the claims of a descriptor.
#include "index/claimed_index.h"

#include <random>
#include <vector>

#include "index/segment_of.h"
#include "shardwise/index/query.h"
#include "support/support.h"

namespace shardwise {
namespace {

using detail::ClaimedShard;
using test::error_code;
using test::error_text;

std::shared_ptr<const Index> claimed(std::vector<ClaimedShard> shards) {
  return IndexAccess::make_claimed("train.json", std::move(shards), {1, 2}, {});
}

TEST(ClaimedIndexTest, NumbersSamplesAsTheClaimsAddUp) {
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<ClaimedShard> shards(random() % 30);
    std::vector<std::uint64_t> shard_of;  // the shard of each sample
    std::vector<std::uint64_t> starts{0};
    for (std::size_t i = 0; i < shards.size(); ++i) {
      // Lengths of very different sizes, including 0.
      shards[i] = {"http://host/" + std::to_string(i) + ".tar",
                   random() % 3 == 0 ? 0 : random() % (random() % 5 == 0 ? 3000 : 20), i};
      shard_of.insert(shard_of.end(), shards[i].num_samples, i);
      starts.push_back(shard_of.size());
    }
    const auto index = claimed(shards);
    ASSERT_EQ(index->size(), shard_of.size());
    ASSERT_EQ(index->num_shards(), shards.size());
    EXPECT_EQ(index->shard_starts(), starts);
    for (std::uint64_t sample = 0; sample < shard_of.size(); ++sample) {
      ASSERT_EQ(index->shard_of(sample), shard_of[sample]);
    }
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      const Index::Shard shard = index->shard(i);
      EXPECT_EQ(shard.number, i);
      EXPECT_EQ(shard.path, shards[i].path);
      EXPECT_EQ(shard.url, shards[i].path);
      EXPECT_EQ(shard.size_bytes, i);
      EXPECT_EQ(shard.first_sample, starts[i]);
      EXPECT_EQ(shard.num_samples, shards[i].num_samples);
    }
  }
}

TEST(ClaimedIndexTest, AbsurdClaimsAreNumberedToo) {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 62;
  const auto index = claimed({{"a", kMany}, {"b", 1}, {"c", kMany - 1}});
  EXPECT_EQ(index->size(), 2 * kMany);
  EXPECT_EQ(index->shard_of(kMany - 1), 0u);
  EXPECT_EQ(index->shard_of(kMany), 1u);
  EXPECT_EQ(index->shard_of(2 * kMany - 1), 2u);
}

TEST(ClaimedIndexTest, WhatNeedsRecordsSaysHowToGetThem) {
  const auto index = claimed({{"http://host/0.tar", 7}});
  EXPECT_FALSE(IndexAccess::has_records(*index));
  EXPECT_EQ(index->path(), "train.json");
  EXPECT_EQ(index->num_members(), 0u);
  EXPECT_EQ(index->fingerprint(), (Hash128{1, 2}));
  EXPECT_EQ(index->lookup(), Index::Lookup());
  EXPECT_EQ(index->content(), Index::Content());
  const auto expected =
      testing::AllOf(testing::HasSubstr("has no index"), testing::HasSubstr("'train.json'"),
                     testing::HasSubstr("`shardwise index -o INDEX DESCRIPTOR`"));
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { static_cast<void>(segment_of(*index, 0)); },
           [&] { static_cast<void>(index->find("key")); },
           [&] { static_cast<void>(index->find_all("key")); },
           [&] { static_cast<void>(index->summary()); },
           [&] { static_cast<void>(index->skipped(1)); }, [&] { index->validate(); },
           [&] { Query(index, "SELECT url FROM shards"); },
           [&] { static_cast<void>(select_samples(index, "1")); }}) {
    EXPECT_THAT(error_text(call), expected);
    EXPECT_EQ(error_code(call), ErrorCode::kUnsupported);
  }
  EXPECT_THAT(
      error_text([&] { static_cast<void>(index->shard(1)); }),
      testing::AllOf(testing::HasSubstr("shard 1 of 'train.json'"), testing::HasSubstr("[0, 1)")));
}

}  // namespace
}  // namespace shardwise
