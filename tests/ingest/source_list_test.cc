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

TEST(SourceListTest, DirectoriesGiveShardsOfAnyCodecAndCaseAndCountTheRest) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "sub");
  for (const char* name : {"a.tar", "b.TAR", "c.tgz", "d.tar.gz", "e.tar.zst", "f.Tar.XZ",
                           "g.tar.bz2", "sub/h.tar.lz4", "i.json", "sub/j.gz", "k.tar.tmp"}) {
    test::write_file(dir / name, "");
  }
  const SourceList list = read_sources({dir.path()});
  EXPECT_THAT(list.shards, ElementsAre(dir / "a.tar", dir / "b.TAR", dir / "c.tgz",
                                       dir / "d.tar.gz", dir / "e.tar.zst", dir / "f.Tar.XZ",
                                       dir / "g.tar.bz2", dir / "sub/h.tar.lz4"));
  EXPECT_THAT(list.left_out, ElementsAre(dir / "i.json", dir / "k.tar.tmp", dir / "sub/j.gz"));
}

TEST(SourceListTest, FoldersBehindLinksAreGoneIntoOnce) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "all/real/deep");
  std::filesystem::create_directories(dir / "elsewhere");
  test::write_file(dir / "all/real/a.tar", "");
  test::write_file(dir / "all/real/deep/b.tar", "");
  test::write_file(dir / "elsewhere/c.tar", "");
  std::filesystem::create_directory_symlink(dir / "all", dir / "all/real/deep/loop");
  std::filesystem::create_directory_symlink(dir / "all/real", dir / "all/again");
  std::filesystem::create_directory_symlink(dir / "elsewhere", dir / "all/there");
  std::filesystem::create_directory_symlink(dir / "elsewhere", dir / "all/there too");
  const SourceList list = read_sources({dir / "all"});
  EXPECT_THAT(list.shards, ElementsAre(dir / "all/real/a.tar", dir / "all/real/deep/b.tar",
                                       dir / "all/there/c.tar"));
  EXPECT_THAT(list.left_out, testing::IsEmpty());
}

TEST(SourceListTest, AShardThatALinkPromisesIsNotPassedOver) {
  const test::TempDir dir;
  test::write_file(dir / "a.tar", "");
  std::filesystem::create_symlink(dir / "none", dir / "b.tar");
  EXPECT_THAT(expand_sources({dir.path()}), ElementsAre(dir / "a.tar", dir / "b.tar"));
}

TEST(SourceListTest, WordsAreKeptWhereTheyMayNameOthersLater) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir / "sub");
  test::write_file(dir / "sub/a.tar", "");
  test::write_file(dir / "b.tar", "");
  test::write_file(dir / "list.txt", "# a list\n" + dir / "sub" + "\n" + dir / "{b,c}.tar\n");
  EXPECT_THAT(read_sources({dir / "b.tar", dir / "{c,d}.tar"}).sources, testing::IsEmpty());
  EXPECT_THAT(read_sources({dir / "b.tar", dir / "sub"}).sources,
              ElementsAre(dir / "b.tar", dir / "sub"));
  EXPECT_THAT(read_sources({dir / "*.tar"}).sources, ElementsAre(dir / "*.tar"));
  EXPECT_THAT(read_sources({"@" + dir / "list.txt"}).sources,
              ElementsAre(dir / "sub", dir / "{b,c}.tar"));
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
  EXPECT_THAT(text(dir.path()), HasSubstr("the directory holds no shard"));
  EXPECT_THAT(text("@" + (dir / "none.txt")), HasSubstr("cannot read the list of shards"));
  EXPECT_THAT(text("x-{000..a}.tar"),
              HasSubstr("the range is not one of two numbers: 'x-{000..a}.tar'"));
  EXPECT_THAT(text("x-{9..1}.tar"), HasSubstr("smaller number first"));
  EXPECT_THAT(text("x-{0..99999999999}.tar"), HasSubstr("more than 10 million"));
  EXPECT_THAT(text("x-{1..2.tar"), HasSubstr("a brace is not closed"));
  EXPECT_THAT(text("http://host/x.json"),
              HasSubstr("the descriptor is remote, and there is no access to remote files"));
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
