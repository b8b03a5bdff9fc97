#include "shardwise/ingest/source_list.h"

#include <filesystem>

#include "support/support.h"

namespace shardwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SourceListTest, PathsKeepTheOrderGiven) {
  EXPECT_THAT(expand_sources({"b.tar", "a.tar"}), ElementsAre("b.tar", "a.tar"));
}

TEST(SourceListTest, BraceRangesKeepTheirPadding) {
  EXPECT_THAT(expand_sources({"t-{008..011}.tar"}),
              ElementsAre("t-008.tar", "t-009.tar", "t-010.tar", "t-011.tar"));
  EXPECT_THAT(expand_sources({"{8..10}"}), ElementsAre("8", "9", "10"));
  EXPECT_THAT(expand_sources({"{a,b}{0..1}.tar"}),
              ElementsAre("a0.tar", "a1.tar", "b0.tar", "b1.tar"));
  EXPECT_THAT(expand_sources({"x{,y}.tar"}), ElementsAre("x.tar", "xy.tar"));
  EXPECT_THAT(expand_sources({"{plain}.tar"}), ElementsAre("{plain}.tar"));
}

TEST(SourceListTest, DirectoriesGiveAllTarsBelowThemInByteOrder) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "sub");
  for (const char* name : {"b.tar", "B.tar", "a.tar", "sub/c.tar", "note.txt"})
    test::write_file(dir / name, "");
  EXPECT_THAT(expand_sources({dir.path()}),
              ElementsAre(dir / "B.tar", dir / "a.tar", dir / "b.tar", dir / "sub/c.tar"));
}

TEST(SourceListTest, GlobsAreSortedByBytes) {
  const test::TempDir dir;
  for (const char* name : {"x-2.tar", "x-10.tar", "x-1.tar", "y.tar"})
    test::write_file(dir / name, "");
  EXPECT_THAT(expand_sources({dir / "x-*.tar"}),
              ElementsAre(dir / "x-1.tar", dir / "x-10.tar", dir / "x-2.tar"));
}

TEST(SourceListTest, AFileWhoseNameHasGlobCharactersIsAFile) {
  const test::TempDir dir;
  test::write_file(dir / "x[1].tar", "");
  EXPECT_THAT(expand_sources({dir / "x[1].tar"}), ElementsAre(dir / "x[1].tar"));
}

TEST(SourceListTest, ListsHoldSourcesALine) {
  const test::TempDir dir;
  test::write_file(dir / "list.txt", "# shards\na.tar\r\n\nb-{0..1}.tar\n");
  EXPECT_THAT(expand_sources({"@" + (dir / "list.txt")}),
              ElementsAre("a.tar", "b-0.tar", "b-1.tar"));
}

TEST(SourceListTest, ErrorsNameTheSourceAndTheWayOut) {
  const test::TempDir dir;
  const auto text = [](const std::string& source) {
    return test::error_text([&] { expand_sources({source}); });
  };
  EXPECT_THAT(text(dir / "no-*.tar"), HasSubstr("no file matches: '" + dir.path()));
  EXPECT_THAT(text(dir.path()), HasSubstr("the directory holds no *.tar"));
  EXPECT_THAT(text("@" + (dir / "none.txt")), HasSubstr("cannot read the list of shards"));
  EXPECT_THAT(text("x-{000..a}.tar"),
              HasSubstr("a range that is not of two numbers: 'x-{000..a}.tar'"));
  EXPECT_THAT(text("x-{9..1}.tar"), HasSubstr("smaller number first"));
  EXPECT_THAT(text("x-{0..99999999999}.tar"), HasSubstr("above 10 million"));
  EXPECT_THAT(text("x-{1..2.tar"), HasSubstr("a brace is not closed"));
  EXPECT_THAT(text("http://host/x.json"),
              HasSubstr("a remote descriptor, and nothing to bring it"));
  EXPECT_THAT(text("pipe:cat x.tar"), HasSubstr("a pipe: URL is a command, and is not run"));
  EXPECT_THAT(text("http:///x.tar"), HasSubstr("host"));
  EXPECT_THAT(test::error_text([] {
                expand_sources({"a.tar", "a.tar"});
              }),
              HasSubstr("a shard is named twice: 'a.tar'"));
  test::write_file(dir / "self.txt", "@" + (dir / "self.txt") + "\n");
  EXPECT_THAT(text("@" + (dir / "self.txt")), HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace shardwise
