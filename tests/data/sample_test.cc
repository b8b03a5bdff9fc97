#include "shardwise/data/sample.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "data/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::TarBuilder;
using test::TempDir;
using test::write_file;

/// A dataset of one shard, with one field for each given member (name and content).
class OneShard {
 public:
  explicit OneShard(const TarBuilder& tar) : data_(open(tar.bytes())) {}
  const Dataset& data() const { return data_; }
  std::string path() const { return dir_ / "x.tar"; }

 private:
  Dataset open(const std::string& bytes) {
    write_file(path(), bytes);
    build_index(dir_ / "x.idx", {path()}, {.threads = 1});
    return Dataset::open(dir_ / "x.idx");
  }

  TempDir dir_;
  Dataset data_;
};

template <class T>
concept GivesViewOfField = requires(T&& sample) {
  std::forward<T>(sample)["jpg"];
};
template <class T>
concept GivesKey = requires(T&& sample) {
  std::forward<T>(sample).key();
};

TEST(SampleTest, ViewsCannotBeTakenFromATemporary) {
  static_assert(GivesViewOfField<Sample&> && GivesViewOfField<const Sample&>);
  static_assert(!GivesViewOfField<Sample> && !GivesViewOfField<const Sample>);
  static_assert(GivesKey<const Sample&> && !GivesKey<Sample>);
  static_assert(std::is_nothrow_move_constructible_v<Sample> && std::is_copy_assignable_v<Sample>);
}

TEST(SampleTest, GivesItsFieldsInArchiveOrderWithLowerCaseNames) {
  const OneShard shard(TarBuilder()
                           .file("a/x.JPG", "picture")
                           .file("a/x.Seg.PNG", "mask")
                           .file("a/x.cls", "7")
                           .file("a/x.empty", "")
                           .end());
  const Sample sample = shard.data()[0];
  EXPECT_EQ(sample.key(), "a/x");
  ASSERT_EQ(sample.num_fields(), 4U);
  EXPECT_EQ(sample.field(0).name, "jpg");
  EXPECT_EQ(sample.field(0).bytes, "picture");
  EXPECT_EQ(sample.field(1).name, "seg.png");
  EXPECT_EQ(sample.field(1).bytes, "mask");
  EXPECT_EQ(sample.field(3).name, "empty");
  EXPECT_EQ(sample["jpg"], "picture");
  EXPECT_EQ(sample["seg.png"], "mask");
  EXPECT_EQ(sample["empty"], "");
  EXPECT_EQ(sample.find("cls"), "7");
  EXPECT_TRUE(sample.contains("cls"));
  EXPECT_EQ(sample.copy("jpg"), "picture");
}

TEST(SampleTest, AFieldIsNamedAsAWhole) {
  const OneShard shard(TarBuilder().file("x.seg.png", "mask").end());
  const Sample sample = shard.data()[0];
  for (const char* name : {"seg", "png", "SEG.PNG", ".seg.png", "seg.png ", "x.seg.png", ""}) {
    EXPECT_EQ(sample.find(name), std::nullopt) << name;
    EXPECT_FALSE(sample.contains(name)) << name;
  }
}

TEST(SampleTest, SamplesOfOneShardMayHaveDifferentFields) {
  const OneShard shard(TarBuilder()
                           .file("a.txt", "1")
                           .file("b.jpg", "2")
                           .file("b.txt", "3")
                           .file("c.json", "4")
                           .end());
  const Sample a = shard.data()[0];
  const Sample b = shard.data()[1];
  const Sample c = shard.data()[2];
  EXPECT_EQ(a.num_fields(), 1U);
  EXPECT_EQ(b["txt"], "3");
  EXPECT_EQ(b["jpg"], "2");
  EXPECT_EQ(c["json"], "4");
  EXPECT_FALSE(c.contains("txt"));
}

TEST(SampleTest, AMissingFieldNamesShardSampleAndTheFieldsThereAre) {
  const OneShard shard(TarBuilder().file("a/x.jpg", "1").file("a/x.b\xFFin", "2").end());
  const Sample sample = shard.data()[0];
  const auto expected = testing::AllOf(
      testing::HasSubstr("no field 'png': sample 0 ('a/x') in shard '" + shard.path() + "'"),
      testing::HasSubstr("jpg, b\\xffin"));
  EXPECT_THAT(error_text([&] { sample["png"]; }), expected);
  EXPECT_THAT(error_text([&] { static_cast<void>(sample.copy("png")); }), expected);
  EXPECT_THAT(error_text([&] { sample.integer("png"); }), expected);
  EXPECT_EQ(error_code([&] { sample["png"]; }), ErrorCode::kNotFound);
}

TEST(SampleTest, IntegerTakesAWholeNumberWithBlanksAroundIt) {
  const OneShard shard(TarBuilder()
                           .file("x.a", "7")
                           .file("x.b", "  -12\r\n")
                           .file("x.c", "\t9223372036854775807 ")
                           .file("x.d", "-9223372036854775808")
                           .file("x.e", "000\n")
                           .end());
  const Sample sample = shard.data()[0];
  EXPECT_EQ(sample.integer("a"), 7);
  EXPECT_EQ(sample.integer("b"), -12);
  EXPECT_EQ(sample.integer("c"), INT64_MAX);
  EXPECT_EQ(sample.integer("d"), INT64_MIN);
  EXPECT_EQ(sample.integer("e"), 0);
}

TEST(SampleTest, IntegerRefusesWhatIsNoWholeNumber) {
  TarBuilder tar;
  const std::vector<std::string> contents = {"",
                                             " \n",
                                             "seven",
                                             "7.0",
                                             "1 2",
                                             "0x10",
                                             "+7",
                                             "1e3",
                                             "-",
                                             "9223372036854775808",
                                             std::string("7\0", 2)};
  for (std::size_t i = 0; i < contents.size(); ++i)
    tar.file("x.f" + std::to_string(i), contents[i]);
  const OneShard shard(tar.end());
  const Sample sample = shard.data()[0];
  for (std::size_t i = 0; i < contents.size(); ++i) {
    EXPECT_EQ(error_code([&] { sample.integer("f" + std::to_string(i)); }), ErrorCode::kBadField)
        << contents[i];
  }
  EXPECT_THAT(error_text([&] { sample.integer("f2"); }),
              testing::AllOf(testing::HasSubstr("field 'f2'"),
                             testing::HasSubstr("not an integer: 'seven'"),
                             testing::HasSubstr("sample 0 ('x') in shard '" + shard.path() + "'")));
}

TEST(SampleTest, ABadNumberIsShownInPart) {
  const OneShard shard(TarBuilder().file("x.jpg", std::string(5000, '\xFF')).end());
  const Sample sample = shard.data()[0];
  EXPECT_LT(error_text([&] { sample.integer("jpg"); }).size(), 500U);
}

TEST(SampleTest, CopiesAndMovesKeepTheShardMapped) {
  Sample kept = [] {
    const OneShard shard(TarBuilder().file("x.txt", "text").file("y.txt", "more").end());
    const Sample first = shard.data()[1];
    Sample copy = first;
    return copy;
  }();
  EXPECT_EQ(kept["txt"], "more");
  const Sample moved = std::move(kept);
  EXPECT_EQ(moved["txt"], "more");
  EXPECT_EQ(moved.key(), "y");
}

}  // namespace
}  // namespace shardwise
