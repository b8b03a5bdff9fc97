// Index files of other programs beside shards, held against the shards.

#include "ingest/index_hints.h"

#include <filesystem>

#include "base/bytes.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_export.h"
#include "support/support.h"

namespace shardwise::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class IndexHintsTest : public ::testing::Test {
 protected:
  IndexHintsTest() {
    TarBuilder tar;
    tar.entry("d/", '5', "");
    for (int i = 0; i < 3; ++i) {
      const std::string key = "d/" + std::to_string(i);
      tar.pax({{"mtime", "1.5"}});  // a header of its own before the member's
      tar.file(key + ".jpg", std::string(1000, 'x')).file(key + ".cls", "7");
    }
    write_file(shard(), tar.end().bytes());
    build_index(dir_ / "x.idx", {shard()});
  }

  std::string shard() const { return dir_ / "a.tar"; }
  IndexHints check() const { return check_hints(*Index::open(dir_ / "x.idx")); }
  std::string why() const {
    const IndexHints hints = check();
    EXPECT_THAT(hints.agreeing, IsEmpty());
    return hints.stale.size() == 1 ? hints.stale[0].why : "no one stale hint";
  }
  std::string dali() const {
    write_dali_index(*Index::open(dir_ / "x.idx"), dir_ / "dali");
    return read_file(dir_ / "dali/a.idx");
  }
  /// As Energon: where each sample's first header is, those of pax among them, and the end.
  static std::string energon(const std::vector<std::uint64_t>& offsets) {
    std::string bytes(8 * offsets.size(), '\0');
    for (std::size_t i = 0; i < offsets.size(); ++i) store_le64(&bytes[8 * i], offsets[i]);
    return bytes;
  }
  // A folder; then, of each sample, a pax header and its record, two headers, two blocks, and one.
  static constexpr std::uint64_t kFirst = 512, kSample = 512 * (2 + 2 + 2 + 1);
  static std::vector<std::uint64_t> right_offsets() {
    return {kFirst, kFirst + kSample, kFirst + 2 * kSample, kFirst + 3 * kSample};
  }

  TempDir dir_;
};

TEST_F(IndexHintsTest, WithoutAnyThereIsNothingToSay) {
  write_file(dir_ / "a.idx", "something else");
  const IndexHints hints = check();
  EXPECT_THAT(hints.agreeing, IsEmpty());
  EXPECT_THAT(hints.stale, IsEmpty());
  EXPECT_FALSE(is_index_hint(dir_ / "a.idx"));
  EXPECT_FALSE(is_index_hint(dir_ / "x.idx")) << "an index of ours";
}

TEST_F(IndexHintsTest, OnesThatFitAgree) {
  write_file(dir_ / "a.idx", dali());
  write_file(dir_ / "a.tar.idx", energon(right_offsets()));
  const IndexHints hints = check();
  EXPECT_THAT(hints.agreeing, ElementsAre(dir_ / "a.tar.idx", dir_ / "a.idx"));
  EXPECT_THAT(hints.stale, IsEmpty());
  EXPECT_TRUE(is_index_hint(dir_ / "a.idx"));
  EXPECT_TRUE(is_index_hint(dir_ / "a.tar.idx"));
}

TEST_F(IndexHintsTest, DalisWithoutNamesAgreesToo) {
  write_file(dir_ / "a.idx",
             "v1.1 3\njpg 2048 1000 cls 3584 1\njpg 5632 1000 cls 7168 1\n"
             "jpg 9216 1000 cls 10752 1\n");
  EXPECT_THAT(check().agreeing, ElementsAre(dir_ / "a.idx"));
}

TEST_F(IndexHintsTest, StaleOnesOfDaliAreSeen) {
  const std::string right = dali();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    text.replace(text.find(from), from.size(), to);
    write_file(dir_ / "a.idx", text);
    return why();
  };
  EXPECT_EQ(with("v1.2 3", "v1.2 4"), "it has 4 samples, the shard 3");
  EXPECT_EQ(with("jpg 5632 1000", "jpg 5632 1001"),
            "sample 1: the shard has no member of 1001 bytes at offset 5632");
  EXPECT_EQ(with("jpg 5632", "jpg 6144"),
            "sample 1: the shard has no member of 1000 bytes at offset 6144");
  EXPECT_EQ(with("jpg 5632", "jpg 2048"),
            "sample 1: the shard has no member of 1000 bytes at offset 2048");
  EXPECT_EQ(with(" cls 7168 1 d/1.cls", ""), "sample 1: it has 1 members, the shard 2");
  EXPECT_EQ(with("5632 1000", "x 1000"), "sample 1: its line is malformed");
  write_file(dir_ / "a.idx", right.substr(0, right.rfind("jpg 9216")));
  EXPECT_THAT(why(), HasSubstr("sample 2: it has 0 members"));
}

TEST_F(IndexHintsTest, StaleOnesOfEnergonAreSeen) {
  const auto with = [&](const std::vector<std::uint64_t>& offsets) {
    write_file(dir_ / "a.tar.idx", energon(offsets));
    return why();
  };
  std::vector<std::uint64_t> offsets = right_offsets();
  offsets[1] += kSample;
  EXPECT_THAT(with(offsets), HasSubstr("sample 1: it begins at offset"));
  offsets = right_offsets();
  offsets[2] -= 1024;
  EXPECT_THAT(with(offsets), HasSubstr("sample 2: it begins at offset"));
  offsets = right_offsets();
  offsets.pop_back();
  EXPECT_EQ(with(offsets), "it has 2 samples, the shard 3");
  offsets = right_offsets();
  offsets.back() = 1 << 20;
  EXPECT_EQ(with(offsets), "the samples do not end at offset 1048576");
}

TEST_F(IndexHintsTest, OneThatIsLargerThanTheMemoryIsNotRead) {
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 42;  // holes, which take no room
  write_file(dir_ / "a.idx", dali());
  fs::resize_file(dir_ / "a.idx", kLarge);
  EXPECT_EQ(why(), "it is 4.0 TiB long, too long for the shard's 3 samples");
  fs::remove(dir_ / "a.idx");
  write_file(dir_ / "a.tar.idx", energon(right_offsets()));
  fs::resize_file(dir_ / "a.tar.idx", kLarge);
  EXPECT_EQ(why(), "it is 4.0 TiB long, too long for the shard's 3 samples");
}

TEST_F(IndexHintsTest, AShardThatChangedMakesItStale) {
  write_file(dir_ / "a.idx", dali());
  write_file(shard(), TarBuilder().file("d/0.jpg", "x").file("d/0.cls", "7").end().bytes());
  build_index(dir_ / "x.idx", {shard()});
  EXPECT_EQ(why(), "it has 3 samples, the shard 1");
}

TEST_F(IndexHintsTest, NoBytesOfOneEndInAnythingButAnAnswer) {
  const std::string right = dali();
  for (std::size_t length = 0; length < right.size(); ++length) {
    write_file(dir_ / "a.idx", right.substr(0, length));
    const IndexHints hints = check();
    // The last name is not looked at.
    EXPECT_LE(hints.agreeing.size(), length < right.rfind("d/2.cls") + 1 ? 0U : 1U) << length;
  }
  for (std::size_t length = 0; length < 40; ++length) {
    write_file(dir_ / "a.idx", "");
    write_file(dir_ / "a.tar.idx", std::string(length, '\0'));
    EXPECT_THAT(check().agreeing, IsEmpty()) << length;
  }
}

}  // namespace
}  // namespace shardwise::test
