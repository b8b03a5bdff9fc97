// Building in parts, merging, updating, and resuming an interrupted build.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string_view>

#include "base/fault_point.h"
#include "base/file.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "ingest/build_journal.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/ingest/index_builder.h"
#include "support/chain.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::table_of;
using test::TarBuilder;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

BuildOptions part(std::uint64_t number, std::uint64_t count) {
  BuildOptions options;
  options.part = BuildOptions::Part{number, count};
  return options;
}

TEST(MergeTest, PartsGiveTheTableOfASingleBuild) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 7, 11);
  BuildOptions options;
  options.content.columns = {parse_column("cls")};
  options.content.hashes = true;
  options.content.unique_keys = true;
  build_index(dir / "one.idx", shards, options);
  std::filesystem::create_directory(dir / "elsewhere");
  for (const std::uint64_t count : {1U, 2U, 3U, 7U, 9U}) {
    SCOPED_TRACE(count);
    std::vector<std::string> parts;
    for (std::uint64_t i = count; i >= 1; --i) {
      options.part = BuildOptions::Part{i, count};
      parts.push_back(dir / "elsewhere/p" + std::to_string(i) + ".idx");
      build_index(parts.back(), shards, options);
    }
    std::filesystem::remove(dir / "merged.idx");
    const BuildReport report = merge_indexes(dir / "merged.idx", parts);
    EXPECT_EQ(report.summary.num_shards, 7U);
    EXPECT_TRUE(report.summary.content.unique_keys);
    EXPECT_FALSE(report.summary.part);
    const auto merged = Index::open(dir / "merged.idx");
    merged->validate();
    EXPECT_EQ(merged->fingerprint(), Index::open(dir / "one.idx")->fingerprint());
    EXPECT_EQ(merged->shard(3).url, "train-000003.tar") << "relative to the merged index";
    EXPECT_EQ(test::read_file(dir / table_of(dir, "merged.idx")),
              test::read_file(dir / table_of(dir, "one.idx")));
  }
}

TEST(MergeTest, ThereMayBeMorePartsThanSixtyFourBitsCanMultiply) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 8, 1);
  constexpr std::uint64_t kMany = std::uint64_t{1} << 62;
  EXPECT_THAT(plan_index(dir / "p.idx", shards, part(kMany, kMany)).read,
              ElementsAre(shards.back()));
  EXPECT_THAT(plan_index(dir / "p.idx", shards, part(kMany - 1, kMany)).read, IsEmpty());
}

TEST(MergeTest, WhatDoesNotBelongTogetherIsRefused) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 6, 3);
  const auto built = [&](const std::string& name, const std::vector<std::string>& from,
                         const BuildOptions& options) {
    build_index(dir / name, from, options);
    return dir / name;
  };
  const std::string p1 = built("p1.idx", shards, part(1, 3));
  const std::string p2 = built("p2.idx", shards, part(2, 3));
  const std::string p3 = built("p3.idx", shards, part(3, 3));
  const auto error = [&](const std::vector<std::string>& parts) {
    EXPECT_EQ(test::error_code([&] { merge_indexes(dir / "m.idx", parts); }), ErrorCode::kMismatch);
    return test::error_text([&] { merge_indexes(dir / "m.idx", parts); });
  };
  EXPECT_THAT(error({p1, p3}), HasSubstr("part 2 of 3 is missing"));
  EXPECT_THAT(error({p1, p2}), HasSubstr("part 3 of 3 is missing"));
  EXPECT_THAT(error({p2, p3}), HasSubstr("part 1 of 3 is missing"));
  EXPECT_THAT(error({p1, p2, p2, p3}), HasSubstr("part 2 is named twice"));
  EXPECT_THAT(error({built("whole.idx", shards, {}), p1}), HasSubstr("not a part"));
  const std::vector<std::string> fewer(shards.begin(), shards.end() - 1);
  EXPECT_THAT(error({p1, p2, built("o.idx", fewer, part(3, 3))}),
              testing::AllOf(HasSubstr("belongs to another index"), HasSubstr("part 3/3 of 5")));
  BuildOptions lenient = part(3, 3);
  lenient.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
  EXPECT_THAT(error({p1, p2, built("o.idx", shards, lenient)}),
              HasSubstr("built with other options"));
  EXPECT_FALSE(std::filesystem::exists(dir / "m.idx"));
  EXPECT_THAT(test::error_text([&] { built("x.idx", shards, part(4, 3)); }),
              HasSubstr("no part 4 of 3"));
  EXPECT_THAT(test::error_text([&] { built("x.idx", shards, part(0, 3)); }),
              HasSubstr("from 1 to"));
  EXPECT_THAT(test::error_text([&] { update_index(p1); }), HasSubstr("the index is only part 1/3"));
}

TEST(UpdateTest, TakesTheShardsAndContentThatTheIndexNames) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 4, 5);
  BuildOptions options;
  options.content.columns = {parse_column("cls")};
  build_index(dir / "t.idx", shards, options);
  EXPECT_EQ(update_index(dir / "t.idx").shards_scanned, 0U);
  TarBuilder tar;
  test::write_file(shards[1], tar.file("new.cls", "3").end().bytes());
  const BuildReport report = update_index(dir / "t.idx");
  EXPECT_EQ(report.shards_scanned, 1U);
  EXPECT_EQ(report.shards_reused, 3U);
  EXPECT_EQ(report.summary.num_samples, 16U);
  EXPECT_EQ(report.summary.content.columns.size(), 1U);
  EXPECT_EQ(Index::open(dir / "t.idx")->find("new"), 5U);

  std::filesystem::remove(shards[2]);
  EXPECT_THAT(test::error_text([&] { update_index(dir / "t.idx"); }),
              HasSubstr("train-000002.tar"));
  EXPECT_EQ(Index::open(dir / "t.idx")->size(), 16U) << "the old index stays";
  const BuildReport dropped = update_index(dir / "t.idx", {.drop_missing = true});
  EXPECT_THAT(dropped.dropped, ElementsAre(shards[2]));
  EXPECT_EQ(dropped.summary.num_samples, 11U);
  EXPECT_EQ(test::error_code([&] { update_index(dir / "none.idx"); }), ErrorCode::kNotFound);
}

/// Runs a build in a child, which is killed when it reaches a fault point for the n-th time. By
/// default that is after the n-th write of the journal.
void build_and_be_killed(const std::string& index, const std::vector<std::string>& shards,
                         BuildOptions options, int n, std::string_view where = "journal.flushed") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    static int left = 0;
    static std::string_view deadly;
    left = n;
    deadly = where;
    set_fault_handler([](const char* name) {
      if (name == deadly && --left == 0) ::raise(SIGKILL);
    });
    options.journal_bytes = 1;
    build_index(index, shards, options);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
}

TEST(JournalTest, AKilledBuildIsGoneOnWith) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 10, 6);
  BuildOptions options;
  options.threads = 2;
  options.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
  options.content.columns = {parse_column("cls")};
  build_index(dir / "whole.idx", shards, options);
  build_and_be_killed(dir / "t.idx", shards, options, 4);
  ASSERT_TRUE(std::filesystem::exists(dir / "t.idx.journal"));
  EXPECT_FALSE(std::filesystem::exists(dir / "t.idx")) << "there is no index yet";

  // The resumed build is killed too. Then a shard changes that was already scanned.
  build_and_be_killed(dir / "t.idx", shards, options, 3);
  std::filesystem::last_write_time(
      shards[1], std::filesystem::last_write_time(shards[1]) + std::chrono::seconds(1));
  const BuildReport report = build_index(dir / "t.idx", shards, options);
  EXPECT_GE(report.shards_resumed, 3U);
  EXPECT_GE(report.shards_scanned, 1U);
  EXPECT_LT(report.shards_scanned, 10U);
  EXPECT_EQ(report.shards_scanned + report.shards_resumed, 10U);
  Index::open(dir / "t.idx")->validate();
  EXPECT_EQ(test::read_file(dir / table_of(dir, "t.idx")),
            test::read_file(dir / table_of(dir, "whole.idx")));
  EXPECT_FALSE(std::filesystem::exists(dir / "t.idx.journal")) << "it is done";
  EXPECT_EQ(dir.list().size(), 10U + 4) << "strays were left";
}

/// Checks that "t.idx", which a resumed build made, has the same table as an uninterrupted build.
void expect_as_built_at_once(const TempDir& dir, const std::vector<std::string>& shards) {
  Index::open(dir / "t.idx")->validate();
  build_index(dir / "whole.idx", shards);
  EXPECT_EQ(test::read_file(dir / table_of(dir, "t.idx")),
            test::read_file(dir / table_of(dir, "whole.idx")));
}

/// A model of builds with a journal: shards change, the list of shards changes, and builds are
/// killed.
class JournalModel : test::Dice {
 public:
  JournalModel(const TempDir& dir, std::uint64_t seed) : Dice(seed), dir_(dir) {
    for (int i = 0; i < 6; ++i) {
      paths_.push_back(dir_ / (std::to_string(i) + ".tar"));
      write(paths_.back());
    }
    list_ = paths_;
  }

  /// Changes something, then runs an update that is killed.
  void step() {
    if (flip()) write(paths_[below(paths_.size())]);
    if (flip()) {
      list_ = paths_;
      shuffle(list_);
      list_.resize(1 + below(list_.size()));
    }
    const auto wanted = expect_plan();
    if (wanted.empty()) return;
    const bool is_table_there = one_in(4);
    const std::size_t num_scanned = is_table_there ? wanted.size() : 1 + below(wanted.size());
    if (is_table_there) {
      build_and_be_killed(dir_ / "t.idx", list_, {.threads = 1}, 1, "table.committed");
    } else {
      build_and_be_killed(dir_ / "t.idx", list_, {.threads = 1}, static_cast<int>(num_scanned));
    }
    for (std::size_t i = 0; i < num_scanned; ++i) journaled_[wanted[i]] = versions_[wanted[i]];
  }

  void finish() {
    const auto wanted = expect_plan();
    const BuildReport report = build_index(dir_ / "t.idx", list_, {.threads = 1});
    EXPECT_EQ(report.shards_scanned, wanted.size());
    EXPECT_EQ(report.shards_resumed, list_.size() - wanted.size());
    expect_as_built_at_once(dir_, list_);
    EXPECT_EQ(dir_.list().size(), paths_.size() + 4) << "strays were left";
  }

 private:
  /// Replaces a shard. The new shard may have the size and time of the old one, because many tools
  /// keep them.
  void write(const std::string& path) {
    const int version = ++num_versions_;
    test::write_file(path, TarBuilder()
                               .file(std::to_string(version) + ".txt", "of " + path)
                               .file("z" + path.substr(path.rfind('/') + 1, 1) + ".txt", "")
                               .end()
                               .bytes());
    std::filesystem::resize_file(path, one_in(4) ? 8192 : 4096);
    const timespec times[2] = {{1'000'000'000 + (flip() ? version : 0), 0},
                               {1'000'000'000 + (flip() ? version : 0), 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    versions_[path] = version;
  }

  /// Returns the shards that must be scanned, in order. Checks that plan_index() reports them.
  std::vector<std::string> expect_plan() const {
    std::vector<std::string> wanted, had;
    for (const std::string& path : list_) {
      const auto at = journaled_.find(path);
      const bool is_had = at != journaled_.end() && at->second == versions_.at(path);
      (is_had ? had : wanted).push_back(path);
    }
    const BuildPlan plan = plan_index(dir_ / "t.idx", list_);
    EXPECT_EQ(plan.read, wanted);
    EXPECT_EQ(plan.resumed, had);
    return wanted;
  }

  const TempDir& dir_;
  std::vector<std::string> paths_, list_;
  std::map<std::string, int> versions_, journaled_;
  int num_versions_ = 0;
};

TEST(JournalTest, KilledInChainsABuildScansWhatChangedAndNoShardTwice) {
  test::for_each_seed(8, 300, [](std::uint64_t seed) {
    const TempDir dir;
    JournalModel model(dir, seed);
    for (int i = 0; i < 6 && !testing::Test::HasFailure(); ++i) model.step();
    model.finish();
  });
}

TEST(JournalTest, AFileThatIsNoJournalStays) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 5);
  const std::string diary = "Dear diary, today I packed my shards.";
  for (const std::uint64_t journal_bytes : {std::uint64_t{1}, BuildOptions().journal_bytes}) {
    const std::string index = dir / (std::to_string(journal_bytes) + ".idx");
    test::write_file(index + ".journal", diary);
    BuildOptions options;
    options.journal_bytes = journal_bytes;
    build_index(index, shards, options);
    EXPECT_EQ(test::read_file(index + ".journal"), diary);
    Index::open(index)->validate();
  }
}

TEST(JournalTest, OneWithoutARecordIsDiscarded) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 5);
  for (const std::string& begin : {std::string(), std::string("SDW"), std::string(100, '\0'),
                                   "SDWJRN5\n" + std::string(8, '\0')}) {
    std::filesystem::remove(dir / "t.idx");
    test::write_file(dir / "t.idx.journal", begin);
    EXPECT_FALSE(has_journal(dir / "t.idx")) << begin.size();
    EXPECT_EQ(build_index(dir / "t.idx", shards).shards_scanned, 3U);
    EXPECT_EQ(dir.list().size(), 3U + 2) << "strays were left";
  }
}

TEST(JournalTest, OneOfAnEarlierVersionIsDiscarded) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 5);
  const std::string journal = dir / "t.idx.journal";
  build_and_be_killed(dir / "t.idx", shards, {}, 2);
  test::write_file(journal, "SDWJRN4\n" + test::read_file(journal).substr(8));
  test::write_file(journal + ".table", std::string(5000, '\0'));
  EXPECT_FALSE(has_journal(dir / "t.idx"));
  EXPECT_THAT(plan_index(dir / "t.idx", shards).resumed, testing::IsEmpty());
  EXPECT_EQ(build_index(dir / "t.idx", shards).shards_scanned, 3U);
  EXPECT_EQ(dir.list().size(), 3U + 2) << "strays were left";
}

TEST(JournalTest, ABuildDoesWithoutOneThatCannotBeOpened) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 5);
  BuildOptions journaled;
  journaled.journal_bytes = 1;
  std::filesystem::create_directory(dir / "a.idx.journal");
  std::filesystem::create_symlink("other", dir / "c.idx.journal");
  ASSERT_EQ(::mkfifo((dir / "d.idx.journal").c_str(), 0600), 0);
  for (const char* name : {"a.idx", "c.idx", "d.idx"}) {
    EXPECT_EQ(build_index(dir / name, shards, journaled).shards_scanned, 3U) << name;
    Index::open(dir / name)->validate();
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "other"));
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "c.idx.journal"));
}

// If another user's journal were used, that user could determine what the index says about shards
// that are not scanned again.
TEST(JournalTest, AnotherUsersIsNeitherUsedNorReplaced) {
  constexpr uid_t kOther = 54'321;
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to act as another user; skipped because this user is not root";
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 5);
  const std::string index = dir / "t.idx";
  build_and_be_killed(index, shards, {}, 2);
  ASSERT_EQ(::chown((index + ".journal").c_str(), kOther, kOther), 0);
  EXPECT_THAT(plan_index(index, shards).resumed, testing::IsEmpty());
  EXPECT_FALSE(has_journal(index));
  BuildOptions journaled;
  journaled.journal_bytes = 1;
  EXPECT_EQ(build_index(index, shards, journaled).shards_scanned, 3U);
  EXPECT_TRUE(std::filesystem::exists(index + ".journal"));
}

TEST(JournalTest, OneThatOthersMayWriteToIsBegunAnew) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 5);
  build_and_be_killed(dir / "t.idx", shards, {}, 2);
  // Mode that earlier versions gave the journal.
  ASSERT_EQ(::chmod((dir / "t.idx.journal").c_str(), 0666), 0);
  EXPECT_THAT(plan_index(dir / "t.idx", shards).resumed, testing::IsEmpty());
  build_and_be_killed(dir / "t.idx", shards, {}, 1);
  EXPECT_THAT(plan_index(dir / "t.idx", shards).resumed, ElementsAre(shards[0]));
  EXPECT_EQ(build_index(dir / "t.idx", shards).shards_resumed, 1U);
  EXPECT_EQ(dir.list().size(), 3U + 2) << "strays were left";
}

TEST(JournalTest, APlanNeedsNoLockOfIt) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 4, 5);
  build_and_be_killed(dir / "t.idx", shards, {}, 2);
  File held = File::open_or_create(dir / "t.idx.journal");
  ASSERT_EQ(held.try_lock(), FileLock::kTaken);
  EXPECT_THAT(plan_index(dir / "t.idx", shards).resumed, ElementsAre(shards[0], shards[1]));
}

TEST(JournalTest, OneOfOtherOptionsIsNotUsed) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 5, 6);
  build_and_be_killed(dir / "t.idx", shards, {}, 3);
  BuildOptions other;
  other.content.hashes = true;
  EXPECT_EQ(build_index(dir / "t.idx", shards, other).shards_scanned, 5U);
}

TEST(JournalTest, EveryDamageCostsOnlyTime) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 4, 3);
  build_index(dir / "whole.idx", shards);
  const std::string table = test::read_file(dir / table_of(dir, "whole.idx"));
  const auto rows_of = [&](const std::string& name) {
    const auto index = Index::open(dir / name);
    std::vector<Index::Shard> rows;
    for (std::uint64_t i = 0; i < index->num_shards(); ++i) rows.push_back(index->shard(i));
    return rows;
  };
  const auto rows = rows_of("whole.idx");
  build_and_be_killed(dir / "t.idx", shards, {}, 3);
  const std::string journal = dir / "t.idx.journal";
  const std::string whole = test::read_file(journal);
  const auto expect_right = [&](const std::string& damaged, std::size_t at) {
    test::write_file(journal, damaged);
    build_index(dir / "t.idx", shards, {.threads = 1});
    ASSERT_EQ(test::read_file(dir / table_of(dir, "t.idx")), table) << at;
    ASSERT_EQ(rows_of("t.idx"), rows) << at;
    std::filesystem::remove(dir / "t.idx");
    const bool is_journal = damaged.empty() || damaged.starts_with("SDWJRN");
    ASSERT_EQ(std::filesystem::exists(journal), !is_journal) << at;
  };
  expect_right("", 0);
  expect_right("something else", 0);
  for (std::size_t i = 0; i < whole.size(); i += 7) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    expect_right(damaged, i);
    expect_right(whole.substr(0, i), i);
  }
}

TEST(JournalTest, AnUpdateThatWasKilledIsGoneOnWith) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 8, 5);
  build_index(dir / "t.idx", {shards.begin(), shards.begin() + 4});
  build_and_be_killed(dir / "t.idx", shards, {}, 2);  // four shards are reused, two were scanned
  const BuildReport report = build_index(dir / "t.idx", shards, {.threads = 1});
  EXPECT_EQ(report.shards_resumed, 2U);
  EXPECT_EQ(report.shards_reused, 6U);
  EXPECT_EQ(report.shards_scanned, 2U);
  Index::open(dir / "t.idx")->validate();
}

// A build that is killed between its two renames leaves a table that no index uses.
TEST(JournalTest, ATableThatWasFinishedWithoutItsIndexIsSweptByABuildThatDoesNotNeedIt) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 5, 5);
  const std::vector<std::string> some(shards.begin(), shards.begin() + 2);
  build_index(dir / "t.idx", some);
  build_and_be_killed(dir / "t.idx", shards, {}, 1, "table.committed");
  EXPECT_EQ(build_index(dir / "t.idx", some).shards_reused, 2U);
  EXPECT_EQ(dir.list().size(), 5U + 2) << "strays were left";
}

TEST(JournalTest, ABuildGoesOnWithoutOneThatCannotBeWritten) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 4, 5);
  static int left;
  left = 3;
  set_fault_handler([](const char* name) {
    if (std::string_view(name) == "journal.flush" && --left == 0) {
      throw Error(ErrorCode::kNoSpace, "the disk is full", "here", "free space");
    }
  });
  BuildOptions options;
  options.journal_bytes = 1;
  EXPECT_EQ(build_index(dir / "t.idx", shards, options).shards_scanned, 4U);
  set_fault_handler(nullptr);
  EXPECT_EQ(left, 0) << "it was not tried again";
  expect_as_built_at_once(dir, shards);
  EXPECT_FALSE(std::filesystem::exists(dir / "t.idx.journal"));
}

// The index may be public, but the journal is always private.
TEST(JournalTest, IsPrivateAsTheIndexIs) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 5, 4);
  const auto mode_of = [&](const std::string& name) {
    struct stat st {};
    EXPECT_EQ(::stat((dir / name).c_str(), &st), 0) << name;
    return st.st_mode & 0777U;
  };
  const unsigned usual = mode_of("train-000000.tar");
  ASSERT_NE(usual, 0600U) << "the umask hides what is tested";
  BuildOptions secret;
  secret.sources = {"http://host/a.tar?token=hush"};
  build_and_be_killed(dir / "t.idx", shards, secret, 2);
  EXPECT_EQ(mode_of("t.idx.journal"), 0600U);
  EXPECT_EQ(build_index(dir / "t.idx", shards).shards_resumed, 2U);
  EXPECT_EQ(mode_of("t.idx"), usual);
  EXPECT_EQ(mode_of(table_of(dir, "t.idx")), usual);

  build_and_be_killed(dir / "u.idx", shards, {}, 2);
  EXPECT_EQ(mode_of("u.idx.journal"), 0600U) << "what others wrote there would be taken over";
  EXPECT_EQ(build_index(dir / "u.idx", shards, secret).shards_resumed, 2U);
  EXPECT_EQ(mode_of("u.idx"), 0600U);
  EXPECT_EQ(mode_of(table_of(dir, "u.idx")), 0600U);
}

TEST(JournalTest, AShortBuildLeavesNone) {
  const TempDir dir;
  auto shards = test::write_shards(dir, 3, 3);
  shards.push_back(dir / "text.tar");
  test::write_file(shards.back(), "no tar");
  EXPECT_THROW(build_index(dir / "t.idx", shards), CorruptShard);
  EXPECT_FALSE(std::filesystem::exists(dir / "t.idx.journal"));
}

}  // namespace
}  // namespace shardwise
