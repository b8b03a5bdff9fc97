// The location of an index: behind links, under another name, and on file systems without locks.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "support/flock.h"
#include "support/process.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {
namespace fs = std::filesystem;

using test::error_text;
using test::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Writes a shard of one sample as a separate file.
std::string make_shard(const std::string& path, const std::string& key) {
  test::write_file(path, test::tar_of(key));
  return path;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

std::vector<std::string> tables_in(const std::string& directory) {
  std::vector<std::string> names = names_in(directory);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".table"); });
  return names;
}

std::string text_of(const std::string& index_path, const std::string& key) {
  return Dataset::open(index_path).get(key).copy("txt");
}

class IndexPlaceTest : public ::testing::Test {
 protected:
  IndexPlaceTest() {
    fs::create_directory(dir_ / "real");
    fs::create_directory(dir_ / "links");
    one_ = make_shard(dir_ / "real/1.tar", "one");
    two_ = make_shard(dir_ / "real/2.tar", "two");
  }

  TempDir dir_;
  std::string one_, two_;
};

TEST_F(IndexPlaceTest, IsReadThroughALink) {
  build_index(dir_ / "real/x.idx", {one_});
  fs::create_symlink("../real/x.idx", dir_ / "links/first.idx");
  fs::create_symlink(dir_ / "links/first.idx", dir_ / "second.idx");
  for (const char* path : {"links/first.idx", "second.idx"}) {
    EXPECT_EQ(text_of(dir_ / path, "one"), "text of one") << path;
    EXPECT_EQ(Index::open(dir_ / path)->shard(0).url, "1.tar");
  }
}

TEST_F(IndexPlaceTest, ABuildOverALinkReplacesWhatItLeadsTo) {
  fs::create_symlink("../real/x.idx", dir_ / "links/x.idx");
  const std::string link = dir_ / "links/x.idx";
  build_index(link, {one_});  // the target of the link does not exist yet
  EXPECT_EQ(text_of(dir_ / "real/x.idx", "one"), "text of one");
  const BuildReport report = build_index(link, {one_, two_});
  EXPECT_EQ(report.shards_reused, 1u);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(text_of(dir_ / "real/x.idx", "two"), "text of two");
  EXPECT_THAT(names_in(dir_ / "links"), ElementsAre("x.idx"));
  EXPECT_THAT(tables_in(dir_ / "real"), SizeIs(1));
  EXPECT_EQ(update_index(link).shards_reused, 2u);
  EXPECT_EQ(text_of(link, "two"), "text of two");
}

TEST_F(IndexPlaceTest, AnIndexOfItsOwnFolderMovesWithTheFolder) {
  build_index(dir_ / "real/x.idx", {one_, two_}, {.sources = {dir_ / "real"}});
  fs::rename(dir_ / "real", dir_ / "moved");
  make_shard(dir_ / "moved/3.tar", "three");
  EXPECT_EQ(update_index(dir_ / "moved/x.idx").shards_reused, 2u);
  EXPECT_EQ(text_of(dir_ / "moved/x.idx", "three"), "text of three");
}

TEST_F(IndexPlaceTest, LinksThatGoOnForEverAreRefused) {
  fs::create_symlink("b.idx", dir_ / "a.idx");
  fs::create_symlink("a.idx", dir_ / "b.idx");
  EXPECT_THAT(error_text([&] { Index::open(dir_ / "a.idx"); }),
              AllOf(HasSubstr("cannot follow the link"), HasSubstr(".idx'")));
  EXPECT_THAT(error_text([&] { build_index(dir_ / "a.idx", {one_}); }),
              HasSubstr("cannot follow the link"));
}

TEST_F(IndexPlaceTest, ARenamedIndexLeavesNoOldTable) {
  build_index(dir_ / "a.idx", {one_});
  fs::rename(dir_ / "a.idx", dir_ / "b.idx");
  EXPECT_EQ(text_of(dir_ / "b.idx", "one"), "text of one");
  build_index(dir_ / "b.idx", {one_});  // nothing has changed, so the index keeps its table
  EXPECT_EQ(text_of(dir_ / "b.idx", "one"), "text of one");
  build_index(dir_ / "b.idx", {one_, two_});
  EXPECT_EQ(text_of(dir_ / "b.idx", "two"), "text of two");
  EXPECT_THAT(tables_in(dir_.path()), SizeIs(1));
}

TEST_F(IndexPlaceTest, ATableThatAnotherIndexNamesStays) {
  build_index(dir_ / "a.idx", {one_});
  fs::copy_file(dir_ / "a.idx", dir_ / "b.idx");
  build_index(dir_ / "b.idx", {one_, two_});  // a.idx exists, and uses the table
  EXPECT_EQ(text_of(dir_ / "a.idx", "one"), "text of one");
  fs::remove(dir_ / "b.idx");
  fs::rename(dir_ / "a.idx", dir_ / "c.idx");
  fs::copy_file(dir_ / "c.idx", dir_ / "d.idx");
  build_index(dir_ / "d.idx", {two_});  // c.idx uses the table under another name
  EXPECT_EQ(text_of(dir_ / "c.idx", "one"), "text of one");
}

TEST_F(IndexPlaceTest, NamesThatMeanSomethingToSqliteAreNames) {
  EXPECT_EQ(test::in_child([&]() -> std::string {
              if (::chdir((dir_ / "real").c_str()) != 0) return "chdir";
              for (const char* name : {"file:x?mode=memory&a", "file:y", ":memory:"}) {
                build_index(name, {one_, two_});
                if (!fs::exists(name)) return std::string(name) + " was not written";
                if (text_of(name, "two") != "text of two") return "another text";
              }
              return "";
            }),
            "");
}

/// Restores the behaviour of flock() on destruction.
struct WithFlock {
  explicit WithFlock(int error, bool as_nfs) {
    test::flock_behaviour.error = error;
    test::flock_behaviour.as_nfs = as_nfs;
  }
  ~WithFlock() {
    test::flock_behaviour.error = 0;
    test::flock_behaviour.as_nfs = false;
  }
};

TEST_F(IndexPlaceTest, IsBuiltWhereThereIsNoFlock) {
  const std::string index = dir_ / "real/x.idx";
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS}) {
    const WithFlock without(error, false);
    build_index(index, {one_});
    build_index(index, {one_, two_});
    EXPECT_EQ(text_of(index, "two"), "text of two");
    EXPECT_THAT(tables_in(dir_ / "real"), SizeIs(1)) << "the one that was replaced stays";
    // A file that looks like one of a killed build may belong to a running build; without locks
    // they cannot be distinguished.
    const std::string temporary = index + ".0123456789ab.tmp";
    const std::string table = index + ".0123456789abcdef.table";
    test::write_file(temporary, "x");
    test::write_file(table, "x");
    build_index(index, {two_});
    EXPECT_TRUE(fs::exists(temporary) && fs::exists(table));
    fs::remove(temporary);
    fs::remove(table);
    fs::remove(index);
    for (const std::string& left : tables_in(dir_ / "real")) fs::remove(dir_ / ("real/" + left));
  }
}

TEST_F(IndexPlaceTest, OldTablesAreSweptOnNfs) {
  const WithFlock nfs(0, true);
  const std::string index = dir_ / "real/x.idx";
  build_index(index, {one_});
  const std::string temporary = index + ".0123456789ab.tmp";
  const std::string table = index + ".0123456789abcdef.table";
  test::write_file(temporary, "x");
  test::write_file(table, "x");
  build_index(index, {one_, two_});
  EXPECT_EQ(text_of(index, "two"), "text of two");
  EXPECT_FALSE(fs::exists(temporary));
  EXPECT_THAT(tables_in(dir_ / "real"), SizeIs(1));
}

}  // namespace
}  // namespace shardwise
