// A mixture of the data sets of a wids descriptor, by the descriptor's weights. The shares are
// exact.

#include <map>

#include "order/order_test_support.h"
#include "shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise::test {
namespace {

constexpr std::uint64_t kSizes[2] = {30, 50};

/// Two data sets of a descriptor, with weights 3 and 1: 30 samples in two shards, and 50 in one.
class WidsMixtureTest : public testing::Test {
 protected:
  WidsMixtureTest() {
    write_file(dir_ / "a0.tar", shard_bytes(0, 10));
    write_file(dir_ / "a1.tar", shard_bytes(10, 20));
    write_file(dir_ / "b.tar", shard_bytes(1000, 50));
    write_file(dir_ / "b.json",
               R"({"wids_version":1,"shardlist":[{"url":"b.tar","nsamples":50}]})");
    write_file(dir_ / "mix.json", R"({"wids_version":1,"datasets":[
      {"name":"a","weight":3,"shardlist":[{"url":"a0.tar","nsamples":10},
                                          {"url":"a1.tar","nsamples":20}]},
      {"name":"b","weight":1,"source_url":"b.json"}]})");
    const WidsDescriptor descriptor = read_wids_descriptor(dir_ / "mix.json");
    for (const WidsDescriptor::Set& set : descriptor.datasets) {
      const std::string index = dir_ / (set.name + ".idx");
      build_index(index, set.paths());
      data_.push_back(Dataset::open(index));
      parts_.push_back({.num_samples = data_.back().size(), .weight = set.weight});
    }
  }

  TempDir dir_;
  std::vector<Dataset> data_;
  std::vector<Mixture::Part> parts_;
};

TEST_F(WidsMixtureTest, EachDataSetIsExactAndDrawnByItsWeight) {
  ASSERT_EQ(data_.size(), 2u);
  ASSERT_EQ(data_[0].size(), kSizes[0]);
  ASSERT_EQ(data_[1].size(), kSizes[1]);
  std::vector<MixtureSampler> ranks;
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back(kSizes[0] + kSizes[1], Order{.seed = 17, .kind = Mixture{parts_}},
                       RankOptions{.rank = rank, .world_size = 2});
  }
  // There are 16 epochs of 80 draws. 960 draws are from a, i.e. 32 of its epochs; 320 draws are
  // from b, i.e. 6.4 of its epochs. Shares are exact at the end of each block of 256 draws.
  std::map<std::string, int> times[2];
  for (std::uint64_t epoch = 0; epoch < 16; ++epoch) {
    for (MixtureSampler& rank : ranks) {
      rank.set_epoch(epoch);
      while (const auto next = rank.next_split()) {
        const Sample sample = data_[next->dataset][next->sample];
        ++times[next->dataset][std::string(sample.key())];
      }
    }
  }
  const double shares[2] = {0.75, 0.25};
  for (std::uint64_t set = 0; set < 2; ++set) {
    int total = 0;
    EXPECT_EQ(times[set].size(), kSizes[set]);
    int fewest = 1'000'000;
    int most = 0;
    for (const auto& [key, n] : times[set]) {
      total += n;
      fewest = std::min(fewest, n);
      most = std::max(most, n);
    }
    EXPECT_LE(most - fewest, 1) << "no sample comes again before all others came";
    EXPECT_NEAR(total, shares[set] * 1280, 1);
  }
  EXPECT_TRUE(times[0].contains(key_of(0)));
  EXPECT_TRUE(times[1].contains(key_of(1000)));
}

}  // namespace
}  // namespace shardwise::test
