#include "shardwise/data/repack.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/epoch_audit.h"
#include "support/chain.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::HasSubstr;

/// Writes `num_shards` shards of samples with random sizes and fields, and their index. Keys are
/// unique.
Dataset make_data(const TempDir& dir, int num_shards, test::Dice& dice) {
  std::vector<std::string> shards;
  for (int i = 0; i < num_shards; ++i) {
    TarBuilder tar;
    const std::uint64_t count = dice.between(1, 30);
    for (std::uint64_t j = 0; j < count; ++j) {
      const std::string key = "dir/" + std::to_string(i) + "_" + std::to_string(j);
      tar.file(key + ".cls", std::to_string(dice.below(10)));
      if (dice.flip()) tar.file(key + ".seg.bin", std::string(dice.below(3000), 'b'));
    }
    shards.push_back(dir / (std::to_string(i) + ".tar"));
    test::write_file(shards.back(), tar.end().bytes());
  }
  BuildOptions options;
  options.content.columns = {{"cls", "cls", ""}};
  build_index(dir / "old.idx", shards, options);
  return Dataset::open(dir / "old.idx");
}

using Fields = std::map<std::string, std::string>;

std::map<std::string, Fields> content_of(const Dataset& data) {
  std::map<std::string, Fields> all;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    const Sample sample = data[i];
    Fields& fields = all[std::string(sample.key())];
    EXPECT_TRUE(fields.empty()) << sample.key();
    for (std::size_t j = 0; j < sample.num_fields(); ++j) {
      fields[std::string(sample.field(j).name)] = std::string(sample.field(j).bytes);
    }
  }
  return all;
}

std::vector<std::string> bytes_of(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tar") names.insert(entry.path());
  }
  std::vector<std::string> bytes;
  for (const std::string& name : names) bytes.push_back(test::read_file(name));
  return bytes;
}

/// Random data, conditions, limits and threads; calls are interrupted and continued. Compared with
/// the samples of the data.
TEST(RepackTest, EachSampleIsInOneNewShardWhateverInterruptsTheCall) {
  test::for_each_seed(8, 300, [](std::uint64_t seed) {
    test::Dice dice(seed);
    const TempDir dir;
    const Dataset all = make_data(dir, static_cast<int>(dice.between(1, 6)), dice);
    const Dataset some = dice.flip() ? all : all.where("cls <= 7");
    if (some.empty()) return;
    Repacking::Options options;
    options.max_samples = dice.between(4, 40);
    if (dice.flip()) options.max_bytes = dice.between(3000, 20'000);
    if (dice.flip()) options.shuffle = dice.below(3);
    options.threads = static_cast<unsigned>(dice.below(4));
    const Repacking::Report whole = repack(some, dir / "whole", options);
    EXPECT_EQ(whole.samples, some.size());
    EXPECT_EQ(whole.shards_resumed, 0u);

    const std::uint64_t last = dice.below(whole.shards);
    Repacking::Options broken = options;
    broken.progress = [&](const Progress& at) {
      if (at.shards_done > last) throw Cancelled("enough");
    };
    EXPECT_EQ(test::error_code([&] { repack(some, dir / "parts", broken); }),
              ErrorCode::kCancelled);
    options.threads = static_cast<unsigned>(dice.below(4));
    const Repacking::Report resumed = repack(some, dir / "parts", options);
    EXPECT_GT(resumed.shards_resumed, last);
    EXPECT_EQ(bytes_of(dir / "parts"), bytes_of(dir / "whole"));
    EXPECT_FALSE(std::filesystem::exists(dir / "parts/repack.json"));

    const Dataset repacked = Dataset::open(resumed.index);
    EXPECT_EQ(content_of(repacked), content_of(some));
    if (!options.shuffle) {
      for (std::uint64_t i = 0; i < some.size(); ++i) {
        const Sample now = repacked[i], before = some[i];
        EXPECT_EQ(now.key(), before.key());
      }
    }
    for (std::uint64_t i = 0; i < repacked.index().num_shards(); ++i) {
      const Index::Shard shard = repacked.index().shard(i);
      EXPECT_LE(shard.num_samples, options.max_samples);
      // The end of the archive takes two blocks and the padding to 10 KiB. A larger sample is alone
      // in its shard.
      constexpr std::uint64_t kMaxEnd = 1024 + 10'239;
      const bool fits =
          shard.size_bytes <= kMaxEnd || shard.size_bytes - kMaxEnd <= options.max_bytes;
      EXPECT_TRUE(fits || shard.num_samples == 1) << shard.size_bytes;
    }
    EXPECT_EQ(repacked.numbers("cls").size(), some.size());
  });
}

TEST(RepackTest, AFolderIsNotShared) {
  const TempDir dir;
  test::Dice dice(1);
  const Dataset data = make_data(dir, 3, dice);
  const std::string folder = dir / "out";
  {
    const Repacking running(data, folder, {});
    EXPECT_THAT(test::error_text([&] { repack(data, folder); }), HasSubstr("another process"));
  }
  EXPECT_THAT(test::error_text([&] { repack(data, folder, {.shuffle = 1}); }),
              HasSubstr("other data or options"));
  EXPECT_THAT(test::error_text([&] { repack(data.where("cls < 5"), folder); }),
              HasSubstr("other data or options"));
  repack(data, folder);
  EXPECT_THAT(test::error_text([&] { repack(data, folder); }), HasSubstr("shard-000000.tar"));
  const Repacking::Report again = repack(data, folder, {.max_samples = 10'000, .restart = true});
  EXPECT_EQ(again.shards, 1u);
  EXPECT_EQ(bytes_of(folder).size(), 1u);
  test::write_file(folder + "/shard-000007.tar", std::string(2000, 'x'));
  EXPECT_THAT(test::error_text([&] { repack(data, folder, {.restart = true}); }),
              HasSubstr("shard-000007.tar"));
}

TEST(RepackTest, WhatCannotBeRepackedIsNamed) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("same.txt", "1").end();
  test::write_file(dir / "a.tar", tar.bytes());
  test::write_file(dir / "b.tar", TarBuilder().file("same.txt", "2").end().bytes());
  build_index(dir / "old.idx", {dir / "a.tar", dir / "b.tar"});
  const Dataset data = Dataset::open(dir / "old.idx");
  EXPECT_THAT(test::error_text([&] { repack(data, dir / "out"); }), HasSubstr("key 'same'"));
  EXPECT_EQ(repack(data, dir / "single", {.max_samples = 1}).shards, 2u);
  EXPECT_EQ(test::error_code([&] { repack(data.where("0"), dir / "none"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { repack(data, dir / "other", {.index = dir / "old.idx"}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(repack(data, dir / "dry", {.max_samples = 1, .dry_run = true}).shards, 2u);
  EXPECT_FALSE(std::filesystem::exists(dir / "dry"));
}

}  // namespace
}  // namespace shardwise
