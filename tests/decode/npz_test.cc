#include "decode/npz.h"

#include "decode/decode_failure.h"
#include "support/support.h"
#include "zip_bytes.h"

namespace shardwise::detail {
namespace {

using testing::HasSubstr;

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
  for (int i = 0; i < 200'000; ++i) large += static_cast<char>(i * i / 7);
  const std::string bytes =
      fuzz::zip({{"a.npy", "first"}, {"b.npy", large}, {"c", "bare"}, {"d.npy", ""}}, deflated());
  EXPECT_EQ(read_npz(bytes, "a", kPlenty), "first");
  EXPECT_EQ(read_npz(bytes, "b", kPlenty), large);
  EXPECT_EQ(read_npz(bytes, "b", large.size()), large) << "the limit itself is allowed";
  EXPECT_EQ(read_npz(bytes, "d", kPlenty), "");
  EXPECT_EQ(refusal(bytes, "x"), "npz: it has no array 'x'; its arrays are a, b, c, d");
  EXPECT_EQ(refusal(bytes, "c"), "npz: it has no array 'c'; its arrays are a, b, c, d");
}

TEST_P(NpzTest, NoMoreIsReadThanTheLimitAllows) {
  const std::string bytes = fuzz::zip({{"a.npy", std::string(3'000'000, '\0')}}, deflated());
  EXPECT_EQ(refusal(bytes, "a", 100'000), "npz: array 'a' has more than the limit of 100000 bytes");
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
      // Times and such may change; the array may not.
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

TEST(NpzFileTest, OtherFilesAreRefused) {
  EXPECT_EQ(refusal("", "a"), "npz: it is not a zip archive");
  EXPECT_EQ(refusal("\x93NUMPY and so on", "a"), "npz: it is not a zip archive");
  EXPECT_EQ(refusal(fuzz::zip({}, false), "a"), "npz: it has no arrays");
}

}  // namespace
}  // namespace shardwise::detail
