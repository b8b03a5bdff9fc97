// Shards that are not where their index says: --root, copies with new times, and the errors for
// missing shards.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/shards.h"
#include "index/catalogue.h"
#include "index/index_files.h"
#include "index/missing_shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/storage/shard_cache.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::error_code;
using test::error_text;
using test::set_old_time;
using test::shard_bytes;
using test::Shards;
using test::TempDir;
using test::write_file;
using test::wrong_with;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Dataset::Access kBoth[] = {Dataset::Access::kMap, Dataset::Access::kRead};

/// Moves the shards, which are next to their index, into `folder`.
void move_away(const Shards& shards, const std::string& folder) {
  fs::create_directories(folder);
  for (const std::string& path : shards.paths()) {
    fs::rename(path, folder + "/" + fs::path(path).filename().string());
  }
}

TEST(RootTest, ARelativeRootStaysWhereItWasWhenTheProcessGoesElsewhere) {
  const Shards shards(1, 10);
  move_away(shards, shards.dir() / "data");
  const fs::path here = fs::current_path();
  fs::current_path(shards.dir().path());
  const Dataset data = Dataset::open("train.idx", {.root = "data"});
  fs::current_path(here);
  EXPECT_EQ(wrong_with(data), "");
}

TEST(RootTest, OfAbsolutePathsWhatFollowsTheFolderThatTheyShareIsLookedFor) {
  const TempDir dir, home, other;
  std::vector<std::string> paths;
  for (const char* name : {"a/train/0.tar", "a/train/1.tar", "a/extra/0.tar"}) {
    fs::create_directories((dir / name).substr(0, (dir / name).rfind('/')));
    write_file(dir / name, shard_bytes(10 * paths.size(), 10));
    paths.push_back(dir / name);
  }
  build_index(home / "x.idx", paths);
  fs::rename(dir / "a", other / "moved");
  const Dataset data = Dataset::open(home / "x.idx", {.root = other / "moved"});
  EXPECT_EQ(wrong_with(data), "");
  EXPECT_EQ(data.index().shard(2).path, other / "moved/extra/0.tar");
  EXPECT_EQ(data.index().shard(2).url, dir / "a/extra/0.tar") << "what is stored stays";
}

TEST(RootTest, NothingIsLookedForOutsideOfIt) {
  const Shards shards(2, 10);
  const TempDir empty;
  // The shards exist where the index says, but are not read, because the user named another root.
  const Dataset data = Dataset::open(shards.index_path(), {.root = empty.path()});
  EXPECT_EQ(error_code([&] { data[0]; }), ErrorCode::kNotFound);
  EXPECT_THAT(error_text([&] { data[0]; }),
              AllOf(HasSubstr("shard not found: '" + empty / "train-0.tar"),
                    HasSubstr("2 of 2 shards"), HasSubstr("Dataset::Options::root"),
                    HasSubstr("'train-0.tar'"), HasSubstr("not in '" + empty.path() + "'")));
}

TEST(RootTest, ARootThatCannotBeMeantIsRefused) {
  const Shards shards(1, 10);
  const auto open = [&](const std::string& root) {
    return [&shards, root] { Dataset::open(shards.index_path(), {.root = root}); };
  };
  EXPECT_EQ(error_code(open(shards.dir() / "none")), ErrorCode::kNotFound);
  EXPECT_THAT(error_text(open(shards.dir() / "none")),
              AllOf(HasSubstr("not exist: '" + shards.dir() / "none'"),
                    HasSubstr("Dataset::Options::root")));
  EXPECT_EQ(error_code(open(shards.path(0))), ErrorCode::kNotFound);
  EXPECT_EQ(error_code(open("https://host/data")), ErrorCode::kUnsupported);
  EXPECT_THAT(error_text(open("https://host/data")), HasSubstr("--relocate OLD NEW"));
}

/// Rewrites the catalogue of an index with this URL for its only shard.
void set_url(const std::string& index, const std::string& url) {
  const IndexFiles files(index);
  CatalogueWriter writer(index, "");
  Index::Shard row = files.catalogue().shard(0);
  row.url = url;
  writer.add_shard(row);
  for (const Index::Summary::Field& field : files.catalogue().fields()) writer.add_field(field);
  writer.finish(files.catalogue().meta());
  writer.commit();
}

TEST(RootTest, NoStoredPathLeadsOutOfIt) {
  const Shards shards(1, 10);
  const TempDir other;
  const std::string name = "/" + shards.name(0);
  fs::create_directory(other / "data");
  fs::copy_file(shards.path(0), other.path() + name);
  const auto open = [&] { Dataset::open(shards.index_path(), {.root = other / "data"}); };
  for (const std::string& url :
       {".." + name, "sub/../.." + name, "/a/../.." + name, "./.." + name, std::string("..")}) {
    set_url(shards.index_path(), url);
    EXPECT_EQ(error_code(open), ErrorCode::kInvalidArgument) << url;
    EXPECT_THAT(error_text(open), HasSubstr("root folder"));
  }
  set_url(shards.index_path(), "https://host" + name);
  EXPECT_EQ(error_code(open), ErrorCode::kUnsupported);
  EXPECT_THAT(error_text(open), AllOf(HasSubstr("remote"), HasSubstr("--relocate OLD NEW")));
  // Below the root, a name that looks like a URL is a file.
  for (const char* url : {"/x/pipe:touch y", "./pipe:touch y"}) {
    set_url(shards.index_path(), url);
    EXPECT_EQ(Index::open(shards.index_path(), {.root = other / "data"})->shard(0).path,
              other / "data/pipe:touch y");
  }
}

TEST(RootTest, AnIndexThatIsOpenKeepsItsOwn) {
  const Shards shards(1, 10);
  const auto index = Index::open(shards.index_path());
  EXPECT_EQ(error_code([&] { Dataset(index, {.root = shards.dir().path()}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_code([&] { Dataset(index, {.accept_times = true}); }),
            ErrorCode::kInvalidArgument);
  const auto rooted = Index::open(shards.index_path(), {.root = shards.dir().path()});
  EXPECT_EQ(wrong_with(Dataset(rooted)), "");
  EXPECT_EQ(wrong_with(Dataset(rooted, {.root = shards.dir().path()})), "");
}

TEST(AcceptTimesTest, CopiesAreReadIfAsked) {
  const Shards shards(3, 10);
  for (const std::string& path : shards.paths()) set_old_time(path, 1'100'000'000);
  for (const Dataset::Access access : kBoth) {
    EXPECT_THAT(
        error_text([&] { Dataset::open(shards.index_path(), {.access = access})[0]; }),
        AllOf(HasSubstr("since it was indexed"), HasSubstr("Dataset::Options::accept_times")));
    EXPECT_EQ(
        wrong_with(Dataset::open(shards.index_path(), {.access = access, .accept_times = true})),
        "");
  }
}

TEST(AcceptTimesTest, AnotherShardIsNoCopy) {
  const Shards shards(3, 10);
  std::string cut = shard_bytes(10, 10);
  cut += std::string(512, '\0');
  write_file(shards.path(1), cut);  // the size differs
  // The size and the first header are equal, but another member follows. A header that is checked
  // is missing.
  std::string other = shard_bytes(20, 10);
  const std::size_t size = other.size();
  other.replace(512, size - 512, std::string(size - 512, 'x'));
  write_file(shards.path(2), other);
  for (const Dataset::Access access : kBoth) {
    const Dataset data =
        Dataset::open(shards.index_path(), {.access = access, .accept_times = true});
    EXPECT_EQ(wrong_with(data, 0), "");
    EXPECT_THAT(error_text([&] { data[10]; }), HasSubstr("bytes now"));
    EXPECT_EQ(error_code([&] { data[20]; }), ErrorCode::kStaleIndex);
    EXPECT_THAT(
        error_text([&] { data[20]; }),
        AllOf(HasSubstr("content differs"), HasSubstr(shards.path(2)), HasSubstr("no header")));
  }
  // In this shard only the first header differs.
  other = shard_bytes(20, 10);
  other[0] = 'e';
  test::TarBuilder::fix_checksum(other.data());
  write_file(shards.path(2), other);
  const Dataset data = Dataset::open(shards.index_path(), {.accept_times = true});
  EXPECT_THAT(error_text([&] { data[20]; }), HasSubstr("first 512 bytes differ"));
}

/// How the names of a tar's files are stored.
enum class NamesBy { kHeader, kPax, kGnu };
std::string tar_of(const std::vector<std::string>& names, NamesBy by, std::size_t salt = 0) {
  test::TarBuilder tar;
  tar.file("first.txt", "the first header is the same");
  for (const std::string& name : names) {
    if (by == NamesBy::kPax) tar.pax({{"path", name}});
    if (by == NamesBy::kGnu) tar.entry("././@LongLink", 'L', name + std::string(1, '\0'));
    tar.file(by == NamesBy::kHeader ? name : "short", name + std::to_string(salt));
  }
  return tar.end().bytes();
}

TEST(AcceptTimesTest, MembersInAnotherOrderAreNoCopy) {
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) names.push_back("dir/00" + std::to_string(10 + i) + ".txt");
  std::vector<std::string> turned(names.rbegin(), names.rend());
  for (const NamesBy by : {NamesBy::kHeader, NamesBy::kPax, NamesBy::kGnu}) {
    const TempDir dir;
    write_file(dir / "a.tar", tar_of(names, by));
    set_old_time(dir / "a.tar");
    build_index(dir / "x.idx", {dir / "a.tar"});
    set_old_time(dir / "a.tar", 1'100'000'000);
    for (const Dataset::Access access : kBoth) {
      const Dataset data = Dataset::open(dir / "x.idx", {.access = access, .accept_times = true});
      EXPECT_EQ(data[30].copy("txt"), "dir/0039.txt0");
    }
    EXPECT_EQ(build_index(dir / "x.idx", {dir / "a.tar"}, {.accept_times = true}).shards_scanned,
              0U);
    write_file(dir / "a.tar", tar_of(turned, by));
    set_old_time(dir / "a.tar", 1'200'000'000);
    for (const Dataset::Access access : kBoth) {
      const Dataset data = Dataset::open(dir / "x.idx", {.access = access, .accept_times = true});
      EXPECT_THAT(error_text([&] { data[1]; }),
                  AllOf(HasSubstr("content differs"), HasSubstr("header right before offset "),
                        HasSubstr("is of 'dir/00"), HasSubstr("', not of 'dir/00")));
    }
    EXPECT_EQ(build_index(dir / "x.idx", {dir / "a.tar"}, {.accept_times = true}).shards_scanned,
              1U);
    EXPECT_TRUE(Index::open(dir / "x.idx")->find("dir/0039") == 1U);
  }
}

TEST(AcceptTimesTest, OtherBytesAreSeenIfThereAreHashes) {
  const TempDir dir;
  const std::vector<std::string> names = {"a.txt", "b.txt", "c.txt"};
  for (const bool hashes : {false, true}) {
    write_file(dir / "a.tar", tar_of(names, NamesBy::kHeader));
    build_index(dir / "x.idx", {dir / "a.tar"}, {.content = {.hashes = hashes}});
    write_file(dir / "a.tar", tar_of(names, NamesBy::kHeader, 1));
    set_old_time(dir / "a.tar");
    const Dataset data = Dataset::open(dir / "x.idx", {.accept_times = true});
    if (hashes) {
      EXPECT_THAT(error_text([&] { data[0]; }), HasSubstr("bytes of 'a.txt' differ"));
    } else {
      EXPECT_EQ(data[1].copy("txt"), "a.txt1") << "which the documentation says";
    }
  }
}

TEST(AcceptTimesTest, ResolvedLinksAndMembersThatWereLeftOutAreInCopies) {
  const TempDir dir;
  test::TarBuilder tar;
  tar.file("README", std::string(10'000, 'x')).pax({{"path", "a.jpg"}}).file("short", "1");
  tar.pax({{"comment", std::string(6000, 'c')}, {"path", "b.jpg"}}).file("short", "2");
  tar.entry("b.png", '1', "", "a.jpg").file("._c.jpg", "3").file("c.jpg", "4");
  tar.entry("c.png", '1', "", "b.jpg").entry("d.jpg", '1', "", "c.png");
  write_file(dir / "a.tar", tar.end().bytes());
  BuildOptions options;
  options.content.policies.link = DefectPolicies::OnLink::kResolve;
  options.content.policies.no_field = DefectPolicies::OnDefect::kSkip;
  options.content.hashes = true;
  build_index(dir / "x.idx", {dir / "a.tar"}, options);
  set_old_time(dir / "a.tar");
  for (const Dataset::Access access : kBoth) {
    const Dataset data = Dataset::open(dir / "x.idx", {.access = access, .accept_times = true});
    ASSERT_EQ(data.size(), 4U);
    EXPECT_EQ(data[1].copy("png"), "1");
    EXPECT_EQ(data[3].copy("jpg"), "2");
  }
}

TEST(AcceptTimesTest, ACompressedCopyComesThroughTheCache) {
  const TempDir dir;
  write_file(dir / "a.tar.gz", test::compress(shard_bytes(0, 10), Compression::kGzip));
  set_old_time(dir / "a.tar.gz");
  build_index(dir / "x.idx", {dir / "a.tar.gz"});
  set_old_time(dir / "a.tar.gz", 1'100'000'000);
  const auto cache = ShardCache::open({.directory = dir / "cache"});
  EXPECT_EQ(error_code([&] { Dataset::open(dir / "x.idx", {.cache = cache})[0]; }),
            ErrorCode::kStaleIndex);
  EXPECT_EQ(wrong_with(Dataset::open(dir / "x.idx", {.cache = cache, .accept_times = true})), "");
}

TEST(MissingShardsTest, TheErrorCountsThemAndSaysWhereTheyAreLookedFor) {
  const Shards shards(11, 2);
  const TempDir other;
  move_away(shards, other / "data");
  for (const Dataset::Access access : kBoth) {
    const Dataset data = Dataset::open(shards.index_path(), {.access = access});
    EXPECT_EQ(error_code([&] { data[0]; }), ErrorCode::kNotFound);
    EXPECT_THAT(error_text([&] { data[4]; }),
                AllOf(HasSubstr("shard not found: '" + shards.path(2) + "'"),
                      HasSubstr("No such file"), HasSubstr("11 of 11 shards"),
                      HasSubstr("folder of the index, '" + shards.dir().path() + "'"),
                      HasSubstr("Dataset::Options::root"),
                      HasSubstr("shardwise index -o INDEX --relocate OLD NEW")));
  }
  fs::rename(other / "data/train-0.tar", shards.path(0));
  EXPECT_THAT(error_text([&] { Dataset::open(shards.index_path())[4]; }),
              HasSubstr("10 of 11 shards"));
}

TEST(MissingShardsTest, AnAbsolutePathIsNotSaidToBeRelative) {
  const Shards shards(1, 2);
  const TempDir home;
  build_index(home / "x.idx", shards.paths());
  fs::remove(shards.path(0));
  EXPECT_THAT(error_text([&] { Dataset::open(home / "x.idx")[0]; }),
              AllOf(HasSubstr("1 of 1 shard"), HasSubstr("this path"), Not(HasSubstr("relative"))));
}

TEST(MissingShardsTest, OfVeryManySomeAreLookedAt) {
  const TempDir dir;
  std::vector<std::string> paths;
  for (int i = 0; i < 1003; ++i) {
    paths.push_back(dir / (std::to_string(i) + ".tar"));
    write_file(paths.back(), shard_bytes(static_cast<std::uint64_t>(i), 1));
  }
  build_index(dir / "x.idx", paths);
  const auto index = Index::open(dir / "x.idx");
  EXPECT_THAT(count_missing_shards(*index), HasSubstr("at least 0 of 1,003"));
  for (const std::string& path : paths) fs::remove(path);
  EXPECT_THAT(count_missing_shards(*index), HasSubstr("at least 1,000 of 1,003"));
}

}  // namespace
}  // namespace shardwise
