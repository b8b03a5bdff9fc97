// Runs the fuzz targets on their seeds and on some hundred mutations of them, in every build with
// tests. A target must not throw.

#include <cstdlib>

#include "checksums.h"
#include "index/offset_table.h"
#include "index_files.h"
#include "support/chain.h"
#include "support/support.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

constexpr int kMutations = 400;

/// Makes small random changes, like a fuzzer.
class Mutator : public test::Dice {
 public:
  using Dice::Dice;

  std::string mutated(std::string bytes, const std::string& other) {
    for (std::uint64_t n = 1 + below(4); n > 0; --n) mutate(bytes, other);
    return bytes;
  }

 private:
  void mutate(std::string& bytes, const std::string& other) {
    static constexpr std::array<char, 8> kOdd = {'\0', '\1', '\x7f', '\x80', '\xff', ' ', '0', '"'};
    // The first byte is kept: it is the control byte of most targets.
    if (bytes.size() < 2) bytes += '\0';
    const std::uint64_t at = 1 + below(std::max<std::size_t>(1, bytes.size() - 1));
    switch (below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(number());
        break;
      case 2:
        if (at < bytes.size()) bytes[at] = kOdd[below(kOdd.size())];
        break;
      case 3:
        for (std::uint64_t i = at; i < std::min<std::size_t>(at + 8, bytes.size()); ++i) {
          bytes[i] = static_cast<char>(number());
        }
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        bytes.insert(at, 1 + below(16), kOdd[below(kOdd.size())]);
        break;
      case 6:
        bytes.erase(at, 1 + below(16));
        break;
      default:
        bytes.replace(at, std::min<std::size_t>(512, bytes.size()), other, below(other.size()),
                      512);
        break;
    }
  }
};

class FuzzReplayTest : public testing::TestWithParam<const char*> {};

TEST_P(FuzzReplayTest, SeedsAndMutationsBreakNoPromise) {
  const NamedTarget& target = target_named(GetParam());
  const std::vector<std::string> seeds = target.seeds();
  std::size_t total = 0;
  for (const std::string& seed : seeds) {
    total += seed.size();
    EXPECT_NO_THROW(target.run(seed));
  }
  EXPECT_LT(total, 120'000u) << "seeds are small";
  target.run({});
  Mutator mutator(test::random_seed());
  for (int i = 0; i < kMutations; ++i) {
    const std::string input =
        mutator.mutated(seeds[mutator.below(seeds.size())], seeds[mutator.below(seeds.size())]);
    ASSERT_NO_THROW(target.run(input)) << "mutation " << i << " of " << input.size() << " bytes";
  }
}

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const NamedTarget& target : all_targets()) all.push_back(target.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FuzzReplayTest, testing::ValuesIn(names()),
                         [](const auto& param) { return param.param; });

TEST(FuzzChecksumsTest, WhatIsWholeStaysAsItIs) {
  const IndexFolder& folder = IndexFolder::get();
  std::string table = folder.table_bytes();
  fix_table(table);
  EXPECT_EQ(table, folder.table_bytes());
  for (const std::uint64_t shard : {0U, 1U}) {
    std::string segment = folder.segment_bytes(shard);
    fix_segment(segment);
    EXPECT_EQ(segment, folder.segment_bytes(shard));
  }
}

TEST(FuzzChecksumsTest, BrokenOnesAreMadeRight) {
  const IndexFolder& folder = IndexFolder::get();
  std::string segment = folder.segment_bytes(0);
  segment.back() ^= 1;
  std::string why;
  EXPECT_FALSE(SegmentView::check(segment, &why));
  fix_segment(segment);
  EXPECT_TRUE(SegmentView::check(segment, &why));
  test::TarBuilder tar;
  tar.file("a.jpg", "x").file("b.jpg", "y").end();
  std::string archive = tar.bytes();
  const std::string whole = archive;
  archive[1024 + 150] ^= 1;  // changes the second header's checksum
  fix_tar_headers(archive);
  EXPECT_EQ(archive, whole);
}

}  // namespace
}  // namespace shardwise::fuzz
