#include "tar/tar_header.h"

#include <limits>

#include "support/support.h"

namespace shardwise::tar {
namespace {

std::optional<std::int64_t> parse(std::string field) {
  return parse_number(field.data(), field.size());
}

TEST(TarNumberTest, OctalWithBlanksAndNulsAroundIt) {
  EXPECT_EQ(parse(std::string("00000000017\0", 12)), 15);
  EXPECT_EQ(parse("         17 "), 15);
  EXPECT_EQ(parse(std::string("17\0garbage!!", 12)), 15);
  EXPECT_EQ(parse("            "), 0);
  EXPECT_EQ(parse(std::string(12, '\0')), 0);
  EXPECT_EQ(parse("777777777777"), (std::int64_t{1} << 36) - 1);
}

TEST(TarNumberTest, MalformedOctalIsNothing) {
  EXPECT_EQ(parse("0000000001x "), std::nullopt);
  EXPECT_EQ(parse("-0000000017 "), std::nullopt);
  EXPECT_EQ(parse("00000000018 "), std::nullopt);
  EXPECT_EQ(parse(std::string(24, '7')), std::nullopt) << "does not fit";
}

TEST(TarNumberTest, Base256OfBothSigns) {
  EXPECT_EQ(parse(std::string("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12)), 5);
  EXPECT_EQ(parse(std::string("\x80\0\0\0\0\0\0\x02\0\0\0\0", 12)), std::int64_t{1} << 33);
  EXPECT_EQ(parse(std::string(12, '\xff')), -1);
  EXPECT_EQ(parse(std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12)),
            std::numeric_limits<std::int64_t>::max());
}

TEST(TarNumberTest, Base256ThatDoesNotFitIsNothing) {
  EXPECT_EQ(parse(std::string("\x80\x01\0\0\0\0\0\0\0\0\0\0", 12)), std::nullopt);
  EXPECT_EQ(parse(std::string("\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12)),
            std::nullopt);
}

TEST(TarChecksumTest, UnsignedAndSignedSumsAreRight) {
  std::string header = test::TarBuilder::header("caf\xc3\xa9", '0', 0);
  EXPECT_TRUE(has_valid_checksum(header.data()));
  // The sum of the same bytes as signed numbers: each of the two bytes above 0x7f counts 256 less.
  int sum = 8 * ' ';
  for (int i = 0; i < 512; ++i) {
    if (i < 148 || i >= 156) sum += static_cast<signed char>(header[static_cast<std::size_t>(i)]);
  }
  std::snprintf(header.data() + 148, 8, "%06o", static_cast<unsigned>(sum));
  EXPECT_TRUE(has_valid_checksum(header.data()));
}

TEST(TarChecksumTest, EveryFlippedByteIsNoticed) {
  const std::string header = test::TarBuilder::header("a.txt", '0', 5);
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (i == 154 || i == 155) continue;  // the terminators of the checksum have no effect
    std::string flipped = header;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x04);
    EXPECT_FALSE(has_valid_checksum(flipped.data())) << "byte " << i;
  }
}

TEST(TarHeaderTest, PrefixIsPartOfTheNameInUstarOnly) {
  std::string block = test::TarBuilder::header("name.txt", '0', 0);
  block.replace(345, 3, "dir");
  EXPECT_EQ(Header(block.data()).name(), "dir/name.txt");
  block.replace(257, 8, "ustar  \0", 8);
  EXPECT_EQ(Header(block.data()).name(), "name.txt");
}

}  // namespace
}  // namespace shardwise::tar
