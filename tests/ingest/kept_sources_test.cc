// What an index stores about its build: sources, columns, secrets.

#include <sys/stat.h>

#include <filesystem>

#include "shardwise/data/dataset.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/source_list.h"
#include "support/one_tar.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::error_code;
using test::error_text;
using test::tar_of;
using test::TarBuilder;
using test::TempDir;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

BuildReport build_from(const std::string& path, const std::vector<std::string>& sources,
                       BuildOptions options = {}) {
  const SourceList list = read_sources(sources);
  options.sources = list.sources;
  return build_index(path, list.shards, options);
}

std::vector<std::string> urls_of(const std::string& path) {
  std::vector<std::string> urls;
  const auto index = Index::open(path);
  for (std::uint64_t i = 0; i < index->num_shards(); ++i) urls.push_back(index->shard(i).url);
  return urls;
}

/// A folder data/ with the shards 0.tar and 1.tar.
class KeptSourcesTest : public testing::Test {
 protected:
  KeptSourcesTest() {
    fs::create_directory(dir_ / "data");
    add(0);
    add(1);
  }
  void add(int number) {
    write_file(dir_ / "data/" + std::to_string(number) + ".tar", tar_of(std::to_string(number)));
  }

  const TempDir dir_;
  const std::string index_ = dir_ / "x.idx";
};

TEST_F(KeptSourcesTest, DirectoriesAndGlobsAreListedAnew) {
  for (const std::string& source : {dir_ / "data", dir_ / "data/", dir_ / "data/*.tar"}) {
    fs::remove(dir_ / "data/2.tar");
    add(0);
    build_from(index_, {source});
    EXPECT_EQ(update_index(index_).shards_reused, 2U) << source;
    add(2);
    fs::remove(dir_ / "data/0.tar");
    const BuildReport report = update_index(index_);
    EXPECT_THAT(urls_of(index_), ElementsAre("data/1.tar", "data/2.tar")) << source;
    EXPECT_EQ(report.shards_scanned, 1U);
    EXPECT_THAT(report.gone, ElementsAre(dir_ / "data/0.tar"));
  }
}

TEST_F(KeptSourcesTest, TheyMoveWithTheIndex) {
  fs::create_directory(dir_ / "all");
  fs::rename(dir_ / "data", dir_ / "all/data");
  build_from(dir_ / "all/x.idx", {dir_ / "all/data/[0-9].tar"});
  fs::rename(dir_ / "all", dir_ / "moved");
  EXPECT_THAT(index_sources(dir_ / "moved/x.idx"), ElementsAre(dir_ / "moved/data/[0-9].tar"));
  EXPECT_EQ(update_index(dir_ / "moved/x.idx").shards_reused, 2U);
  build_from(dir_ / "moved/data/y.idx", {dir_ / "moved/data", dir_ / "moved/x-{0..1}.tar"},
             {.drop_missing = true});
  EXPECT_THAT(index_sources(dir_ / "moved/data/y.idx"),
              ElementsAre(dir_ / "moved/data/.", dir_ / "moved/x-{0..1}.tar"));
}

TEST_F(KeptSourcesTest, ARelativeWordIsFoundFromElsewhere) {
  const fs::path here = fs::current_path();
  fs::current_path(dir_.path());
  build_from("x.idx", {"data/*.tar"});
  EXPECT_THAT(index_sources("x.idx"), ElementsAre("./data/*.tar"));
  fs::create_directory("sub");
  build_from("sub/x.idx", {"data"});
  fs::current_path(here);
  EXPECT_EQ(update_index(index_).shards_reused, 2U);
  EXPECT_THAT(index_sources(dir_ / "sub/x.idx"), ElementsAre(dir_ / "data"));
}

TEST_F(KeptSourcesTest, ShardsNamedOneByOneStayThose) {
  build_from(index_, {dir_ / "data/{0..1}.tar"});
  EXPECT_THAT(index_sources(index_), IsEmpty());
  add(2);
  EXPECT_EQ(update_index(index_).summary.num_shards, 2U);
  EXPECT_THAT(urls_of(index_), ElementsAre("data/0.tar", "data/1.tar"));
}

TEST_F(KeptSourcesTest, OtherWordsOfTheSameShardsAreTakenOver) {
  build_from(index_, {dir_ / "data/0.tar", dir_ / "data/1.tar"});
  EXPECT_EQ(build_from(index_, {dir_ / "data"}).shards_reused, 2U);
  EXPECT_THAT(index_sources(index_), ElementsAre(dir_ / "data"));
}

TEST_F(KeptSourcesTest, MergedPartsHaveThemToo) {
  for (std::uint64_t i = 1; i <= 2; ++i) {
    build_from(dir_ / std::to_string(i), {dir_ / "data"}, {.part = BuildOptions::Part{i, 2}});
  }
  EXPECT_THAT(error_text([&] { index_sources(dir_ / "1"); }),
              HasSubstr("the index is only part 1/2"));
  merge_indexes(index_, {dir_ / "1", dir_ / "2"});
  EXPECT_THAT(index_sources(index_), ElementsAre(dir_ / "data"));
}

TEST(GoneTest, ShardsThatAreNotNamedAgainAreReported) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 4, 2);
  build_index(dir / "x.idx", shards);
  const BuildReport report = build_index(dir / "x.idx", {shards[2], shards[0]});
  EXPECT_THAT(report.gone, ElementsAre(shards[1], shards[3]));
  EXPECT_THAT(build_index(dir / "x.idx", {shards[0], shards[2]}).gone, IsEmpty());
}

TEST(ColumnTest, SamplesWithoutAValueAreCounted) {
  const TempDir dir;
  write_file(dir / "a.tar", TarBuilder()
                                .file("1.json", R"({"w":null})")
                                .file("2.json", "null")
                                .file("3.json", R"({"w":7})")
                                .file("4.txt", "x")
                                .end()
                                .bytes());
  BuildOptions options;
  options.content.columns = {parse_column("json:$.w"), parse_column("none"), parse_column("txt")};
  for (int time = 0; time < 2; ++time) {  // scanned in the first round, unchanged in the second
    const BuildReport report = build_index(dir / "x.idx", {dir / "a.tar"}, options);
    EXPECT_THAT(report.without_value, ElementsAre(3, 4, 3));
    EXPECT_EQ(report.summary.num_skipped, 0U) << "a JSON null is a value like others";
  }
}

TEST(ColumnTest, WhatIsTooLargeForAColumnIsRefusedByName) {
  const TempDir dir;
  BuildOptions options;
  const auto build_one = [&](const std::string& content) {
    write_file(dir / "a.tar", TarBuilder().file("1.f", content).end().bytes());
    options.content.columns = {parse_column("f")};
    return build_index(dir / "x.idx", {dir / "a.tar"}, options);
  };
  EXPECT_NO_THROW(build_one(std::string(4096, '\xff')));
  EXPECT_THAT(
      error_text([&] { build_one(std::string(4097, '\xff')); }),
      AllOf(HasSubstr("more than 4 KiB"), HasSubstr("other than text"),
            HasSubstr("metadata column"), HasSubstr("member '1.f'"), HasSubstr("FIELD:JSONPATH")));
  EXPECT_NO_THROW(build_one(std::string(65'536, 'x')));
  EXPECT_THAT(error_text([&] { build_one(std::string(65'537, 'x')); }),
              AllOf(HasSubstr("text"), HasSubstr("more than 64 KiB"), HasSubstr("metadata column"),
                    HasSubstr("a.tar'"), HasSubstr("FIELD:JSONPATH")));
  EXPECT_NO_THROW(build_one("\"" + std::string(100'000, 'x') + "\"")) << "JSON";
  options.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
  const BuildReport report = build_one(std::string(70'000, 'x'));
  EXPECT_EQ(report.summary.num_skipped, 1U);
  EXPECT_THAT(report.without_value, ElementsAre(1));
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

TEST(SecretUrlTest, AnIndexThatHoldsOneIsItsOwnersAlone) {
  const TempDir dir;
  BuildOptions options;
  options.remote = std::make_shared<test::OneTar>();
  const mode_t usual = [&] {
    write_file(dir / "usual", "");
    return mode_of(dir / "usual");
  }();
  ASSERT_NE(usual, 0600U) << "the umask hides what is tested";
  const auto modes = [&](const std::string& url) {
    fs::remove(dir / "x.idx");
    build_index(dir / "x.idx", {url}, options);
    std::vector<mode_t> found;
    for (const std::string& name : dir.list()) {
      if (name.starts_with("x.idx")) found.push_back(mode_of(dir / name));
      if (name.ends_with(".table")) fs::remove(dir / name);
    }
    return found;
  };
  EXPECT_THAT(modes("http://host/a.tar"), ElementsAre(usual, usual));
  EXPECT_THAT(modes("http://host/a.tar?token=hush"), ElementsAre(0600, 0600));
  // The index does not contain texts that are known to be secret, so it may be public.
  EXPECT_THAT(modes("http://host/a.tar?X-Amz-Signature=hush"), ElementsAre(usual, usual));
  EXPECT_THAT(modes("http://me:hush@host/a.tar"), ElementsAre(usual, usual));
}

TEST(SecretUrlTest, NoErrorTextShowsOne) {
  const TempDir dir;
  write_file(dir / "a.tar", "");
  BuildOptions options;
  options.remote = std::make_shared<test::OneTar>();
  options.content.unique_keys = true;
  EXPECT_THAT(
      error_text([&] {
        build_index(dir / "x.idx", {"http://a/a.tar?k=hush", "http://b/b.tar?k=hush"}, options);
      }),
      AllOf(HasSubstr("key '1'"), HasSubstr("two shards"), HasSubstr("'http://a/a.tar?k=***'"),
            testing::Not(HasSubstr("hush"))));
  options.content.unique_keys = false;
  options.content.columns = {parse_column("txt:$.x")};
  EXPECT_THAT(error_text([&] { build_index(dir / "x.idx", {"http://a/a.tar?k=hush"}, options); }),
              AllOf(HasSubstr("not JSON"), HasSubstr("'http://a/a.tar?k=***', offset 0"),
                    testing::Not(HasSubstr("hush"))));
}

TEST(PartTest, ADatasetOfOneMustBeMeant) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 2);
  build_index(dir / "part.idx", shards, {.part = BuildOptions::Part{2, 3}});
  const auto open = [&] { Dataset::open(dir / "part.idx"); };
  EXPECT_EQ(error_code(open), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_text(open),
              AllOf(HasSubstr("only part 2/3 of 3"), HasSubstr("'" + dir / "part.idx'"),
                    HasSubstr("shardwise merge"), HasSubstr("allow_part")));
  EXPECT_EQ(error_code([&] { Dataset(Index::open(dir / "part.idx")); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(Dataset::open(dir / "part.idx", {.allow_part = true}).size(), 2U);
}

}  // namespace
}  // namespace shardwise
