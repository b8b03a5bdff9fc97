#include "index/key_index.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "support/chain.h"
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

TEST(KeyIndexTest, KeptEntriesGiveTheSectionOfANewIndex) {
  test::for_each_seed(50, 2000, [](std::uint64_t seed) {
    const test::TempDir dir;
    test::Dice dice(seed);
    const std::uint64_t num_old = dice.below(400);
    std::vector<std::uint64_t> hashes(num_old);
    // Few different hashes, some of which have the same bucket and tag.
    for (std::uint64_t& hash : hashes) hash = dice.below(64) << 58 | dice.below(3) << 2;
    const auto write = [&](const std::string& name, const std::vector<std::uint64_t>& samples,
                           const KeptKeys* kept) {
      KeySorter sorter(dir / name);
      for (std::uint64_t i = 0; i < samples.size(); ++i) {
        if (samples[i] != KeptKeys::kGone) sorter.add(samples[i], i);
      }
      File file = File::open_or_create(dir / name);
      std::uint64_t before = 0;
      const WrittenKeys written =
          write_keys(file, 0, sorter, kept, [&](std::uint64_t prefix, std::uint64_t) {
            EXPECT_LE(before, prefix);
            before = prefix;
          });
      return written.bucket_bits;
    };
    const std::uint32_t bits = write("old", hashes, nullptr);
    const std::string bytes = test::read_file(dir / "old");
    std::vector<std::uint64_t> words(bytes.size() / 8);
    std::memcpy(words.data(), bytes.data(), bytes.size());

    // Some samples are gone, the others get new numbers in any order, and there are new ones.
    std::vector<std::uint64_t> numbers(num_old + dice.below(9));
    std::iota(numbers.begin(), numbers.end(), 0);
    dice.shuffle(numbers);
    std::vector<std::uint64_t> all(numbers.size()), added(numbers.size(), KeptKeys::kGone);
    KeptKeys kept{KeyIndex(words.data(), bits, num_old), 0, {}};
    std::vector<std::uint64_t> new_numbers(num_old, KeptKeys::kGone);
    for (std::uint64_t i = 0; i < numbers.size(); ++i) {
      const bool is_kept = i < num_old && !dice.one_in(20);
      all[numbers[i]] = is_kept ? hashes[i] : dice.below(64) << 58;
      if (is_kept) {
        new_numbers[i] = numbers[i];
        ++kept.num_kept;
      } else {
        added[numbers[i]] = all[numbers[i]];
      }
    }
    kept.new_number = [&](std::uint64_t sample) { return new_numbers[sample]; };
    if (KeyHash::bucket_bits(all.size()) != bits) return;
    write("new", all, nullptr);
    write("updated", added, &kept);
    EXPECT_EQ(test::read_file(dir / "updated"), test::read_file(dir / "new"));
  });
}

TEST(KeyIndexTest, AnEntryOfASampleThatDoesNotExistIsDamage) {
  const test::TempDir dir;
  for (const std::uint64_t sample : {1U, 2U}) {
    KeySorter sorter(dir / "a.idx");
    sorter.add(0, 0);
    sorter.add(7, sample);
    File file = File::open_or_create(dir / std::to_string(sample));
    const WrittenKeys written =
        write_keys(file, 0, sorter, nullptr, [](std::uint64_t, std::uint64_t) {});
    const std::string bytes = test::read_file(dir / std::to_string(sample));
    std::vector<std::uint64_t> words(bytes.size() / 8);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    const KeyIndex keys(words.data(), written.bucket_bits, 2);
    EXPECT_EQ(keys.is_intact(written.checksum), sample < 2) << "all hashes are right";
  }
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
