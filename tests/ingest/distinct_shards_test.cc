// Shards that are named twice, and names that lead through symbolic links.

#include <filesystem>

#include "ingest/remote_shards.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/source_list.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::error_code;
using test::error_text;
using test::tar_of;
using test::TempDir;
using test::write_file;
using testing::AllOf;
using testing::HasSubstr;

TEST(DistinctShardsTest, AShardUnderAnotherNameIsRefusedWithBoth) {
  const TempDir dir;
  write_file(dir / "a.tar", tar_of("a"));
  fs::create_directory(dir / "sub");
  fs::create_symlink(dir / "a.tar", dir / "link.tar");
  fs::create_hard_link(dir / "a.tar", dir / "hard.tar");
  fs::create_directory_symlink(dir.path(), dir / "sub/up");
  for (const std::string& other : {dir / "./a.tar", dir / "sub/../a.tar", dir / "link.tar",
                                   dir / "hard.tar", dir / "sub/up/a.tar"}) {
    const auto build = [&] { build_index(dir / "x.idx", {dir / "a.tar", other}); };
    EXPECT_EQ(error_code(build), ErrorCode::kInvalidArgument) << other;
    EXPECT_THAT(error_text(build), AllOf(HasSubstr("named twice"),
                                         HasSubstr("'" + dir / "a.tar" + "' and '" + other + "'"),
                                         HasSubstr("name each shard once")));
  }
  EXPECT_FALSE(fs::exists(dir / "x.idx"));
}

TEST(DistinctShardsTest, ACopyIsAnotherShard) {
  const TempDir dir;
  write_file(dir / "a.tar", tar_of("a"));
  fs::copy_file(dir / "a.tar", dir / "b.tar");
  EXPECT_EQ(build_index(dir / "x.idx", {dir / "a.tar", dir / "b.tar"}).summary.num_samples, 2U);
}

TEST(DistinctShardsTest, TheOtherNameMayBeInAnotherPart) {
  const TempDir dir;
  write_file(dir / "a.tar", tar_of("a"));
  fs::create_symlink(dir / "a.tar", dir / "b.tar");
  for (std::uint64_t part = 1; part <= 2; ++part) {
    EXPECT_THAT(error_text([&] {
                  build_index(dir / "x.idx", {dir / "a.tar", dir / "b.tar"},
                              {.part = BuildOptions::Part{part, 2}});
                }),
                HasSubstr("a shard is named twice"));
  }
}

/// A remote source in which every shard exists.
class AnyShards : public RemoteShards {
 public:
  State state(const std::string&) override { return {.size_bytes = 1024, .validator = "v"}; }
  void read(const std::string&, const State&, std::uint64_t, std::optional<std::uint64_t>,
            const std::function<void(std::string_view)>&) override {}
  std::optional<Copy> copy(const std::string&, const State&) override { return std::nullopt; }
  void keep_expanded(const std::string&, const State&, const std::string&, Compression,
                     std::uint64_t) override {}
};

TEST(DistinctShardsTest, UrlsAreComparedInTheirOneSpellingAndShownWithoutSecrets) {
  const TempDir dir;
  const auto text = error_text([&] {
    build_index(dir / "x.idx", {"http://me:pw@Host/x/../a.tar", "http://host:80/a.tar"},
                {.remote = std::make_shared<AnyShards>()});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("named twice"),
                          HasSubstr("'http://Host/x/../a.tar' and 'http://host:80/a.tar'")));
  EXPECT_THAT(error_text([&] {
                build_index(dir / "x.idx",
                            {"http://host/a.tar?X-Amz-Date=1&X-Amz-Signature=1",
                             "http://host/a.tar?X-Amz-Date=2&X-Amz-Signature=2"},
                            {.remote = std::make_shared<AnyShards>()});
              }),
              AllOf(HasSubstr("named twice"),
                    HasSubstr("'http://host/a.tar?X-Amz-Date=***&X-Amz-Signature=***'"),
                    HasSubstr("name each shard once")));
}

/// A remote source that cannot be reached.
class UnreachedShards : public AnyShards {
 public:
  std::optional<State> state_if_reached(const std::string&, std::string& why) override {
    why = "no route";
    return std::nullopt;
  }
};

TEST(RememberingStatesTest, ASourceThatIsNotReachedIsNotWaitedFor) {
  const RemoteAccess remote = remembering_states(std::make_shared<UnreachedShards>(), {});
  std::string why;
  EXPECT_EQ(remote->state_if_reached("http://h/a.tar", why), std::nullopt);
  EXPECT_EQ(why, "no route");
  EXPECT_EQ(remote->state("http://h/a.tar").validator, "v");
  EXPECT_TRUE(remote->state_if_reached("http://h/a.tar", why)) << "the state is known";
}

/// The directory real/deep/ can also be reached as link/. The kernel resolves "link/.." to real/,
/// whose a.tar is the right shard. A purely textual resolution would give the directory of the
/// link, which has another a.tar.
class SymlinkTest : public testing::Test {
 protected:
  SymlinkTest() {
    fs::create_directories(dir_ / "real/deep");
    fs::create_directory_symlink(dir_ / "real/deep", dir_ / "link");
    write_file(dir_ / "real/a.tar", tar_of("right"));
    write_file(dir_ / "a.tar", tar_of("wrong"));
  }

  const TempDir dir_;
};

TEST_F(SymlinkTest, AShardAboveALinkIsFoundAgain) {
  const std::string shard = dir_ / "link/../a.tar";
  build_index(dir_ / "x.idx", {shard});
  EXPECT_TRUE(Index::open(dir_ / "x.idx")->find("right"));
  EXPECT_EQ(Index::open(dir_ / "x.idx")->shard(0).url, "real/a.tar");
  const BuildReport again = update_index(dir_ / "x.idx");
  EXPECT_EQ(again.shards_reused, 1U);
  EXPECT_TRUE(Index::open(dir_ / "x.idx")->find("right"));
}

TEST_F(SymlinkTest, AnIndexAboveALinkFindsItsShards) {
  const std::string index = dir_ / "link/../x.idx";
  build_index(index, {dir_ / "real/a.tar"});
  EXPECT_EQ(Index::open(dir_ / "real/x.idx")->shard(0).url, "a.tar");
  build_index(index, {dir_ / "a.tar"});
  EXPECT_EQ(Index::open(index)->shard(0).url, dir_ / "a.tar") << "not below the index's folder";
  EXPECT_EQ(update_index(index).shards_reused, 1U);
  EXPECT_TRUE(Index::open(index)->find("wrong"));
}

TEST_F(SymlinkTest, ADescriptorsUrlsGoTheSameWay) {
  write_file(dir_ / "d.json",
             R"({"wids_version":1,"shardlist":[{"url":"link/../a.tar","nsamples":1}]})");
  const SourceList list = read_sources({dir_ / "d.json"});
  build_index(dir_ / "x.idx", list.shards);
  EXPECT_TRUE(Index::open(dir_ / "x.idx")->find("right"));
  EXPECT_NO_THROW(check_against_descriptor(*Index::open(dir_ / "x.idx"), list.descriptors[0]));
  write_file(dir_ / "based.json",
             R"({"wids_version":1,"base":"link/..","shardlist":[{"url":"a.tar","nsamples":1}]})");
  EXPECT_THAT(expand_sources({dir_ / "based.json"}), testing::ElementsAre(dir_ / "real/a.tar"));
}

TEST_F(SymlinkTest, ALinkThatLeadsNowhereStaysInThePath) {
  fs::create_directory_symlink(dir_ / "none", dir_ / "dangling");
  EXPECT_EQ(error_code([&] { build_index(dir_ / "x.idx", {dir_ / "dangling/../a.tar"}); }),
            ErrorCode::kNotFound);
}

}  // namespace
}  // namespace shardwise
