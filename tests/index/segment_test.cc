#include "index/segment.h"

#include <cstring>

#include "base/hasher.h"
#include "index/offset_table.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/query.h"
#include "support/support.h"

namespace shardwise {
namespace {

SegmentBuilder small() {
  SegmentBuilder builder("x.tar");
  builder.begin_sample("a");
  builder.add_member("JPG", 512, 100);
  builder.add_member("cls", 1536, 1);
  builder.begin_sample("dir/b");
  builder.add_member("cls", 2560, 2);
  return builder;
}

SegmentBuilder with_metadata() {
  SegmentBuilder builder("x.tar", 2, true);
  builder.begin_sample("a");
  builder.add_member("jpg", 512, 100, 11);
  builder.add_member("cls", 1536, 1, 22);
  builder.set_value(0, {.type = ValueType::kInteger, .integer = -7});
  builder.set_value(1, {.type = ValueType::kText, .bytes = "seven"});
  builder.begin_sample("b");
  builder.add_member("cls", 2560, 2, 33);
  builder.set_value(1, {.type = ValueType::kBlob, .bytes = "\xff"});
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

TEST(SegmentTest, TheBytesOfFormatVersion3DoNotChange) {
  const std::string bytes = small().finish();
  EXPECT_EQ(bytes.size(), 160U);
  EXPECT_EQ(to_string(hash128(bytes)), "65a1c9c98301e8d7c71c0c2a56de77c9");
  const std::string full = with_metadata().finish();
  EXPECT_EQ(full.size(), 224U);
  EXPECT_EQ(to_string(hash128(full)), "4ac85e86ca0800046e9241a82720e78c");
}

TEST(SegmentTest, HashesAndMetadataComeOutAsTheyWerePutIn) {
  SegmentBuilder builder = with_metadata();
  builder.begin_sample("c");
  builder.add_member("cls", 4096, 1, 44);
  builder.set_value(0, {.type = ValueType::kReal, .real = 2.5});
  builder.drop_samples({true, false, false});
  const std::string bytes = builder.finish();
  std::string why;
  const auto view = SegmentView::check(bytes, &why);
  ASSERT_TRUE(view) << why;
  ASSERT_EQ(view->num_columns(), 2U);
  ASSERT_TRUE(view->has_member_hashes());
  EXPECT_EQ(view->member_hash(0), 33U);
  EXPECT_EQ(view->member_hash(1), 44U);
  EXPECT_EQ(view->value(0, 0).type, ValueType::kNull) << "nothing was set";
  EXPECT_EQ(view->value(1, 0), (MetadataValue{.type = ValueType::kBlob, .bytes = "\xff"}));
  EXPECT_EQ(view->value(0, 1), (MetadataValue{.type = ValueType::kReal, .real = 2.5}));
  EXPECT_EQ(view->value(1, 1).type, ValueType::kNull);
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
  const std::string whole = with_metadata().finish();
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
  // Changes a word and corrects the checksum, as an attacker would.
  const auto forged = [](std::size_t at, auto value) {
    std::string bytes = with_metadata().finish();
    std::memcpy(bytes.data() + at, &value, sizeof value);
    const std::string_view view = bytes;
    const std::uint64_t counts = hash64(view.substr(0, offsetof(SegmentHeader, counts_checksum)));
    const std::uint64_t checksum = hash64(view.substr(sizeof(SegmentHeader)), counts);
    std::memcpy(bytes.data() + offsetof(SegmentHeader, counts_checksum), &counts, sizeof counts);
    std::memcpy(bytes.data() + offsetof(SegmentHeader, checksum), &checksum, sizeof checksum);
    return bytes;
  };
  constexpr std::size_t kSamples = sizeof(SegmentHeader);
  constexpr std::size_t kMembers = kSamples + 3 * 8;
  constexpr std::size_t kValues = kMembers + 3 * 16 + 3 * 8;
  constexpr std::size_t kFieldEnds = kValues + 4 * 8;
  constexpr std::size_t kTypes = kFieldEnds + 3 * 4;
  const std::uint32_t big = 0xFFFFFFFF;
  std::string why;
  EXPECT_TRUE(SegmentView::check(forged(kMembers, 100U), &why))
      << "the forger itself works: " << why;
  EXPECT_FALSE(SegmentView::check(forged(kSamples + 8, 99U), &why)) << "first member past the end";
  EXPECT_FALSE(SegmentView::check(forged(kSamples + 12, big), &why)) << "key past the end";
  EXPECT_FALSE(SegmentView::check(forged(kMembers + 8, 0x00020000U | 77), &why))
      << "field past the end";
  EXPECT_FALSE(SegmentView::check(forged(kFieldEnds + 4, 1000U), &why))
      << "field name past the end";
  EXPECT_FALSE(SegmentView::check(forged(kValues + 16, big), &why)) << "text past the heap";
  EXPECT_FALSE(SegmentView::check(forged(kValues + 20, 7U), &why)) << "text begins past the heap";
  EXPECT_FALSE(SegmentView::check(forged(kTypes, '\x05'), &why)) << "no such type";
  EXPECT_FALSE(SegmentView::check(forged(kTypes, '\x03'), &why)) << "a text that is a number";
  for (const std::size_t count : {0U, 4U, 8U, 12U, 16U, 20U, 24U, 32U}) {
    EXPECT_FALSE(SegmentView::check(forged(count, big), &why)) << "count at " << count;
  }
}

}  // namespace
}  // namespace shardwise
