#include "index/segment.h"

#include <cstring>

#include "shardwise/base/hash.h"
#include "support/support.h"

namespace shardwise {
namespace {

using testing::HasSubstr;

SegmentBuilder small() {
  SegmentBuilder builder("x.tar");
  builder.begin_sample("a");
  builder.add_member("JPG", 512, 100);
  builder.add_member("cls", 1536, 1);
  builder.begin_sample("dir/b");
  builder.add_member("cls", 2560, 2);
  return builder;
}

TEST(SegmentTest, WhatWasPutInComesOut) {
  const std::string bytes = small().finish();
  std::string why;
  const auto view = SegmentView::check(bytes, &why);
  ASSERT_TRUE(view) << why;
  ASSERT_EQ(view->num_samples(), 2U);
  EXPECT_EQ(view->key(0), "a");
  EXPECT_EQ(view->key(1), "dir/b");
  ASSERT_EQ(view->members(0).size(), 2U);
  EXPECT_EQ(view->field_name(view->members(0)[0].field()), "jpg") << "fields are lower-cased";
  EXPECT_EQ(view->members(0)[0].data_offset(), 512U);
  EXPECT_EQ(view->members(0)[1].size_bytes, 1U);
  EXPECT_EQ(view->field_name(view->members(1)[0].field()), "cls");
  EXPECT_EQ(SegmentView::find_key(bytes, 1), "dir/b");
  EXPECT_EQ(SegmentView::find_key(bytes, 2), std::nullopt);
  EXPECT_TRUE(view->fits_shard(2562));
  EXPECT_FALSE(view->fits_shard(2561));
}

TEST(SegmentTest, TheBytesOfFormatVersion1DoNotChange) {
  const std::string bytes = small().finish();
  EXPECT_EQ(bytes.size(), 136U);
  EXPECT_EQ(to_string(hash128(bytes)), "f354c2561e145fc72dd6f2054a4a1726");
}

TEST(SegmentTest, AFieldComesOnceInASample) {
  SegmentBuilder builder("x.tar");
  builder.begin_sample("a");
  EXPECT_TRUE(builder.add_member("jpg", 512, 1));
  EXPECT_FALSE(builder.add_member("Jpg", 1536, 1));
  EXPECT_EQ(builder.num_members(), 1U);
}

TEST(SegmentTest, ManyDifferentFieldsKeepTheirNames) {
  SegmentBuilder builder("x.tar");
  for (int i = 0; i < 1000; ++i) {
    builder.begin_sample("k" + std::to_string(i));
    builder.add_member("f" + std::to_string(i % 500), static_cast<std::uint64_t>(i + 1) * 512, 1);
  }
  const std::string bytes = builder.finish();
  std::string why;
  const auto view = SegmentView::check(bytes, &why);
  ASSERT_TRUE(view) << why;
  EXPECT_EQ(view->num_fields(), 500U);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(view->field_name(view->members(i)[0].field()), "f" + std::to_string(i % 500));
  }
}

TEST(SegmentTest, DroppedSamplesLeaveTheOthersWhole) {
  SegmentBuilder builder = small();
  builder.begin_sample("c");
  builder.add_member("txt", 4096, 7);
  builder.drop_samples({false, true, false});
  const std::string bytes = builder.finish();
  std::string why;
  const auto view = SegmentView::check(bytes, &why);
  ASSERT_TRUE(view) << why;
  ASSERT_EQ(view->num_samples(), 2U);
  EXPECT_EQ(view->key(1), "c");
  EXPECT_EQ(view->members(1)[0].size_bytes, 7U);
}

TEST(SegmentTest, EveryFlippedByteAndEveryCutIsNoticed) {
  const std::string whole = small().finish();
  std::string why;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      EXPECT_FALSE(SegmentView::check(bytes, &why)) << "byte " << i;
    }
    EXPECT_FALSE(SegmentView::check(std::string_view(whole).substr(0, i), &why)) << "cut at " << i;
  }
}

TEST(SegmentTest, HostileRecordsWithARightChecksumAreRefused) {
  // Rewrites a 32-bit word and makes the checksum right again: what an attacker would do.
  const auto forged = [](std::size_t at, std::uint32_t value) {
    std::string bytes = small().finish();
    std::memcpy(bytes.data() + at, &value, sizeof value);
    const std::uint64_t checksum =
        hash64(std::string_view(bytes).substr(40), hash64(std::string_view(bytes).substr(0, 32)));
    std::memcpy(bytes.data() + 32, &checksum, sizeof checksum);
    return bytes;
  };
  constexpr std::size_t kSamples = 40;
  constexpr std::size_t kMembers = kSamples + 3 * 8;
  constexpr std::size_t kFieldEnds = kMembers + 3 * 16;
  std::string why;
  EXPECT_TRUE(SegmentView::check(forged(kMembers, 100), &why))
      << "the forger itself works: " << why;
  EXPECT_FALSE(SegmentView::check(forged(kSamples + 8, 99), &why)) << "first member past the end";
  EXPECT_FALSE(SegmentView::check(forged(kSamples + 12, 0xFFFFFFFF), &why)) << "key past the end";
  EXPECT_FALSE(SegmentView::check(forged(kMembers + 8, 0x00020000 | 77), &why))
      << "field past the end";
  EXPECT_FALSE(SegmentView::check(forged(kFieldEnds + 4, 1000), &why)) << "field name past the end";
  EXPECT_FALSE(SegmentView::check(forged(0, 0xFFFFFFFF), &why)) << "count of samples";
}

}  // namespace
}  // namespace shardwise
