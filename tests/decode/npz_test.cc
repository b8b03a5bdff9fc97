#include "decode/npz.h"

#include "decode/decode_failure.h"
#include "support/support.h"
#include "zip_bytes.h"

namespace shardwise::detail {
namespace {

constexpr std::uint64_t kPlenty = 1 << 20;

std::string refusal(const std::string& bytes, const std::string& array,
                    std::uint64_t most = kPlenty) {
  try {
    read_npz(bytes, array, most);
  } catch (const DecodeFailure& failure) {
    return failure.what();
  }
  return "no failure";
}

class NpzTest : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] bool deflated() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(StoredAndDeflated, NpzTest, testing::Bool());

TEST_P(NpzTest, AnArrayIsFoundByItsName) {
  std::string large;
  for (unsigned i = 0; i < 200'000; ++i) large += static_cast<char>(i * i / 7);
  const std::string bytes =
      fuzz::zip({{"a.npy", "first"}, {"b.npy", large}, {"c", "bare"}, {"d.npy", ""}}, deflated());
  EXPECT_EQ(read_npz(bytes, "a", kPlenty), "first");
  EXPECT_EQ(read_npz(bytes, "b", kPlenty), large);
  EXPECT_EQ(read_npz(bytes, "b", large.size()), large) << "the limit itself is allowed";
  EXPECT_EQ(read_npz(bytes, "d", kPlenty), "");
  EXPECT_THAT(refusal(bytes, "x"),
              testing::AllOf(testing::HasSubstr("npz: "), testing::HasSubstr("no array 'x'"),
                             testing::HasSubstr("a, b, c, d")));
  EXPECT_THAT(refusal(bytes, "c"),
              testing::AllOf(testing::HasSubstr("npz: "), testing::HasSubstr("no array 'c'"),
                             testing::HasSubstr("a, b, c, d")));
}

TEST_P(NpzTest, TwoArraysOfOneNameAreNotChosenFrom) {
  const std::string bytes =
      fuzz::zip({{"a.npy", "first"}, {"b.npy", "other"}, {"a.npy", "second"}}, deflated());
  EXPECT_THAT(refusal(bytes, "a"),
              testing::AllOf(testing::HasSubstr("npz: "), testing::HasSubstr("two arrays 'a'")));
  EXPECT_EQ(read_npz(bytes, "b", kPlenty), "other");
}

TEST_P(NpzTest, NoMoreIsReadThanTheLimitAllows) {
  const std::string bytes = fuzz::zip({{"a.npy", std::string(3'000'000, '\0')}}, deflated());
  EXPECT_THAT(refusal(bytes, "a", 100'000),
              testing::AllOf(testing::HasSubstr("npz: array 'a'"),
                             testing::HasSubstr("limit of 100,000 bytes")));
}

TEST_P(NpzTest, DamageIsRefusedWhereverItIs) {
  std::string data;
  for (int i = 0; i < 500; ++i) data += static_cast<char>(i * i * i / 7);
  const std::string bytes = fuzz::zip({{"a.npy", data}}, deflated());
  int refused = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    try {
      // Times and similar fields may change, but the array must not.
      EXPECT_EQ(read_npz(damaged, "a", kPlenty), data) << at;
    } catch (const DecodeFailure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, deflated() ? 180 : 480) << "the checksum holds the data";
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size), "a"), "no failure") << size;
  }
}

/// The output of numpy.savez(file, x=numpy.arange(3, dtype="i2")) in NumPy 2.4.6, and of
/// savez_compressed.
const char* const kSaved =
    "504b03042d0000000000000021006acff251ffffffffffffffff05001400782e6e707901001000860000"
    "00000000008600000000000000934e554d5059010076007b276465736372273a20273c6932272c202766"
    "6f727472616e5f6f72646572273a2046616c73652c20277368617065273a2028332c292c207d20202020"
    "202020202020202020202020202020202020202020202020202020202020202020202020202020202020"
    "20202020202020202020202020200a000001000200504b01022d032d0000000000000021006acff25186"
    "00000086000000050000000000000000000000800100000000782e6e7079504b05060000000001000100"
    "33000000bd0000000000";
const char* const kDeflated =
    "504b03042d0000000800000021006acff251ffffffffffffffff05001400782e6e707901001000860000"
    "00000000004a000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a4aea3a09e"
    "965f54529498179f5f94920a12774bcc294e058a17672416a402f91ac63a9a3a0ab50a14002e06064606"
    "260600504b01022d032d0000000800000021006acff2514a000000860000000500000000000000000000"
    "00800100000000782e6e7079504b0506000000000100010033000000810000000000";

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST(NpzFileTest, NumpysFilesAreRead) {
  for (const char* const file : {kSaved, kDeflated}) {
    const std::string array = read_npz(from_hex(file), "x", kPlenty);
    EXPECT_THAT(array, testing::StartsWith("\x93NUMPY"));
    EXPECT_THAT(array, testing::EndsWith(std::string("\n\0\0\1\0\2\0", 7)));
  }
}

TEST(NpzFileTest, OtherFilesAreRefused) {
  EXPECT_THAT(refusal("", "a"),
              testing::AllOf(testing::HasSubstr("npz: "), testing::HasSubstr("not a zip archive")));
  EXPECT_THAT(refusal("\x93NUMPY and so on", "a"),
              testing::AllOf(testing::HasSubstr("npz: "), testing::HasSubstr("not a zip archive")));
  EXPECT_EQ(refusal(fuzz::zip({}, false), "a"), "npz: the file has no arrays");
}

}  // namespace
}  // namespace shardwise::detail
