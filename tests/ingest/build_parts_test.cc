// Building in parts, merging, bringing up to date, and going on with a build that was cut off.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "shardwise/base/fault_point.h"
#include "shardwise/ingest/index_builder.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TarBuilder;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

std::string table_of(const TempDir& dir, const std::string& index) {
  for (const std::string& name : dir.list()) {
    if (name.starts_with(index + ".") && name.ends_with(".table")) return name;
  }
  return {};
}

BuildOptions part(std::uint64_t number, std::uint64_t count) {
  BuildOptions options;
  options.part = BuildPart{number, count};
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
      options.part = BuildPart{i, count};
      parts.push_back(dir / "elsewhere/p" + std::to_string(i) + ".idx");
      build_index(parts.back(), shards, options);
    }
    std::filesystem::remove(dir / "merged.idx");
    const BuildReport report = merge_indexes(dir / "merged.idx", parts);
    EXPECT_EQ(report.summary.num_shards, 7U);
    EXPECT_TRUE(report.summary.content.unique_keys);
    EXPECT_FALSE(report.summary.part);
    const auto merged = Index::open(dir / "merged.idx");
    merged->check();
    EXPECT_EQ(merged->fingerprint(), Index::open(dir / "one.idx")->fingerprint());
    EXPECT_EQ(merged->shard(3).url, "train-000003.tar") << "relative to the merged index";
    EXPECT_EQ(test::read_file(dir / table_of(dir, "merged.idx")),
              test::read_file(dir / table_of(dir, "one.idx")));
  }
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
  EXPECT_THAT(error({built("whole.idx", shards, {}), p1}), HasSubstr("an index that is no part"));
  const std::vector<std::string> fewer(shards.begin(), shards.end() - 1);
  EXPECT_THAT(error({p1, p2, built("o.idx", fewer, part(3, 3))}),
              HasSubstr("a part of another index: 3/3 of 5 shards"));
  BuildOptions lenient = part(3, 3);
  lenient.content.policies = BadPolicies::all(OnBad::kSkip);
  EXPECT_THAT(error({p1, p2, built("o.idx", shards, lenient)}),
              HasSubstr("a part that was built with other options"));
  EXPECT_FALSE(std::filesystem::exists(dir / "m.idx"));
  EXPECT_THAT(test::error_text([&] { built("x.idx", shards, part(4, 3)); }),
              HasSubstr("no part 4 of 3"));
  EXPECT_THAT(test::error_text([&] { built("x.idx", shards, part(0, 3)); }),
              HasSubstr("parts are numbered from 1"));
  EXPECT_THAT(test::error_text([&] { update_index(p1); }), HasSubstr("the index is part 1/3"));
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

/// Runs a build in a child that is killed when the journal has been written `flushes` times.
void build_and_be_killed(const std::string& index, const std::vector<std::string>& shards,
                         BuildOptions options, int flushes) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    static int left = 0;
    left = flushes;
    set_fault_handler([](const char* name) {
      if (std::string_view(name) == "journal.flushed" && --left == 0) ::raise(SIGKILL);
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
  options.num_threads = 2;
  options.content.policies = BadPolicies::all(OnBad::kSkip);
  options.content.columns = {parse_column("cls")};
  build_index(dir / "whole.idx", shards, options);
  build_and_be_killed(dir / "t.idx", shards, options, 4);
  ASSERT_TRUE(std::filesystem::exists(dir / "t.idx.journal"));
  EXPECT_FALSE(std::filesystem::exists(dir / "t.idx")) << "there is no index yet";

  // Killed again on the way, then a shard changes that was done already.
  build_and_be_killed(dir / "t.idx", shards, options, 3);
  std::filesystem::last_write_time(
      shards[1], std::filesystem::last_write_time(shards[1]) + std::chrono::seconds(1));
  const BuildReport report = build_index(dir / "t.idx", shards, options);
  EXPECT_GE(report.shards_resumed, 3U);
  EXPECT_GE(report.shards_scanned, 1U);
  EXPECT_LT(report.shards_scanned, 10U);
  EXPECT_EQ(report.shards_scanned + report.shards_resumed, 10U);
  Index::open(dir / "t.idx")->check();
  EXPECT_EQ(test::read_file(dir / table_of(dir, "t.idx")),
            test::read_file(dir / table_of(dir, "whole.idx")));
  EXPECT_FALSE(std::filesystem::exists(dir / "t.idx.journal")) << "it is done";
  EXPECT_EQ(dir.list().size(), 10U + 4) << "strays were left";
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
  build_and_be_killed(dir / "t.idx", shards, {}, 3);
  const std::string journal = test::read_file(dir / "t.idx.journal");
  const auto expect_right = [&](const std::string& bytes, std::size_t at) {
    test::write_file(dir / "t.idx.journal", bytes);
    build_index(dir / "t.idx", shards, {.num_threads = 1});
    ASSERT_EQ(test::read_file(dir / table_of(dir, "t.idx")), table) << at;
    std::filesystem::remove(dir / "t.idx");
  };
  expect_right("", 0);
  expect_right("something else", 0);
  for (std::size_t i = 0; i < journal.size(); i += 7) {
    std::string damaged = journal;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    expect_right(damaged, i);
    expect_right(journal.substr(0, i), i);
  }
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
