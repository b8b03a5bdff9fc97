#include "index/key_index.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "support/support.h"

namespace shardwise {
namespace {

TEST(KeySorterTest, SpilledRunsMergeToTheSameOrderAsOneBuffer) {
  const test::TempDir dir;
  std::mt19937_64 random(7);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> expected;
  KeySorter in_memory(dir / "a.idx");
  KeySorter spilling(dir / "a.idx", 100);
  for (std::uint64_t i = 0; i < 12345; ++i) {
    const std::uint64_t hash = random() % 1000 << 50;  // many hashes are equal
    expected.emplace_back(hash, i);
    in_memory.add(hash, i);
    spilling.add(hash, i);
  }
  EXPECT_TRUE(dir.list().empty()) << "a process that is killed leaves no spill file";
  std::sort(expected.begin(), expected.end());
  for (KeySorter* sorter : {&in_memory, &spilling}) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> got;
    sorter->drain(
        [&](std::uint64_t hash, std::uint64_t sample) { got.emplace_back(hash, sample); });
    EXPECT_EQ(got, expected);
  }
}

TEST(KeySorterTest, ASpillFileThatHasBecomeShorterIsAnError) {
  const test::TempDir dir;
  constexpr std::uint64_t kPairs = 100'000;  // each run is longer than one read buffer
  KeySorter sorter(dir / "a.idx", 50'000);
  for (std::uint64_t i = 0; i < kPairs; ++i) sorter.add(i, i);
  // The file has no name, so it is searched among this process's open files.
  const auto cut = [&] {
    bool is_cut = false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry, gone).string();
      if (target.starts_with(dir / "")) is_cut = ::truncate(entry.path().c_str(), 5000) == 0;
    }
    return is_cut;
  };
  std::uint64_t taken = 0;
  const auto take = [&](std::uint64_t, std::uint64_t) {
    if (++taken == 1) {
      EXPECT_TRUE(cut());
    }
  };
  EXPECT_EQ(test::error_code([&] { sorter.drain(take); }), ErrorCode::kIo);
  EXPECT_LT(taken, kPairs);
}

TEST(KeyHashTest, BucketAndTagTakeTheTopBits) {
  EXPECT_EQ(KeyHash::bucket_bits(0), 0U);
  EXPECT_EQ(KeyHash::bucket_bits(8), 0U);
  EXPECT_EQ(KeyHash::bucket_bits(9), 1U);
  EXPECT_EQ(KeyHash::bucket_bits(1 << 20), 17U);
  constexpr std::uint64_t kHash = 0xABCDEF0123456789;
  EXPECT_EQ(KeyHash::bucket(kHash, 0), 0U);
  EXPECT_EQ(KeyHash::tag(kHash, 0), 0xABCDEFU);
  EXPECT_EQ(KeyHash::bucket(kHash, 8), 0xABU);
  EXPECT_EQ(KeyHash::tag(kHash, 8), 0xCDEF01U);
}

}  // namespace
}  // namespace shardwise
