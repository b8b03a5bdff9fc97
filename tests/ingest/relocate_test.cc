// Moved data is not read again: shards are recognised, and indexes are rewritten.
#include "shardwise/ingest/relocate.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/shards.h"
#include "ingest/remote_shards.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/source_list.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::error_code;
using test::error_text;
using test::read_file;
using test::set_old_time;
using test::shard_bytes;
using test::TempDir;
using test::write_file;
using test::wrong_with;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kPerShard = 5;

/// Writes the shards 0 to `count` - 1 into `folder`. Returns their paths.
std::vector<std::string> make_shards(const std::string& folder, std::uint64_t count) {
  fs::create_directories(folder);
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < count; ++i) {
    paths.push_back(folder + "/" + std::to_string(i) + ".tar");
    write_file(paths.back(), shard_bytes(i * kPerShard, kPerShard));
    set_old_time(paths.back(), 1'000'000'000 + static_cast<std::int64_t>(i));
  }
  return paths;
}

std::vector<std::string> paths_in(const std::string& folder, std::uint64_t count) {
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < count; ++i)
    paths.push_back(folder + "/" + std::to_string(i) + ".tar");
  return paths;
}

/// Returns the contents of the offset tables in a folder, by file name.
std::map<std::string, std::string> tables_in(const std::string& folder) {
  std::map<std::string, std::string> tables;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".table")) tables[name] = read_file(entry.path());
  }
  return tables;
}

class MovedTest : public ::testing::Test {
 protected:
  MovedTest() { build_index(index(), paths_, {.sources = {pattern("old")}}); }

  std::string index() const { return home_ / "x.idx"; }
  std::string folder(const std::string& name) const { return dir_ / name; }
  std::string pattern(const std::string& name) const { return folder(name) + "/{0..3}.tar"; }
  std::string shard(const std::string& name, int i) const {
    return folder(name) + "/" + std::to_string(i) + ".tar";
  }
  void move() { fs::rename(folder("old"), folder("new")); }
  std::string wrong() const { return wrong_with(Dataset::open(index())); }

  const TempDir dir_, home_;
  const std::vector<std::string> paths_ = make_shards(dir_ / "old", 4);
};

TEST_F(MovedTest, AFolderThatMovedIsNotReadAgain) {
  const auto tables = tables_in(home_.path());
  ASSERT_EQ(tables.size(), 1U);
  move();
  const auto paths = paths_in(folder("new"), 4);
  EXPECT_THAT(plan_index(index(), paths).read, IsEmpty());
  const BuildReport report = build_index(index(), paths, {.sources = {pattern("new")}});
  EXPECT_EQ(report.shards_scanned, 0U);
  EXPECT_EQ(report.shards_moved, 4U);
  EXPECT_THAT(report.gone, IsEmpty());
  EXPECT_EQ(wrong(), "");
  EXPECT_EQ(tables_in(home_.path()), tables) << "the offset table stays, only names are rewritten";
  EXPECT_THAT(index_sources(index()), ElementsAre(pattern("new")));
  const BuildReport again = update_index(index());
  EXPECT_EQ(again.shards_scanned + again.shards_moved, 0U);
  Index::open(index())->validate();
}

TEST_F(MovedTest, ShardsInAnotherOrderAndNewOnesAreTakenOverToo) {
  move();
  auto paths = paths_in(folder("new"), 5);
  write_file(paths[4], shard_bytes(4 * kPerShard, kPerShard));
  std::swap(paths[0], paths[3]);
  const BuildReport report = build_index(index(), paths);
  EXPECT_EQ(report.shards_scanned, 1U);
  EXPECT_EQ(report.shards_moved, 4U);
  const Dataset data = Dataset::open(index());
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    const std::uint64_t at = i / kPerShard;
    const std::uint64_t is = (at == 0 ? 3 : at == 3 ? 0 : at) * kPerShard + i % kPerShard;
    EXPECT_EQ(data[i].copy("bin"), test::content_of(is));
  }
}

TEST_F(MovedTest, WhatMayBeAnotherIsRead) {
  move();
  set_old_time(shard("new", 0), 1'500'000'000);  // the time differs
  write_file(shard("new", 1), shard_bytes(kPerShard, kPerShard) + std::string(512, '\0'));
  set_old_time(shard("new", 1), 1'000'000'001);  // the size differs
  std::string other = shard_bytes(2 * kPerShard, kPerShard);
  other[0] = 'e';
  test::TarBuilder::fix_checksum(other.data());
  write_file(shard("new", 2), other);
  set_old_time(shard("new", 2), 1'000'000'002);  // the first header differs
  const BuildReport report = build_index(index(), paths_in(folder("new"), 4));
  EXPECT_EQ(report.shards_scanned, 3U);
  EXPECT_EQ(report.shards_moved, 1U);
  EXPECT_EQ(Index::open(index())->find("eir/000010"), 2 * kPerShard);
}

TEST_F(MovedTest, WhatMayBeOneOfTwoIsRead) {
  const TempDir twins;
  for (const char* name : {"/a.tar", "/b.tar"}) {
    fs::copy_file(paths_[0], twins.path() + name);
    set_old_time(twins.path() + name);
  }
  build_index(twins / "x.idx", {twins / "a.tar", twins / "b.tar"});
  fs::rename(twins / "a.tar", twins / "c.tar");
  fs::rename(twins / "b.tar", twins / "d.tar");
  EXPECT_EQ(build_index(twins / "x.idx", {twins / "c.tar", twins / "d.tar"}).shards_scanned, 2U);
  // Both new shards could be the missing one.
  fs::remove(twins / "d.tar");
  build_index(twins / "x.idx", {twins / "c.tar"});
  fs::rename(twins / "c.tar", twins / "e.tar");
  fs::copy_file(twins / "e.tar", twins / "f.tar");
  set_old_time(twins / "f.tar");
  EXPECT_EQ(build_index(twins / "x.idx", {twins / "e.tar", twins / "f.tar"}).shards_scanned, 2U);
}

TEST_F(MovedTest, AShardBesideItsCopyIsNoShardThatMoved) {
  write_file(folder("copy"), read_file(paths_[0]));
  set_old_time(folder("copy"), 1'000'000'000);
  auto paths = paths_;
  paths.push_back(folder("copy"));
  const BuildReport report = build_index(index(), paths);
  EXPECT_EQ(report.shards_scanned, 1U);
  EXPECT_EQ(report.shards_moved, 0U);
}

// The shard has the size, time and first header of another one, but other members. The shard that
// it could be taken for has not moved.
TEST_F(MovedTest, AShardWhoseDoubleIsWhereItWasIsRead) {
  const TempDir doubles;
  for (const char* name : {"a", "b"}) {
    test::TarBuilder tar;
    tar.file("0.txt", "zero").file(std::string("of-") + name + ".txt", "one");
    write_file(doubles / (name + std::string(".tar")), tar.end().bytes());
    set_old_time(doubles / (name + std::string(".tar")));
  }
  build_index(doubles / "x.idx", {doubles / "a.tar"});
  EXPECT_THAT(plan_index(doubles / "x.idx", {doubles / "b.tar"}).unchanged, IsEmpty());
  EXPECT_EQ(build_index(doubles / "x.idx", {doubles / "b.tar"}).shards_scanned, 1U);
  EXPECT_EQ(Index::open(doubles / "x.idx")->find("of-b"), 1U);
  // The same file under another path is not a second shard.
  fs::create_directory_symlink(doubles.path(), doubles / "way");
  const BuildReport report = build_index(doubles / "x.idx", {doubles / "way/b.tar"});
  EXPECT_EQ(report.shards_scanned, 0U);
  EXPECT_EQ(report.shards_moved, 1U);
}

TEST_F(MovedTest, OtherOptionsReadAnew) {
  move();
  EXPECT_EQ(build_index(index(), paths_in(folder("new"), 4), {.content = {.hashes = true}})
                .shards_scanned,
            4U);
}

TEST_F(MovedTest, CopiesAreTakenOverIfTheirTimesAreAccepted) {
  for (const std::string& path : paths_) set_old_time(path, 1'700'000'000);
  EXPECT_EQ(plan_update(index()).read.size(), 4U);
  const auto tables = tables_in(home_.path());
  const BuildReport report = update_index(index(), {.accept_times = true});
  EXPECT_EQ(report.shards_scanned, 0U);
  EXPECT_EQ(report.shards_moved, 4U);
  EXPECT_EQ(tables_in(home_.path()), tables);
  EXPECT_EQ(wrong(), "") << "the index has the new times";
  // Now the path and the time differ.
  fs::copy(folder("old"), folder("new"));
  fs::remove_all(folder("old"));
  EXPECT_EQ(build_index(index(), paths_in(folder("new"), 4), {.accept_times = true}).shards_scanned,
            0U);
  EXPECT_EQ(wrong(), "");
}

TEST_F(MovedTest, WhatIsNoCopyIsReadThoughTimesAreAccepted) {
  std::string other = shard_bytes(0, kPerShard);
  other.replace(512, other.size() - 512, shard_bytes(20, 100).substr(0, other.size() - 512));
  write_file(paths_[0], other.substr(0, other.size() - 1024) + std::string(1024, '\0'));
  EXPECT_EQ(error_code([&] { update_index(index(), {.accept_times = true}); }),
            ErrorCode::kCorruptShard)
      << "it was read";
  // In this shard only the last header differs.
  other = shard_bytes(0, kPerShard);
  const std::string last = test::key_of(kPerShard - 1) + ".cls";
  const std::size_t header = other.find(last);
  other.replace(header, 512, test::TarBuilder::header(last, '0', 1));
  write_file(paths_[0], other);
  EXPECT_EQ(update_index(index(), {.accept_times = true}).shards_scanned, 1U);
}

TEST_F(MovedTest, RelocationRewritesNamesAndWords) {
  const auto tables = tables_in(home_.path());
  move();
  const BuildReport report = relocate_index(index(), {{folder("old"), folder("new")}});
  EXPECT_EQ(report.shards_scanned, 0U);
  EXPECT_EQ(report.shards_moved, 4U);
  EXPECT_EQ(tables_in(home_.path()), tables);
  EXPECT_EQ(wrong(), "");
  EXPECT_THAT(index_sources(index()), ElementsAre(pattern("new")));
  EXPECT_EQ(update_index(index()).shards_scanned, 0U);
}

TEST_F(MovedTest, PathsThatLookLikeEncodedUrlsAreRelocatedAsWritten) {
  const std::vector<std::string> names = {"a%20b.tar", "%41.tar", "q?z.tar", "x#y.tar"};
  const auto paths_of = [&](const std::string& of) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(folder(of) + "/" + name);
    return paths;
  };
  fs::create_directory(folder("odd"));
  std::uint64_t first = 0;
  for (const std::string& path : paths_of("odd")) {
    write_file(path, shard_bytes(first, kPerShard));
    first += kPerShard;
  }
  build_index(index(), paths_of("odd"), {});
  fs::rename(folder("odd"), folder("moved"));
  // Shards with other samples, at the paths that decoding the names would give.
  for (const std::string name : {"a b.tar", "A.tar", "q"}) {
    write_file(folder("moved") + "/" + name, shard_bytes(first, kPerShard));
  }
  relocate_index(index(), {{folder("odd"), folder("moved")}});
  EXPECT_EQ(wrong(), "");
  const Dataset data = Dataset::open(index());
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(data.index().shard(i).path, paths_of("moved")[i]);
  }
}

TEST_F(MovedTest, WordsThatTheNewFolderWouldMakeAPatternAreForgotten) {
  const auto words_after = [&](const std::string& word, const std::string& to) {
    build_index(index(), paths_, {.sources = {word}});
    fs::rename(folder("old"), folder(to));
    relocate_index(index(), {{folder("old"), folder(to)}});
    const auto words = index_sources(index());
    EXPECT_EQ(update_index(index()).shards_scanned, 0U) << word << " " << to;
    EXPECT_EQ(Index::open(index())->num_shards(), 4U) << word << " " << to;
    fs::rename(folder(to), folder("old"));
    return words;
  };
  EXPECT_THAT(words_after(folder("old") + "/*.tar", "new[1]"), IsEmpty());
  EXPECT_THAT(words_after(folder("old") + "/*.tar", "n*"), IsEmpty());
  EXPECT_THAT(words_after(folder("old") + "/*.tar", "back\\slash"), IsEmpty());
  EXPECT_THAT(words_after(folder("old"), "n{0..1}"), IsEmpty());
  EXPECT_THAT(words_after(folder("old"), "n{"), IsEmpty());
  EXPECT_THAT(words_after(pattern("old"), "new[1]"), ElementsAre(pattern("new[1]")));
  EXPECT_THAT(words_after(folder("old"), "new[1]"), ElementsAre(folder("new[1]")));
}

TEST_F(MovedTest, ADescriptorThatNamesShardsWhereTheyWereIsForgotten) {
  const std::string descriptor = home_ / "d.json";
  const auto describe = [&](const std::string& in) {
    std::string shards;
    for (int i = 0; i < 4; ++i) {
      shards += (i == 0 ? "" : ",") + (R"({"nsamples":5,"url":")" + shard(in, i) + R"("})");
    }
    write_file(descriptor, R"({"__kind__":"wids-shard-index-v1","wids_version":1,"shardlist":[)" +
                               shards + "]}");
  };
  describe("old");
  build_index(index(), paths_, {.sources = {descriptor}});
  move();
  relocate_index(index(), {{folder("old"), folder("new")}});
  EXPECT_THAT(index_sources(index()), IsEmpty());
  EXPECT_EQ(update_index(index()).shards_scanned, 0U);
  // A descriptor that was rewritten for the new places remains the index's source.
  fs::rename(folder("new"), folder("old"));
  build_index(index(), paths_, {.sources = {descriptor}});
  move();
  describe("new");
  relocate_index(index(), {{folder("old"), folder("new")}});
  EXPECT_THAT(index_sources(index()), ElementsAre(descriptor));
}

TEST_F(MovedTest, TheLongestRelocationCounts) {
  move();
  fs::rename(shard("new", 2), dir_ / "two.tar");
  const BuildReport report = relocate_index(
      index(), {{folder("old") + "/", folder("new")}, {shard("old", 2), dir_ / "two.tar"}});
  EXPECT_EQ(report.shards_moved, 4U);
  EXPECT_EQ(wrong(), "");
  EXPECT_EQ(Index::open(index())->shard(2).path, dir_ / "two.tar");
  EXPECT_THAT(index_sources(index()), IsEmpty()) << "the pattern stands for other shards now";
  EXPECT_EQ(update_index(index()).shards_scanned, 0U);
}

TEST_F(MovedTest, WhatDidNotMoveIsNotLookedAt) {
  auto paths = paths_;
  paths.push_back(folder("other") + "/4.tar");
  fs::create_directories(folder("other"));
  write_file(paths.back(), shard_bytes(4 * kPerShard, kPerShard));
  build_index(index(), paths);
  move();
  fs::rename(folder("other"), folder("new_other"));  // after the other folder
  EXPECT_EQ(relocate_index(index(), {{folder("old"), folder("new")}}).shards_moved, 4U);
  EXPECT_EQ(Index::open(index())->shard(4).path, paths.back());
  EXPECT_EQ(relocate_index(index(), {{folder("other"), folder("new_other")}}).shards_moved, 1U);
  EXPECT_EQ(wrong(), "");
  EXPECT_THAT(
      error_text([&] {
        relocate_index(index(), {{folder("new_other") + "/4.tar", folder("new") + "/0.tar"}});
      }),
      HasSubstr("a shard is named twice"));
}

TEST_F(MovedTest, AnIndexThatMovedIsRelocatedByWhereItLooks) {
  const std::string beside = folder("old") + "/y.idx";
  build_index(beside, paths_, {.sources = {folder("old") + "/*.tar"}});
  fs::create_directories(folder("home"));
  for (const auto& entry : fs::directory_iterator(folder("old"))) {
    const std::string name = entry.path().filename();
    if (name.starts_with("y.idx")) fs::rename(entry.path(), folder("home") + "/" + name);
  }
  const std::string moved = folder("home") + "/y.idx";
  EXPECT_EQ(relocate_index(moved, {{folder("home"), folder("old")}}).shards_scanned, 0U);
  EXPECT_EQ(wrong_with(Dataset::open(moved)), "");
  EXPECT_THAT(index_sources(moved), ElementsAre(folder("old") + "/*.tar"));
}

TEST_F(MovedTest, RelocationRefusesWhatIsNotWhatItWas) {
  const std::string before = read_file(index());
  move();
  set_old_time(shard("new", 1), 1'700'000'000);
  set_old_time(shard("new", 3), 1'700'000'000);
  const auto relocate = [&](const BuildOptions& options) {
    return relocate_index(index(), {{folder("old"), folder("new")}}, options);
  };
  EXPECT_EQ(error_code([&] { relocate({}); }), ErrorCode::kStaleIndex);
  EXPECT_THAT(error_text([&] { relocate({}); }),
              AllOf(HasSubstr("2 of 4 shards"), HasSubstr("differ from the index"),
                    HasSubstr("'" + shard("new", 1) + "' (the time differs)"),
                    HasSubstr("BuildOptions::accept_times")));
  EXPECT_EQ(read_file(index()), before);
  EXPECT_EQ(relocate({.accept_times = true}).shards_moved, 4U);
  EXPECT_EQ(wrong(), "");
}

TEST_F(MovedTest, RelocationRefusesOtherBytesOfTheSameSizeAndTime) {
  move();
  std::string other = shard_bytes(0, kPerShard);
  other[0] = 'e';
  test::TarBuilder::fix_checksum(other.data());
  write_file(shard("new", 0), other);
  set_old_time(shard("new", 0), 1'000'000'000);
  EXPECT_THAT(error_text([&] {
                relocate_index(index(), {{folder("old"), folder("new")}});
              }),
              AllOf(HasSubstr("1 of 4 shards"),
                    HasSubstr("'" + shard("new", 0) + "' (the first 512 bytes differ)")));
  EXPECT_THAT(error_text([&] {
                relocate_index(index(), {{folder("old"), folder("new")}}, {.accept_times = true});
              }),
              AllOf(HasSubstr("as SOURCE"), Not(HasSubstr("accept-times"))));
}

TEST_F(MovedTest, RelocationNamesWhatItDoesNotFind) {
  const auto text = [&](const Relocation& relocation) {
    return error_text([&] { relocate_index(index(), {relocation}); });
  };
  EXPECT_THAT(text({folder("ol"), folder("new")}),
              AllOf(HasSubstr("no shard"), HasSubstr("below '" + folder("ol") + "'"),
                    HasSubstr("the first shard is '" + shard("old", 0) + "'")));
  move();
  fs::remove(shard("new", 0));
  EXPECT_THAT(text({folder("old"), folder("new")}),
              AllOf(HasSubstr("1 of 4 shards"), HasSubstr("not exist"),
                    HasSubstr("'" + shard("new", 0) + "' (No such file")));
  EXPECT_THAT(text({folder("old"), folder("none")}),
              AllOf(HasSubstr("4 of 4 shards"), HasSubstr("not exist"),
                    HasSubstr("the first is '" + shard("none", 0) + "'")));
  EXPECT_THAT(text({"", folder("new")}), HasSubstr("lacks a folder"));
  EXPECT_EQ(error_code([&] {
              relocate_index(index(), {{folder("old"), "pipe:cat /x"}});
            }),
            ErrorCode::kUnsupported);
}

TEST_F(MovedTest, APartIsNotRelocated) {
  build_index(index(), paths_, {.part = BuildOptions::Part{1, 2}});
  EXPECT_THAT(error_text([&] {
                relocate_index(index(), {{folder("old"), folder("new")}});
              }),
              HasSubstr("index is only part 1/2"));
}

TEST_F(MovedTest, ATableThatAnotherBuildHoldsIsWrittenAnew) {
  const auto tables = tables_in(home_.path());
  const std::string table = home_ / tables.begin()->first;
  const int fd = ::open(table.c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  move();
  EXPECT_EQ(relocate_index(index(), {{folder("old"), folder("new")}}).shards_scanned, 0U);
  EXPECT_EQ(wrong(), "");
  struct stat held {
  }, now{};
  ASSERT_EQ(::fstat(fd, &held), 0);
  ASSERT_EQ(::stat(table.c_str(), &now), 0);
  EXPECT_NE(now.st_ino, held.st_ino) << "whoever holds the old one may take it away";
  ::close(fd);
}

TEST_F(MovedTest, WhatWasLeftOutIsKnownAfterwards) {
  test::TarBuilder tar;
  tar.file("README", "no field").file("a.txt", "1");
  write_file(shard("old", 0), tar.bytes());
  BuildOptions options;
  options.content.policies.no_field = DefectPolicies::OnDefect::kSkip;
  build_index(index(), paths_, options);
  const auto skipped = Index::open(index())->skipped(100);
  ASSERT_EQ(skipped.size(), 1U);
  move();
  EXPECT_EQ(relocate_index(index(), {{folder("old"), folder("new")}}).shards_scanned, 0U);
  EXPECT_EQ(Index::open(index())->skipped(100), skipped);
  EXPECT_EQ(Index::open(index())->summary().num_skipped, 1U);
}

TEST_F(MovedTest, AnIndexOfAnotherNameGetsATableOfItsOwn) {
  const std::string renamed = home_ / "y.idx";
  fs::rename(index(), renamed);
  move();
  EXPECT_EQ(relocate_index(renamed, {{folder("old"), folder("new")}}).shards_scanned, 0U);
  // This build removes old tables that are named after index(). The renamed index must not use
  // such a table.
  build_index(index(), paths_in(folder("new"), 2));
  EXPECT_EQ(wrong_with(Dataset::open(renamed)), "");
}

/// A remote source without a real server.
class FakeShards : public RemoteShards {
 public:
  State state(const std::string& url) override {
    return {bytes(url).size(), validator, has_ranges};
  }
  void read(const std::string& url, const State&, std::uint64_t begin,
            std::optional<std::uint64_t> end,
            const std::function<void(std::string_view)>& take) override {
    const std::string& all = bytes(url);
    const std::string part = all.substr(begin, end.value_or(all.size()) - begin);
    bytes_read += part.size();
    for (std::size_t at = 0; at < part.size(); at += 300) take(part.substr(at, 300));
  }
  std::optional<Copy> copy(const std::string&, const State&) override { return std::nullopt; }
  void keep_expanded(const std::string&, const State&, const std::string&, Compression,
                     std::uint64_t) override {}

  std::map<std::string, std::string> files;
  std::string validator = "\"v1\"";
  bool has_ranges = true;
  std::uint64_t bytes_read = 0;

 private:
  const std::string& bytes(const std::string& url) const {
    const auto found = files.find(url);
    if (found == files.end()) throw NotFound("no such shard", url, "");
    return found->second;
  }
};

class RelocateToServerTest : public MovedTest {
 protected:
  RelocateToServerTest() {
    fs::rename(shard("old", 1), folder("old") + "/a b.tar");
    build_index(index(), names());
    for (const std::string& path : names()) {
      const std::string name = fs::path(path).filename();
      const std::string encoded = name == "a b.tar" ? "a%20b.tar" : name;
      server_->files["https://host/d/" + encoded] = read_file(path);
      server_->files["s3://bucket/d/" + name] = read_file(path);
    }
  }
  std::vector<std::string> names() const {
    return {shard("old", 0), folder("old") + "/a b.tar", shard("old", 2), shard("old", 3)};
  }
  BuildReport relocate(const std::string& from, const std::string& to, bool accept_times = true) {
    return relocate_index(index(), {{from, to}}, {.accept_times = accept_times, .remote = server_});
  }

  const std::shared_ptr<FakeShards> server_ = std::make_shared<FakeShards>();
};

TEST_F(RelocateToServerTest, AFolderBecomesUrlsAndComesBack) {
  std::uint64_t all = 0;
  for (const std::string& path : names()) all += fs::file_size(path);
  const BuildReport report = relocate(folder("old"), "https://host/d/");
  EXPECT_EQ(report.shards_scanned, 0U);
  EXPECT_LE(server_->bytes_read, 4U * 9 * 512);
  const Index::Shard shard = Index::open(index())->shard(1);
  EXPECT_EQ(shard.url, "https://host/d/a%20b.tar");
  EXPECT_EQ(shard.validator, "\"v1\"");
  EXPECT_EQ(shard.mtime_ns, 0);
  // Between two servers the validator identifies the version, so no confirmation is needed.
  EXPECT_EQ(relocate("https://host/d", "s3://bucket/d", false).shards_moved, 4U);
  EXPECT_EQ(Index::open(index())->shard(1).url, "s3://bucket/d/a b.tar");
  server_->validator = "\"v2\"";
  EXPECT_THAT(error_text([&] { relocate("s3://bucket/d", "https://host/d", false); }),
              AllOf(HasSubstr("4 of 4 shards"), HasSubstr("'https://host/d/0.tar'"),
                    HasSubstr("the source sends another version")));
  // Relocation from the server back to files.
  EXPECT_THAT(error_text([&] { relocate("s3://bucket/d", folder("old"), false); }),
              HasSubstr("the source sends another version"));
  EXPECT_EQ(relocate("s3://bucket/d", folder("old")).shards_moved, 4U);
  EXPECT_EQ(wrong(), "");
}

TEST_F(RelocateToServerTest, WithoutAVersionOnlyHashesWouldTell) {
  server_->validator.clear();
  EXPECT_THAT(error_text([&] { relocate(folder("old"), "https://host/d"); }),
              AllOf(HasSubstr("no version"), HasSubstr("ETag"), HasSubstr("Last-Modified")));
  build_index(index(), names(), {.content = {.hashes = true}});
  EXPECT_EQ(relocate(folder("old"), "https://host/d").shards_moved, 4U);
}

TEST_F(RelocateToServerTest, WithoutPartsTheBeginningIsLookedAt) {
  server_->has_ranges = false;
  EXPECT_EQ(relocate(folder("old"), "https://host/d").shards_moved, 4U);
  server_->validator = "\"v2\"";
  server_->files["https://host/d/0.tar"][0] = 'x';
  EXPECT_THAT(error_text([&] { relocate("https://host/d", "https://host/d"); }),
              HasSubstr("first 512 bytes differ"));
}

TEST_F(RelocateToServerTest, AUrlCannotLeadOutOfTheFolder) {
  server_->files["https://host/d/%2e%2e/x.tar"] = read_file(shard("old", 0));
  build_index(index(), {"https://host/d/%2e%2e/x.tar"}, {.remote = server_});
  EXPECT_THAT(error_text([&] { relocate("https://host/d", folder("old")); }),
              HasSubstr("URL has no path"));
}

TEST_F(RelocateToServerTest, SecretsOfTheNewPlaceAreUsedAndNotKept) {
  for (const auto& [url, bytes] : std::map(server_->files)) {
    if (!url.starts_with("https://")) continue;
    server_->files["https://me:pw@" + url.substr(8) + "?sv=1&sig=pw"] = bytes;
    server_->files.erase(url);
  }
  relocate(folder("old"), "https://me:pw@host/d?sv=1&sig=pw");
  EXPECT_EQ(Index::open(index())->shard(1).url, "https://host/d/a%20b.tar");
  EXPECT_EQ(Index::open(index())->summary().url_base, "https://host/d/");
  relocate("https://you:pw@HOST:443/d/?sv=2&sig=pw", "s3://bucket/d", false);
  EXPECT_EQ(Index::open(index())->shard(1).url, "s3://bucket/d/a b.tar");
  for (const auto& entry : fs::directory_iterator(home_.path())) {
    EXPECT_THAT(read_file(entry.path()), Not(HasSubstr("pw"))) << entry.path();
  }
}

// The index has URLs without signatures. A user may name the old place with a signature, or in
// another spelling.
TEST_F(RelocateToServerTest, ASignatureOfTheOldPlaceIsNoPartOfIt) {
  for (const char* old :
       {"https://host/d?X-Amz-Date=1&X-Amz-Credential=me&X-Amz-Signature=pw",
        "https://host/d/?sv=2022-11-02&se=1&sig=p%3D", "https://me:pw@host/d?X-Goog-Signature=pw",
        "https://host/d?Expires=1&KeyName=me&Signature=pw==", "HTTPS://Host:443/d/"}) {
    SCOPED_TRACE(old);
    relocate(folder("old"), "https://host/d");
    EXPECT_EQ(relocate(old, folder("old")).shards_moved, 4U);
    EXPECT_EQ(Index::open(index())->shard(1).path, folder("old") + "/a b.tar");
  }
  relocate(folder("old"), "https://host/d");
  EXPECT_THAT(
      error_text([&] { relocate("https://host/e?sv=1&sig=pw", folder("old")); }),
      AllOf(HasSubstr("no shard"), HasSubstr("below 'https://host/e'"), Not(HasSubstr("pw"))));
}

TEST_F(RelocateToServerTest, WhatMayBeSecretMakesTheFilesPrivate) {
  for (const auto& [url, bytes] : std::map(server_->files)) {
    if (url.starts_with("https://")) server_->files[url + "?token=pw"] = bytes;
  }
  relocate(folder("old"), "https://host/d?token=pw");
  for (const auto& entry : fs::directory_iterator(home_.path())) {
    EXPECT_EQ(fs::status(entry).permissions(), fs::perms::owner_read | fs::perms::owner_write)
        << entry.path();
  }
}

TEST_F(MovedTest, MissingShardsAreCounted) {
  fs::remove(paths_[1]);
  fs::remove(paths_[2]);
  EXPECT_THAT(error_text([&] { build_index(index(), paths_, {.sources = {pattern("old")}}); }),
              AllOf(HasSubstr("2 of 4 shards"), HasSubstr("not exist"),
                    HasSubstr("first is '" + paths_[1] + "'"), HasSubstr("No such file"),
                    HasSubstr("check the path"), HasSubstr("--relocate OLD NEW"),
                    HasSubstr("`shardwise index --drop-missing`")));
  EXPECT_THAT(error_text([&] { build_index(home_ / "new.idx", paths_); }),
              AllOf(HasSubstr("2 of 4 shards do not exist"), Not(HasSubstr("--relocate"))));
}

TEST_F(MovedTest, WordsThatStandForNothingAnyMoreSayWhatToDo) {
  build_index(index(), paths_, {.sources = {folder("old") + "/*.tar"}});
  move();
  EXPECT_THAT(error_text([&] { update_index(index()); }),
              AllOf(HasSubstr("no file matches"), HasSubstr("--relocate OLD NEW")));
}

}  // namespace
}  // namespace shardwise
