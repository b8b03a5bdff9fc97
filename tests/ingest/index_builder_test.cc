#include "shardwise/ingest/index_builder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string_view>
#include <thread>

#include "base/fault_point.h"
#include "ingest/index_text.h"
#include "shardwise/index/defect_policies.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::index_text;
using test::TarBuilder;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(IndexBuilderTest, SamplesAreNumberedInTheOrderOfTheShards) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 4);
  const BuildReport report = build_index(dir / "t.idx", {shards[2], shards[0], shards[1]});
  EXPECT_EQ(report.summary.num_samples, 12U);
  EXPECT_EQ(report.summary.num_members, 24U);
  EXPECT_EQ(report.shards_scanned, 3U);
  const auto index = Index::open(dir / "t.idx");
  EXPECT_THAT(index->shard_starts(), ElementsAre(0, 4, 8, 12));
  EXPECT_EQ(index->find("s000008"), 0U);
  EXPECT_EQ(index->find("s000000"), 4U);
  EXPECT_EQ(index->find("s000007"), 11U);
  EXPECT_EQ(index->find("none"), std::nullopt);
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(index->shard_of(i), i / 4);
  EXPECT_EQ(index->shard(1).url, "train-000000.tar") << "relative: the folder can be moved";
  EXPECT_EQ(index->shard(1).path, shards[0]);
}

TEST(IndexBuilderTest, SummaryCountsFieldsAndBytes) {
  const TempDir dir;
  build_index(dir / "t.idx", test::write_shards(dir, 2, 10));
  const Index::Summary summary = Index::open(dir / "t.idx")->summary();
  ASSERT_THAT(summary.fields, SizeIs(2));
  EXPECT_EQ(summary.fields[0].name, "cls");
  EXPECT_EQ(summary.fields[0].num_members, 20U);
  EXPECT_EQ(summary.fields[0].bytes, 20U);
  EXPECT_EQ(summary.fields[1].name, "txt");
  EXPECT_EQ(summary.fields[1].bytes, 10 * 6 + 10 * 7U);
  EXPECT_EQ(summary.content_bytes, 150U);
  EXPECT_EQ(to_string(summary.content.policies), "error");
  EXPECT_THAT(summary.built_with, HasSubstr("shardwise "));
}

TEST(IndexBuilderTest, ShardsOfVeryUnequalLengthAreFoundByEverySampleNumber) {
  const TempDir dir;
  std::vector<std::string> shards;
  std::vector<std::uint64_t> shard_of;
  int sample = 0;
  for (const int length : {0, 1, 0, 0, 257, 3, 0, 1000, 1, 1, 0}) {
    TarBuilder tar;
    for (int i = 0; i < length; ++i, ++sample) {
      tar.file("k" + std::to_string(sample) + ".x", "");
      shard_of.push_back(shards.size());
    }
    tar.end();
    shards.push_back(dir / ("s" + std::to_string(shards.size()) + ".tar"));
    test::write_file(shards.back(), tar.bytes());
  }
  build_index(dir / "t.idx", shards);
  const auto index = Index::open(dir / "t.idx");
  index->validate();
  ASSERT_EQ(index->size(), shard_of.size());
  for (std::uint64_t i = 0; i < index->size(); ++i) {
    ASSERT_EQ(index->shard_of(i), shard_of[i]) << i;
    ASSERT_EQ(index->find("k" + std::to_string(i)), i);
  }
}

TEST(IndexBuilderTest, AnIndexOfNoSamplesIsAnIndex) {
  const TempDir dir;
  test::write_file(dir / "e.tar", TarBuilder().end().bytes());
  build_index(dir / "t.idx", {dir / "e.tar"});
  const auto index = Index::open(dir / "t.idx");
  index->validate();
  EXPECT_EQ(index->size(), 0U);
  EXPECT_EQ(index->find("x"), std::nullopt);
}

TEST(IndexBuilderTest, TheSameTableWhateverTheNumberOfThreads) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 20, 13);
  std::string table;
  for (const unsigned threads : {1U, 2U, 3U, 8U}) {
    build_index(dir / "t.idx", shards, {.threads = threads});
    const std::string bytes = test::read_file(dir / test::table_of(dir, "t.idx"));
    if (table.empty()) table = bytes;
    EXPECT_EQ(bytes, table);
    std::filesystem::remove(dir / "t.idx");
  }
}

TEST(IndexBuilderTest, UnchangedShardsAreNotReadAgain) {
  const TempDir dir;
  auto shards = test::write_shards(dir, 4, 5);
  build_index(dir / "t.idx", shards);
  const std::string before = index_text(dir / "t.idx");
  const auto files = dir.list();

  BuildReport report = build_index(dir / "t.idx", shards);
  EXPECT_EQ(report.shards_scanned, 0U);
  EXPECT_EQ(report.shards_reused, 4U);
  EXPECT_EQ(index_text(dir / "t.idx"), before);
  EXPECT_EQ(dir.list(), files);

  // One shard changes, one is removed, one is added, and the order differs.
  TarBuilder tar;
  tar.file("new.txt", "n").end();
  test::write_file(shards[1], tar.bytes());
  test::write_file(dir / "more.tar", TarBuilder().file("more.txt", "m").end().bytes());
  const std::vector<std::string> now = {dir / "more.tar", shards[3], shards[1], shards[0]};
  report = build_index(dir / "t.idx", now);
  EXPECT_EQ(report.shards_scanned, 2U);
  EXPECT_EQ(report.shards_reused, 2U);
  const std::string updated = index_text(dir / "t.idx");
  EXPECT_EQ(dir.list().size(), files.size() + 1) << "the old table is gone, more.tar is new";
  std::filesystem::remove(dir / "t.idx");
  build_index(dir / "t.idx", now);
  EXPECT_EQ(index_text(dir / "t.idx"), updated) << "an updated index equals one built at once";
}

TEST(IndexBuilderTest, ADamagedIndexIsBuiltAnew) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 2, 5);
  build_index(dir / "t.idx", shards);
  const std::string good = index_text(dir / "t.idx");
  std::string table = test::read_file(dir / test::table_of(dir, "t.idx"));
  table[200] = static_cast<char>(table[200] ^ 1);
  test::write_file(dir / test::table_of(dir, "t.idx"), table);
  EXPECT_EQ(build_index(dir / "t.idx", shards, {.check_index = true}).shards_scanned, 2U);
  EXPECT_EQ(index_text(dir / "t.idx"), good);
}

TEST(IndexBuilderTest, AForeignFileIsNeverReplaced) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 1, 2);
  EXPECT_THAT(test::error_text([&] { build_index(shards[0], shards); }),
              testing::AllOf(HasSubstr("not a Shardwise index"), HasSubstr("not replaced"),
                             HasSubstr("'" + shards[0])));
  test::write_file(dir / "notes.txt", "my notes");
  EXPECT_EQ(test::error_code([&] { build_index(dir / "notes.txt", shards); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::read_file(dir / "notes.txt"), "my notes");
}

TEST(IndexBuilderTest, StrictErrorsNameShardOffsetAndMember) {
  const TempDir dir;
  const auto text = [&](const TarBuilder& tar) {
    test::write_file(dir / "x.tar", tar.bytes());
    const std::string error =
        test::error_text([&] { build_index(dir / "x.idx", {dir / "x.tar"}); });
    EXPECT_THAT(dir.list(), ElementsAre("x.tar")) << "nothing is left behind";
    EXPECT_THAT(error, HasSubstr("x.tar'"));
    EXPECT_THAT(error, HasSubstr("skip"));
    return error;
  };
  EXPECT_THAT(text(TarBuilder().file("a.txt", "1").file("README", "2").end()),
              testing::AllOf(HasSubstr("no key and field"), HasSubstr("KEY.FIELD")));
  EXPECT_THAT(text(TarBuilder().file("a.txt", "1").file("a.TXT", "2").end()),
              testing::AllOf(HasSubstr("field 'TXT' occurs twice"), HasSubstr("sample 'a'")));
  const std::string split =
      text(TarBuilder().file("a.txt", "1").file("b.txt", "2").file("a.cls", "3").end());
  EXPECT_THAT(split, testing::AllOf(HasSubstr("key"), HasSubstr("two places"),
                                    HasSubstr("first at offset 0")));
  EXPECT_THAT(split, HasSubstr("offset 2048, member 'a'"));
}

TEST(IndexBuilderTest, LenientBuildsRecordWhatTheyLeftOut) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("a.txt", "1")
      .file("README", "2")
      .file("b.txt", "3")
      .file("b.txt", "4")
      .file("a.cls", "5");
  tar.file("c.txt", "6").end();
  test::write_file(dir / "x.tar", tar.bytes());
  const auto build = [&](const std::vector<std::string>& shards) {
    return build_index(
        dir / "x.idx", shards,
        {.content = {.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip)}});
  };
  EXPECT_EQ(build({dir / "x.tar"}).summary.num_skipped, 3U);
  const auto expect_skipped = [&](std::uint64_t shard) {
    const auto index = Index::open(dir / "x.idx");
    index->validate();
    EXPECT_EQ(to_string(index->content().policies), "skip");
    const auto skipped = index->skipped(100);
    ASSERT_THAT(skipped, SizeIs(3));
    EXPECT_EQ(skipped[0].name, "README");
    EXPECT_EQ(skipped[0].offset, 1024U);
    EXPECT_EQ(skipped[0].shard, shard);
    EXPECT_EQ(skipped[1].name, "b.txt");
    EXPECT_EQ(skipped[2].name, "a") << "the second place of a key is left out";
    EXPECT_THAT(index->skipped(1), SizeIs(1));
    EXPECT_EQ(index->size(), shard + 3);
  };
  expect_skipped(0);
  // The records are reused for the unchanged shard, which now has another number.
  test::write_file(dir / "y.tar", TarBuilder().file("y.txt", "y").end().bytes());
  EXPECT_EQ(build({dir / "y.tar", dir / "x.tar"}).shards_reused, 1U);
  expect_skipped(1);
  // With the other policy, the shard is scanned again.
  EXPECT_EQ(test::error_code([&] { build_index(dir / "x.idx", {dir / "x.tar"}); }),
            ErrorCode::kCorruptShard);
}

TEST(IndexBuilderTest, LinksAndDirectoriesAreCountedNotIndexed) {
  const TempDir dir;
  TarBuilder tar;
  tar.entry("d/", '5', "")
      .file("d/a.txt", "1")
      .entry("d/latest", '2', "", "a.txt")
      .file("d/a.json", "{}")
      .end();
  test::write_file(dir / "x.tar", tar.bytes());
  const BuildReport report = build_index(dir / "x.idx", {dir / "x.tar"});
  EXPECT_EQ(report.num_not_samples, 2U);
  EXPECT_EQ(report.summary.num_samples, 1U);
  EXPECT_EQ(report.summary.num_members, 2U);
}

// Regression test: a build's report described the index that was at the path by the time of the
// report.
TEST(IndexBuilderTest, AReportIsOfItsOwnBuild) {
  const TempDir dir;
  const std::string shard = dir / "a.tar", other = dir / "b.tar";
  test::write_file(shard, TarBuilder().file("a.x", "1").file("b.cls", "7").end().bytes());
  test::write_file(other, TarBuilder().file("c.x", "1").bytes());
  std::vector<std::thread> threads;
  for (const bool with_column : {false, true}) {
    threads.emplace_back([&, with_column] {
      BuildOptions options{.threads = 1};
      if (with_column) options.content.columns = {parse_column("cls")};
      std::vector<std::string> shards = {shard};
      if (!with_column) shards.push_back(other);
      for (int round = 0; round < 100; ++round) {
        const BuildReport report = build_index(dir / "x.idx", shards, options);
        ASSERT_EQ(report.summary.content, options.content);
        ASSERT_EQ(report.summary.num_shards, shards.size());
        ASSERT_EQ(report.summary.fields.size(), 2u);
        ASSERT_EQ(report.without_value.size(), options.content.columns.size());
        ASSERT_EQ(report.without_end_marker.size(), with_column ? 0u : 1u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(IndexBuilderTest, OddEndingsAreReported) {
  const TempDir dir;
  test::write_file(dir / "a.tar", TarBuilder().file("a.x", "1").bytes());
  test::write_file(dir / "b.tar",
                   TarBuilder().file("b.x", "1").end().file("c.x", "1").end().bytes());
  test::write_file(dir / "c.tar", TarBuilder().file("d.x", "1").end().raw("x").bytes());
  for (int round = 0; round < 2; ++round) {  // scanned in the first round, reused in the second
    const BuildReport report =
        build_index(dir / "x.idx", {dir / "a.tar", dir / "b.tar", dir / "c.tar"});
    EXPECT_THAT(report.without_end_marker, ElementsAre(dir / "a.tar"));
    EXPECT_THAT(report.concatenated, ElementsAre(dir / "b.tar"));
    EXPECT_THAT(report.with_trailing_bytes, ElementsAre(dir / "c.tar"));
  }
}

TEST(IndexBuilderTest, KeysAndPathsThatAreNotUtf8AreKept) {
  const TempDir dir;
  const std::string shard = dir / "caf\xe9.tar";
  test::write_file(shard, TarBuilder().file("k\xff\x80.txt", "1").end().bytes());
  build_index(dir / "x.idx", {shard});
  const auto index = Index::open(dir / "x.idx");
  EXPECT_EQ(index->find("k\xff\x80"), 0U);
  EXPECT_EQ(index->shard(0).path, shard);
}

TEST(IndexBuilderTest, TheErrorOfTheFirstBadShardIsThrownWhateverTheThreads) {
  const TempDir dir;
  auto shards = test::write_shards(dir, 12, 50);
  test::write_file(shards[3], "text");
  test::write_file(shards[9], "text");
  for (int round = 0; round < 20; ++round) {
    EXPECT_THAT(test::error_text([&] { build_index(dir / "t.idx", shards, {.threads = 8}); }),
                HasSubstr("train-000003.tar"));
  }
}

TEST(IndexBuilderTest, MissingShardsAndUnwritablePlacesAreTypedErrors) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 1, 2);
  EXPECT_EQ(test::error_code([&] { build_index(dir / "t.idx", {}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { build_index(dir / "t.idx", {dir / "none.tar"}); }),
            ErrorCode::kNotFound);
  EXPECT_EQ(test::error_code([&] { build_index(dir / "none/t.idx", shards); }),
            ErrorCode::kNotFound);
  EXPECT_THAT(test::error_text([&] { build_index("/proc/t.idx", shards); }),
              HasSubstr("/proc/t.idx"));
  EXPECT_EQ(test::error_code([&] { build_index(dir.path(), shards); }),
            ErrorCode::kInvalidArgument);
}

TEST(IndexBuilderTest, ComparingShardsWithTheOldIndexCanBeCancelled) {
  static std::atomic<bool> cancel;
  static int num_compared;
  const TempDir dir;
  std::vector<std::string> shards = test::write_shards(dir, 8, 5);
  build_index(dir / "t.idx", shards);
  const auto compared_until_cancelled = [&] {
    cancel = false;
    num_compared = 0;
    set_fault_handler([](const char* name) {
      if (std::string_view(name) == "build.compare_shard") cancel = ++num_compared == 3;
    });
    EXPECT_EQ(test::error_code([&] { build_index(dir / "t.idx", shards, {.cancel = &cancel}); }),
              ErrorCode::kCancelled);
    set_fault_handler(nullptr);
    return num_compared;
  };
  EXPECT_EQ(compared_until_cancelled(), 3);
  for (std::string& shard : shards) {
    std::filesystem::rename(shard, shard + ".moved.tar");
    shard += ".moved.tar";
  }
  EXPECT_EQ(compared_until_cancelled(), 3);
}

TEST(IndexBuilderTest, CancellingLeavesTheOldIndex) {
  const TempDir dir;
  auto shards = test::write_shards(dir, 8, 5);
  build_index(dir / "t.idx", {shards[0]});
  const std::string before = index_text(dir / "t.idx");
  const auto files = dir.list();
  std::atomic<bool> cancel{false};
  BuildOptions options{.threads = 2, .cancel = &cancel};
  options.progress = [&](const Progress& p) { cancel = p.shards_done == 3; };
  EXPECT_EQ(test::error_code([&] { build_index(dir / "t.idx", shards, options); }),
            ErrorCode::kCancelled);
  EXPECT_EQ(index_text(dir / "t.idx"), before);
  EXPECT_EQ(dir.list(), files);
}

TEST(IndexBuilderTest, ProgressCountsUpToAll) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 5, 3);
  std::vector<std::uint64_t> done;
  Progress last;
  BuildOptions options;
  options.progress = [&](const Progress& p) {
    done.push_back(p.shards_done);
    last = p;
  };
  build_index(dir / "t.idx", shards, options);
  EXPECT_THAT(done, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(last.num_shards, 5U);
  EXPECT_EQ(last.samples, 15U);
  EXPECT_EQ(last.bytes_done, last.num_bytes);
}

TEST(IndexBuilderTest, ProgressMovesDuringTheFirstShard) {
  const TempDir dir;
  test::TarBuilder tar;
  for (int i = 0; i < 5; ++i) tar.file(std::to_string(i) + ".bin", std::string(6 << 20, 'x'));
  test::write_file(dir / "a.tar", tar.end().bytes());
  for (const bool hashes : {false, true}) {
    std::vector<Progress> seen;
    BuildOptions options;
    options.content.hashes = hashes;
    options.progress = [&](const Progress& p) { seen.push_back(p); };
    build_index(dir / (hashes ? "h.idx" : "t.idx"), {dir / "a.tar"}, options);
    ASSERT_GE(seen.size(), 4U);
    std::uint64_t last = 0;
    for (std::size_t i = 0; i + 1 < seen.size(); ++i) {
      EXPECT_EQ(seen[i].shards_done, 0U);
      EXPECT_GT(seen[i].bytes_done, last);
      EXPECT_LT(seen[i].bytes_done, seen[i].num_bytes);
      last = seen[i].bytes_done;
    }
    EXPECT_EQ(seen.back().bytes_done, seen.back().num_bytes);
  }
}

TEST(IndexBuilderTest, APlanIsWhatTheBuildThenDoes) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 4, 5);
  build_index(dir / "t.idx", {shards[0], shards[1]});
  const auto files = dir.list();
  BuildOptions options;
  options.drop_missing = true;
  const std::vector<std::string> wanted = {shards[1], shards[2], dir / "none.tar"};
  const BuildPlan plan = plan_index(dir / "t.idx", wanted, options);
  EXPECT_THAT(plan.unchanged, ElementsAre(shards[1]));
  EXPECT_THAT(plan.read, ElementsAre(shards[2]));
  EXPECT_THAT(plan.missing, ElementsAre(dir / "none.tar"));
  EXPECT_THAT(plan.gone, ElementsAre(shards[0]));
  EXPECT_EQ(dir.list(), files);
  const BuildReport report = build_index(dir / "t.idx", wanted, options);
  EXPECT_EQ(report.shards_reused, plan.unchanged.size());
  EXPECT_EQ(report.shards_scanned, plan.read.size());
  EXPECT_EQ(report.dropped, plan.missing);
}

TEST(IndexBuilderTest, ReadersSeeTheOldOrTheNewIndexWhileItIsRebuilt) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 3, 20);
  build_index(dir / "t.idx", {shards[0]});
  std::atomic<bool> stop{false};
  std::thread builder([&] {
    for (int i = 0; !stop; ++i) {
      build_index(dir / "t.idx", i % 2 == 0 ? shards : std::vector<std::string>{shards[0]});
    }
  });
  std::set<std::uint64_t> sizes;
  for (int i = 0; i < 300; ++i) {
    const auto index = Index::open(dir / "t.idx");
    sizes.insert(index->size());
    index->validate();
  }
  stop = true;
  builder.join();
  EXPECT_THAT(sizes, testing::IsSubsetOf({20U, 60U}));
}

/// Fault points of two concurrent builds. One build is the sweeper, which removes old tables: it
/// waits at `sweeper_stops_at` until the other build, the builder, is at `builder_reaches`.
struct Meeting {
  const char* sweeper_stops_at;
  const char* builder_reaches;
};
const Meeting* meeting = nullptr;
std::atomic<bool> sweeper_stopped{false};
std::atomic<bool> builder_reached{false};
std::atomic<bool> swept{false};
std::atomic<std::thread::id> sweeper;

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

/// Stops the sweeper at its fault point until the builder is at its own. At "table.committed" the
/// builder then waits until the sweeper has ended. At "table.waits" it does not, because there the
/// build itself waits for the sweeper.
void meet(const char* point) {
  const std::string_view name = point;
  if (std::this_thread::get_id() == sweeper.load()) {
    if (name != meeting->sweeper_stops_at) return;
    sweeper_stopped = true;
    wait_for(builder_reached);
  } else if (sweeper_stopped && name == meeting->builder_reaches) {
    builder_reached = true;
    if (name == "table.committed") wait_for(swept);
  }
}

TEST(IndexBuilderTest, ASweepDoesNotRemoveTheTableThatABuildHasJustReplaced) {
  for (const Meeting& each :
       {Meeting{"sweep.locked", "table.waits"}, Meeting{"sweep.opened", "table.committed"}}) {
    SCOPED_TRACE(each.sweeper_stops_at);
    const TempDir dir;
    const auto shards = test::write_shards(dir, 2, 20);
    build_index(dir / "t.idx", {shards[0]});
    meeting = &each;
    sweeper_stopped = builder_reached = swept = false;
    set_fault_handler(meet);
    std::thread other([&] {  // removes the table of shard 0
      sweeper = std::this_thread::get_id();
      build_index(dir / "t.idx", {shards[1]}, {.threads = 1});
      swept = true;
    });
    wait_for(sweeper_stopped);
    build_index(dir / "t.idx", {shards[0]}, {.threads = 1});
    builder_reached = true;
    other.join();
    set_fault_handler(nullptr);
    EXPECT_EQ(Index::open(dir / "t.idx")->find("s000000"), 0U);
  }
}

TEST(IndexBuilderTest, TwoProcessesMayBuildOneIndexAtOnce) {
  const TempDir dir;
  const auto shards = test::write_shards(dir, 4, 20);
  for (int round = 0; round < 30; ++round) {
    std::vector<pid_t> children;
    for (const std::size_t first : {std::size_t{0}, std::size_t{2}}) {
      const pid_t child = ::fork();
      if (child == 0) {
        try {
          build_index(dir / "t.idx", {shards[first], shards[first + 1]}, {.threads = 1});
          ::_exit(0);
        } catch (const std::exception& e) {
          std::fprintf(stderr, "%s\n", e.what());
          ::_exit(1);
        }
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    const auto index = Index::open(dir / "t.idx");
    index->validate();
    EXPECT_EQ(index->size(), 40U);
  }
}

}  // namespace
}  // namespace shardwise
