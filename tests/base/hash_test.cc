#include "shardwise/base/hash.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/hasher.h"
#include "support/support.h"

namespace shardwise {
namespace {

/// Returns the bytes that xxHash's self test hashes.
std::string sanity_buffer(std::size_t size) {
  constexpr std::uint64_t kPrime32 = 2654435761U;
  constexpr std::uint64_t kPrime64 = 11400714785074694797U;
  std::string bytes(size, '\0');
  std::uint64_t generator = kPrime32;
  for (char& byte : bytes) {
    byte = static_cast<char>(generator >> 56);
    generator *= kPrime64;
  }
  return bytes;
}

TEST(HashTest, Hash64GivesThePublishedXxh3Values) {
  struct Golden {
    std::size_t size;
    std::uint64_t value;
  };
  // XXH3 has a code path for each of these lengths. Source: xxHash's self test, seed 0.
  const Golden golden[] = {
      {0, 0x2D06800538D394C2},    {1, 0xC44BDFF4074EECDB},    {6, 0x27B56A84CD2D7325},
      {12, 0xA713DAF0DFBB77E7},   {24, 0xA3FE70BF9D3510EB},   {48, 0x397DA259ECBA1F11},
      {80, 0xBCDEFBBB2C47C90A},   {195, 0xCD94217EE362EC3A},  {403, 0xCDEB804D65C6DEA4},
      {512, 0x617E49599013CB6B},  {2048, 0xDD59E2C3A5F038E0}, {2240, 0x6E73A90539CF2948},
      {2367, 0xCB37AEB9E5D361ED},
  };
  for (const Golden& g : golden) EXPECT_EQ(hash64(sanity_buffer(g.size)), g.value) << g.size;
}

TEST(HashTest, Hash128GivesThePublishedXxh3Values) {
  EXPECT_EQ(to_string(hash128("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_string(hash128("a")), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(to_string(hash128("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(HashTest, ASeedChangesTheValue) {
  EXPECT_EQ(hash64("abc"), hash64("abc", 0));
  EXPECT_NE(hash64("abc", 1), hash64("abc", 0));
  EXPECT_NE(hash64("", 1), hash64("", 0));
}

TEST(HashTest, ToStringKeepsLeadingZeros) {
  EXPECT_EQ(to_string(Hash128{0, 0xA}), "0000000000000000000000000000000a");
  EXPECT_EQ(to_string(Hash128{1, 0}), "00000000000000010000000000000000");
}

TEST(HashTest, AStreamOfPiecesEqualsOneShot) {
  constexpr std::uint64_t kSeed = 20240607;
  RecordProperty("seed", std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 50; ++round) {
    const std::string bytes = sanity_buffer(random() % 5000);
    Hasher128 hasher;
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const std::size_t size = std::min<std::size_t>(random() % 700, rest.size());
      hasher.update(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    EXPECT_EQ(hasher.digest(), hash128(bytes)) << "seed " << kSeed << ", round " << round;
  }
}

TEST(HashTest, DigestDoesNotEndTheStream) {
  Hasher128 hasher;
  EXPECT_EQ(hasher.digest(), hash128(""));
  hasher.update("ab");
  EXPECT_EQ(hasher.digest(), hash128("ab"));
  EXPECT_EQ(hasher.digest(), hash128("ab"));
  hasher.update("c");
  EXPECT_EQ(hasher.digest(), hash128("abc"));
}

TEST(HashTest, ANumberIsEightLittleEndianBytes) {
  Hasher128 hasher;
  hasher.update_u64(0x0807060504030201);
  EXPECT_EQ(hasher.digest(), hash128("\x01\x02\x03\x04\x05\x06\x07\x08"));
}

TEST(HashTest, AHasherCanBeMoved) {
  Hasher128 first;
  first.update("ab");
  Hasher128 second = std::move(first);
  second.update("c");
  first = std::move(second);
  EXPECT_EQ(first.digest(), hash128("abc"));
}

TEST(BytesTest, RangesThatWouldWrapDoNotFit) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  EXPECT_TRUE(range_fits(0, 0, 0));
  EXPECT_TRUE(range_fits(10, 0, 10));
  EXPECT_TRUE(range_fits(3, 7, 10));
  EXPECT_FALSE(range_fits(3, 8, 10));
  EXPECT_FALSE(range_fits(11, 0, 10));
  EXPECT_FALSE(range_fits(kMost, 2, 10));
  EXPECT_FALSE(range_fits(2, kMost, 10));
  EXPECT_TRUE(range_fits(1, kMost - 1, kMost));
}

}  // namespace
}  // namespace shardwise
