// Indexes that are built at first use: their names, sharing, updates and removal.

#include "shardwise/ingest/index_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <latch>
#include <thread>

#include "base/file.h"
#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/defect_policies.h"
#include "support/flock.h"
#include "support/process.h"
#include "support/shards.h"

namespace shardwise::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

std::string shard_of(int first, int count) {
  TarBuilder tar;
  for (int i = first; i < first + count; ++i) tar.file(std::to_string(i) + ".txt", "text");
  return tar.end().bytes();
}

class IndexCacheTest : public ::testing::Test {
 protected:
  IndexCacheTest() {
    fs::create_directory(data());
    for (int i = 0; i < 3; ++i) write_shard(i);
  }

  std::string data() const { return dir_ / "data"; }
  std::string shard(int i) const { return data() + "/" + std::to_string(i) + ".tar"; }
  void write_shard(int i, int count = 2) const { write_file(shard(i), shard_of(10 * i, count)); }
  std::string folder() const { return dir_ / "cache/indexes"; }

  /// The effects of index_for(), in addition to its result.
  struct Done {
    std::string index;
    std::optional<BuildReport> report;
  };
  Done open(const std::string& name, IndexCacheOptions options = {}) const {
    Done done;
    if (options.directory.empty()) options.directory = folder();
    options.on_built = [&](const std::string&, const SourceList&, const BuildReport& report) {
      done.report = report;
    };
    done.index = index_for(name, options);
    return done;
  }
  std::uint64_t samples(const std::string& name) const {
    return Index::open(open(name).index)->size();
  }

  TempDir dir_;
};

TEST_F(IndexCacheTest, ASourceIsToldFromAnIndex) {
  build_index(dir_ / "whole", {shard(0)});
  write_file(dir_ / "cut", read_file(dir_ / "whole").substr(0, 50));
  write_file(dir_ / "notes.txt", "no shard");
  write_file(dir_ / "empty", "");
  write_file(dir_ / "shard-without-suffix", shard_of(0, 1));
  write_file(dir_ / "packed", compress(shard_of(0, 1), Compression::kZstd));
  write_file(dir_ / "bad.tar", "no shard");
  for (const char* index : {"whole", "cut", "notes.txt", "empty", "none", "none.idx", "none-*.idx",
                            "no/folder/x.IDX"}) {
    EXPECT_TRUE(names_an_index(dir_ / index)) << index;
  }
  for (const char* source :
       {"data", "data/0.tar", "shard-without-suffix", "packed", "bad.tar", "none.tar",
        "none.tar.gz", "none.TGZ", "none.json", "none-*.x", "data/{0..2}.tar", "none?"}) {
    EXPECT_FALSE(names_an_index(dir_ / source)) << source;
  }
  for (const char* source : {"-", "@list.txt", "https://x.org/a.tar", "s3://b/x", "pipe:cat x"}) {
    EXPECT_FALSE(names_an_index(source)) << source;
  }
}

TEST_F(IndexCacheTest, AnIndexStandsForItself) {
  build_index(dir_ / "x.idx", {shard(0)});
  const Done done = open(dir_ / "x.idx");
  EXPECT_EQ(done.index, dir_ / "x.idx");
  EXPECT_FALSE(done.report);
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(IndexCacheTest, AMissingIndexIsNotFoundAndNothingIsBuilt) {
  const std::string text = error_text(
      [&] { Dataset::open(data() + "/train.idx", {.index_cache = {.directory = folder()}}); });
  EXPECT_THAT(text, AllOf(HasSubstr("no such file: "), HasSubstr("train.idx")));
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(IndexCacheTest, ADatasetOpensAFolderOfShards) {
  const auto data = Dataset::open(this->data(), {.index_cache = {.directory = folder()}});
  EXPECT_EQ(data.size(), 6U);
  EXPECT_EQ(data.get("21").copy("txt"), "text");
  EXPECT_THAT(data.index().path(), StartsWith(folder() + "/"));
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(dir_ / "cache").permissions(), fs::perms::owner_all);
}

TEST_F(IndexCacheTest, ItIsBuiltOnceAndNamedAlikeFromEveryFolder) {
  const Done first = open(data());
  ASSERT_TRUE(first.report);
  EXPECT_EQ(first.report->shards_scanned, 3U);
  EXPECT_FALSE(open(data()).report);
  EXPECT_FALSE(open(data() + "/").report);
  EXPECT_FALSE(open(data() + "/../data/.").report);
  const std::string pattern = open(data() + "/{0..2}.tar").index;
  const std::string glob = open(data() + "/*.tar").index;
  EXPECT_NE(pattern, first.index) << "these shards, whatever comes into the folder";
  EXPECT_NE(glob, first.index);
  EXPECT_EQ(in_child([&]() -> std::string {
              fs::current_path(dir_.path());
              if (open("data").index != first.index || open("./data").index != first.index) {
                return "another name for the folder";
              }
              if (open("data/{0..2}.tar").index != pattern) return "another name for the pattern";
              fs::current_path(data());
              if (open(".").index != first.index) return "another name for '.'";
              if (open("*.tar").index != glob) return "another name for the glob";
              write_file(dir_ / "list.txt", "0.tar\n1.tar\n2.tar\n");
              return open("@" + (dir_ / "list.txt")).index == pattern ? "" : "another for a list";
            }),
            "");
}

TEST_F(IndexCacheTest, ListsAreTheShardsThatTheyNameFromHere) {
  write_file(dir_ / "list.txt", "0.tar\n");
  fs::create_directory(dir_ / "other");
  write_file(dir_ / "other/0.tar", shard_of(100, 5));
  const auto size_from = [&](const std::string& from) {
    return in_child([&] {
      fs::current_path(from);
      return std::to_string(samples("@" + (dir_ / "list.txt")));
    });
  };
  EXPECT_EQ(size_from(data()), "2");
  EXPECT_EQ(size_from(dir_ / "other"), "5");
  EXPECT_EQ(size_from(data()), "2");
}

TEST_F(IndexCacheTest, WhatDecidesTheContentDecidesTheName) {
  const std::string plain = open(data()).index;
  IndexCacheOptions hashed;
  hashed.build.content.hashes = true;
  const Done other = open(data(), hashed);
  EXPECT_NE(other.index, plain);
  EXPECT_TRUE(Index::open(other.index)->content().hashes);
  EXPECT_FALSE(Index::open(plain)->content().hashes);
  IndexCacheOptions lenient;
  lenient.build.content.policies.damage = DefectPolicies::OnDefect::kSkip;
  EXPECT_NE(open(data(), lenient).index, plain);
  IndexCacheOptions with_column;
  with_column.build.content.columns = {parse_column("txt")};
  EXPECT_NE(open(data(), with_column).index, plain);
  EXPECT_EQ(open(data()).index, plain);
}

TEST_F(IndexCacheTest, ChangedShardsAreSeenWhenItIsOpened) {
  open(data());
  write_shard(1, 7);  // the shard changed
  const Done changed = open(data());
  ASSERT_TRUE(changed.report);
  EXPECT_EQ(changed.report->shards_scanned, 1U);
  EXPECT_EQ(Index::open(changed.index)->size(), 11U);

  write_shard(3);  // a shard was added
  const Done grown = open(data());
  ASSERT_TRUE(grown.report);
  EXPECT_EQ(grown.report->shards_scanned, 1U);
  EXPECT_EQ(Index::open(grown.index)->size(), 13U);

  fs::remove(shard(0));  // a shard was removed
  const Done shrunk = open(data());
  ASSERT_TRUE(shrunk.report);
  EXPECT_EQ(shrunk.report->gone.size(), 1U);
  EXPECT_EQ(Index::open(shrunk.index)->size(), 11U);

  // The shard is replaced by another of the same size, so only its time differs.
  write_file(shard(2), shard_of(50, 2));
  EXPECT_TRUE(open(data()).report);
  EXPECT_TRUE(Index::open(shrunk.index)->find("50"));
  EXPECT_FALSE(open(data()).report);
  // The new shard has the same time as well, so only its first header differs.
  set_old_time(shard(2));
  open(data());
  write_file(shard(2), shard_of(60, 2));
  set_old_time(shard(2));
  EXPECT_TRUE(open(data()).report);
  EXPECT_TRUE(Index::open(shrunk.index)->find("60"));
  EXPECT_EQ(changed.index, shrunk.index);
}

TEST_F(IndexCacheTest, AShardOfAPatternThatWentIsAnError) {
  const std::string pattern = data() + "/{0..2}.tar";
  open(pattern);
  fs::remove(shard(1));
  EXPECT_THAT(error_text([&] { open(pattern); }), HasSubstr(shard(1)));
}

TEST_F(IndexCacheTest, ADamagedOneIsBuiltAgain) {
  const std::string index = open(data()).index;
  write_file(index, read_file(index).substr(0, 5000));
  EXPECT_TRUE(open(data()).report);
  EXPECT_EQ(samples(data()), 6U);
}

TEST_F(IndexCacheTest, OneWhoseFirstBytesAreDamagedIsBuiltAgain) {
  const std::string index = open(data()).index;
  const std::string right = read_file(index);
  for (std::size_t i = 0; i < 100; i += i < 16 || i >= 64 ? 1 : 8) {
    std::string damaged = right;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    write_file(index, damaged);
    EXPECT_EQ(samples(data()), 6U) << "byte " << i;
  }
  write_file(index, "");
  EXPECT_EQ(samples(data()), 6U);
  fs::remove(index);
  fs::create_symlink(dir_ / "nowhere/else", index);
  EXPECT_EQ(samples(data()), 6U);
  EXPECT_FALSE(fs::is_symlink(index));
  fs::remove(index);
  fs::create_directory(index);
  EXPECT_THAT(error_text([&] { open(data()); }),
              AllOf(HasSubstr("is not a file"), HasSubstr(index)));
  EXPECT_TRUE(fs::is_directory(index));
}

TEST_F(IndexCacheTest, ADescriptorsClaimsAreHeldAgainstIt) {
  const auto describe = [&](int num_samples) {
    write_file(dir_ / "set.json", R"({"wids_version": 1, "shardlist": [{"url": "data/0.tar", )"
                                  R"("nsamples": )" +
                                      std::to_string(num_samples) + "}]}");
  };
  describe(2);
  EXPECT_EQ(samples(dir_ / "set.json"), 2U);
  describe(3);  // the index is unchanged, but the claim differs
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(error_text([&] { open(dir_ / "set.json"); }),
                HasSubstr("has 2 samples, not 3 as in"));
  }
}

TEST_F(IndexCacheTest, RefusedASourceSaysWhatToRun) {
  EXPECT_THAT(error_text([&] { open(data(), {.build_missing = false}); }),
              AllOf(HasSubstr("index is needed"), HasSubstr("IndexCacheOptions::build_missing"),
                    HasSubstr("'" + data() + "'"), HasSubstr("`shardwise index -o INDEX SOURCE`"),
                    HasSubstr("give INDEX")));
  build_index(dir_ / "x.idx", {shard(0)});
  EXPECT_EQ(open(dir_ / "x.idx", {.build_missing = false}).index, dir_ / "x.idx");
}

TEST_F(IndexCacheTest, TheFolderIsTheUsers) {
  const auto folder_with = [&](const char* cache, const char* home) {
    return in_child([&] {
      cache == nullptr ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", cache, 1);
      home == nullptr ? ::unsetenv("HOME") : ::setenv("HOME", home, 1);
      return fs::path(index_for(data())).parent_path().string();
    });
  };
  const std::string cache = dir_ / "xdg";
  const std::string home = dir_ / "home";
  EXPECT_EQ(folder_with(cache.c_str(), home.c_str()), cache + "/shardwise");
  EXPECT_EQ(folder_with(nullptr, home.c_str()), home + "/.cache/shardwise");
  EXPECT_EQ(folder_with("relative", home.c_str()), home + "/.cache/shardwise");
  EXPECT_EQ(folder_with("", home.c_str()), home + "/.cache/shardwise");
  EXPECT_THAT(folder_with(nullptr, nullptr),
              AllOf(HasSubstr("no folder is known"), HasSubstr("XDG_CACHE_HOME"), HasSubstr("HOME"),
                    HasSubstr("IndexCacheOptions::directory"),
                    HasSubstr("`shardwise index -o INDEX SOURCE`")));
  EXPECT_THAT(folder_with("/proc/none", nullptr),
              AllOf(HasSubstr("cannot make the directory: '/proc/none"),
                    HasSubstr("; or name another folder (")));
  EXPECT_THROW(open(data(), {.directory = "/proc/none"}), NotFound);
}

TEST_F(IndexCacheTest, AFolderThatOthersMayWriteToIsRefused) {
  fs::create_directory(dir_ / "open");
  fs::permissions(dir_ / "open", fs::perms::all);
  EXPECT_THAT(error_text([&] { open(data(), {.directory = dir_ / "open"}); }),
              AllOf(HasSubstr("cannot be a folder"), HasSubstr("users may write"),
                    HasSubstr("'" + (dir_ / "open") + "'"), HasSubstr("chmod go-w"),
                    HasSubstr("another directory")));
  write_file(dir_ / "file", "");
  EXPECT_THAT(error_text([&] { open(data(), {.directory = dir_ / "file"}); }),
              HasSubstr("(the path names a file)"));
  if (::geteuid() != 0) return;  // only root can give a folder to another user
  fs::create_directory(dir_ / "theirs");
  ASSERT_EQ(::chown((dir_ / "theirs").c_str(), 65534, 65534), 0);
  EXPECT_THAT(error_text([&] { open(data(), {.directory = dir_ / "theirs"}); }),
              HasSubstr("belongs to another user)"));
  EXPECT_TRUE(fs::is_empty(dir_ / "theirs"));
}

TEST_F(IndexCacheTest, OfManyThreadsOneBuilds) {
  constexpr int kThreads = 8;
  std::atomic<int> builds{0};
  std::atomic<int> wrong{0};
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      IndexCacheOptions options;
      options.directory = folder();
      options.on_build = [&](const std::string&, const BuildPlan::RemoteReading&) { ++builds; };
      try {
        if (Index::open(index_for(data(), options))->size() != 6) ++wrong;
      } catch (const std::exception&) {
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(wrong, 0);
}

TEST_F(IndexCacheTest, WhoWaitsIsToldForWhomAndMayGiveUp) {
  const std::string index = open(data()).index;
  write_shard(3);
  File held = File::open_or_create(index + ".lock");
  ASSERT_EQ(held.try_lock(), FileLock::kTaken);
  held.resize(0);
  held.write_at(0, "process 7 on elsewhere");
  std::atomic<bool> cancel{false};
  std::string who;
  IndexCacheOptions options;
  options.directory = folder();
  options.build.cancel = &cancel;
  options.on_wait = [&](const std::string& builder, std::chrono::milliseconds) {
    who = builder;
    cancel = true;
  };
  EXPECT_EQ(error_code([&] { index_for(data(), options); }), ErrorCode::kCancelled);
  EXPECT_EQ(who, "process 7 on elsewhere");
  held.close();
  EXPECT_EQ(samples(data()), 8U);
}

TEST_F(IndexCacheTest, WhereLocksDoNotWorkNobodyWaits) {
  const std::string index = open(data()).index;
  File held = File::open_or_create(index + ".lock");
  ASSERT_EQ(held.try_lock(), FileLock::kTaken);
  write_shard(3);
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS}) {
    flock_behaviour.error = error;
    EXPECT_EQ(samples(data()), 8U);
    fs::remove(index);
  }
  flock_behaviour.error = 0;
}

class UnusedIndexTest : public IndexCacheTest {
 protected:
  static void last_used(const std::string& index, int days_ago) {
    timespec times[2] = {};
    times[0].tv_sec = times[1].tv_sec = std::time(nullptr) - days_ago * 24 * 60 * 60 - 60;
    ASSERT_EQ(::utimensat(AT_FDCWD, (index + ".lock").c_str(), times, 0), 0);
  }
  std::size_t files_of(const std::string& index) const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder())) {
      count += entry.path().string().starts_with(index) ? 1 : 0;
    }
    return count;
  }
};

TEST_F(UnusedIndexTest, WhatNobodyOpenedForThirtyDaysGoesWhenAnotherIsBuilt) {
  const std::string old = open(shard(0)).index;
  const std::string recent = open(shard(1)).index;
  const std::string busy = open(data() + "/{0,1}.tar").index;
  write_file(folder() + "/mine.txt", "");
  last_used(old, 30);
  last_used(recent, 29);
  last_used(busy, 100);
  {
    File held = File::open_or_create(busy + ".lock");
    ASSERT_EQ(held.try_lock(), FileLock::kTaken);
    open(shard(2));
  }
  EXPECT_EQ(files_of(old), 0U);
  EXPECT_EQ(files_of(recent), 3U);
  EXPECT_EQ(files_of(busy), 3U) << "somebody builds it";
  EXPECT_TRUE(fs::exists(folder() + "/mine.txt"));
  EXPECT_EQ(samples(shard(0)), 2U) << "it is built again";
}

TEST_F(UnusedIndexTest, OpeningOneIsUse) {
  const std::string index = open(shard(0)).index;
  last_used(index, 40);
  EXPECT_FALSE(open(shard(0)).report);
  open(shard(1));
  EXPECT_EQ(files_of(index), 3U);
}

}  // namespace
}  // namespace shardwise::test
