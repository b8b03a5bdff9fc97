#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "libtorch/local_ranks.h"
#include "libtorch/rendezvous/hub.h"
#include "shardwise/libtorch/process_group.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise::libtorch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DistributedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_distributed()) GTEST_SKIP() << "this build runs one rank only: it has no Gloo";
  }
};
using LocalRanksTest = DistributedTest;

LocalRanksResult run(int num_ranks, std::vector<std::string> arguments) {
  LocalRanksOptions options;
  options.num_ranks = num_ranks;
  options.arguments = {SHARDWISE_RANK_PROGRAM};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  return run_local_ranks(options);
}

/// Samples with 4x4 images whose level tells the class (20 a class), classes in turn; the label of
/// every fifth is another.
Dataset make_levels(const test::TempDir& dir, const std::string& name, std::size_t count) {
  std::vector<test::Fields> samples;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t shown = i % 12;
    const std::size_t label = i % 5 == 4 ? (shown + 1) % 12 : shown;
    samples.push_back({{"png", test::solid_png(4, 4, static_cast<int>(20 * shown + 10))},
                       {"cls", std::to_string(label)}});
  }
  return test::make_dataset(dir, name, samples, 10);
}

std::vector<std::vector<std::int64_t>> read_rows(const std::string& path) {
  std::vector<std::vector<std::int64_t>> rows;
  std::istringstream in(test::read_file(path));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    rows.emplace_back();
    for (std::int64_t value = 0; words >> value;) rows.back().push_back(value);
  }
  return rows;
}

TEST_F(DistributedTest, CollectivesGiveEveryRankTheSameResult) {
  for (const int world : {2, 3}) EXPECT_TRUE(run(world, {"reduce"}).ok()) << world;
}

TEST_F(DistributedTest, NumbersOfEveryTypeAreReducedAndRoundedOnce) {
  for (const int world : {1, 2, 3}) EXPECT_TRUE(run(world, {"reduce-types"}).ok()) << world;
}

TEST_F(DistributedTest, GradientsOfUnequalBatchesAverageToThoseOfOneProcess) {
  EXPECT_TRUE(run(3, {"gradients"}).ok());
}

TEST_F(DistributedTest, ParametersWithoutGradientsKeepTheirValue) {
  for (const int world : {2, 3}) EXPECT_TRUE(run(world, {"frozen"}).ok()) << world;
}

TEST_F(DistributedTest, GradientsOfSeveralPassesAndTypesAverageToThoseOfOneProcess) {
  EXPECT_TRUE(run(3, {"accumulated"}).ok());
}

TEST_F(DistributedTest, ParametersAndBuffersOfEveryTypeAreThoseOfRank0) {
  for (const int world : {1, 3}) EXPECT_TRUE(run(world, {"types"}).ok()) << world;
}

TEST_F(DistributedTest, BuffersAreAveragedAndRoundedOnce) {
  for (const int world : {1, 2, 3}) EXPECT_TRUE(run(world, {"buffers"}).ok()) << world;
}

TEST_F(DistributedTest, ModelsThatDifferInABitAreNamedOnAllRanks) {
  const test::TempDir dir;
  ASSERT_TRUE(run(3, {"replicas", dir / "errors"}).ok());
  const std::vector<std::vector<std::string>> wanted = {
      {"the ranks' models are not the same: the hash of parameter '0.bias' is '", "on rank 2 and '",
       "on ranks 0 and 1; look for a step"},
      {"the hash of buffer '1.running_mean' is '", "the hash of buffer '1.running_var' is '",
       "on rank 2, '", "on rank 1 and '", "on rank 0", "call average_buffers() before"},
      {"the parameter '2.weight' is 'Float [1, 1]' on rank 2 and not given on ranks 0 and 1"}};
  for (const int rank : {0, 1, 2}) {
    std::istringstream lines(test::read_file(dir / ("errors." + std::to_string(rank))));
    for (const auto& texts : wanted) {
      std::string line;
      std::getline(lines, line);
      for (const std::string& text : texts) EXPECT_THAT(line, HasSubstr(text));
    }
  }
}

TEST_F(DistributedTest, EvaluationCountsEachSampleOnceWhateverTheNumberOfRanks) {
  const test::TempDir dir;
  for (const std::size_t count : {3u, 41u}) {
    const std::string name = "eval" + std::to_string(count);
    make_levels(dir, name, count);
    const std::string right = std::to_string(count - count / 5);
    for (const int world : {1, 2, 3}) {
      EXPECT_TRUE(run(world, {"evaluate", dir / (name + ".idx"), right}).ok())
          << count << " samples, " << world << " ranks";
    }
  }
  // More ranks than samples.
  EXPECT_TRUE(run(5, {"evaluate", dir / "eval3.idx", "3"}).ok());
}

TEST_F(DistributedTest, EvaluationIsTheSameBitsOnAnyNumberOfRanks) {
  const test::TempDir dir;
  make_levels(dir, "eval", 41);
  std::string expected;
  for (const int world : {1, 2, 3, 5}) {
    ASSERT_TRUE(run(world, {"evaluate-bits", dir / "eval.idx", dir / "bits"}).ok()) << world;
    const std::string bits = test::read_file(dir / "bits");
    if (expected.empty()) expected = bits;
    EXPECT_EQ(bits, expected) << world << " ranks";
  }
}

TEST_F(DistributedTest, CheckpointsAreWrittenReadAndRefusedByAllRanksTogether) {
  const test::TempDir dir;
  for (const int world : {1, 3}) {
    EXPECT_TRUE(run(world, {"checkpoint", dir / ("run" + std::to_string(world))}).ok()) << world;
  }
}

TEST_F(DistributedTest, EpochsAreExactAndInStepWhateverTheThreads) {
  const test::TempDir dir;
  constexpr std::size_t kSamples = 31;
  make_levels(dir, "train", kSamples);
  using Step = std::pair<std::int64_t, std::int64_t>;  // epoch, step
  std::map<std::pair<int, int>, std::map<Step, std::set<std::int64_t>>> runs;
  for (const auto& [world, batch] : {std::pair{1, 6}, std::pair{2, 3}, std::pair{3, 2}}) {
    for (const int threads : {0, 3}) {
      const std::string out = dir / ("out" + std::to_string(world) + std::to_string(threads));
      ASSERT_TRUE(run(world, {"epochs", dir / "train.idx", out, std::to_string(threads),
                              std::to_string(batch)})
                      .ok());
      std::map<std::int64_t, std::multiset<std::int64_t>> seen;
      std::map<std::int64_t, std::set<std::int64_t>> positions;
      auto& steps = runs[{world, threads}];
      for (int rank = 0; rank < world; ++rank) {
        for (const auto& row : read_rows(out + "." + std::to_string(rank))) {
          seen[row[0]].insert(row[2]);
          positions[row[0]].insert(row[3]);
          steps[{row[0], row[1]}].insert(row[2]);
        }
      }
      for (const std::int64_t epoch : {0, 1}) {
        EXPECT_EQ(seen[epoch].size(), kSamples);
        EXPECT_EQ(positions[epoch].size(), kSamples);
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(kSamples); ++i) {
          EXPECT_EQ(seen[epoch].count(i), 1u);
          EXPECT_EQ(positions[epoch].count(i), 1u);
        }
      }
      EXPECT_NE((steps[{0, 0}]), (steps[{1, 0}])) << "epochs are shuffled alike";
    }
  }
  // With the same samples a step over all ranks, every step is the same set for every world size.
  for (const auto& [key, steps] : runs) EXPECT_EQ(steps, runs.begin()->second);
}

TEST_F(DistributedTest, ARunResumedOnAnotherNumberOfRanksLosesAndRepeatsNothing) {
  const test::TempDir dir;
  constexpr std::int64_t kSamples = 41;
  make_levels(dir, "train", kSamples);
  const std::string out = dir / "out";
  // 2 ranks take 3 steps of 3, 3 ranks one, 1 rank two, 4 ranks the rest; each proves what it can.
  for (const auto& [world, steps] : {std::pair{2, 3}, {3, 1}, {1, 2}, {4, 100}}) {
    ASSERT_TRUE(
        run(world, {"resume", dir / "train.idx", dir / "token", std::to_string(steps), out}).ok())
        << world;
  }
  std::multiset<std::int64_t> seen;
  for (int rank = 0; rank < 4; ++rank) {
    for (const auto& row : read_rows(out + "." + std::to_string(rank))) seen.insert(row[0]);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kSamples));
  for (std::int64_t i = 0; i < kSamples; ++i) EXPECT_EQ(seen.count(i), 1u) << i;
}

/// What ranks noted under "elastic": the samples of each step, and the proofs.
std::pair<std::map<std::int64_t, std::multiset<std::int64_t>>, std::string> read_elastic(
    const std::string& out) {
  std::map<std::int64_t, std::multiset<std::int64_t>> steps;
  for (int rank = 0; rank < 4; ++rank) {
    for (const auto& row : read_rows(out + "." + std::to_string(rank))) {
      steps[row[0]].insert(row[1]);
    }
  }
  return {steps, test::read_file(out + ".proofs")};
}

TEST_F(DistributedTest, AnElasticRunHasTheGlobalBatchesAndProofsOfAnUninterruptedOne) {
  const test::TempDir dir;
  make_levels(dir, "train", 23);  // five steps an epoch, the last of three samples
  const auto run_for = [&](int world, std::uint64_t steps, const std::string& name) {
    for (int rank = 0; rank < 4; ++rank) {  // every file is there
      std::ofstream(dir / (name + "." + std::to_string(rank)), std::ios::app);
    }
    ASSERT_TRUE(run(world, {"elastic", dir / "train.idx", dir / (name + ".pt"),
                            std::to_string(steps), dir / name})
                    .ok())
        << world;
  };
  run_for(1, 100, "whole");
  const auto whole = read_elastic(dir / "whole");
  EXPECT_EQ(whole.first.size(), 15u);
  EXPECT_THAT(whole.second, HasSubstr("epoch 2: 23 samples, each exactly once: proven"));
  std::mt19937_64 random(15);
  for (const char* const name : {"a", "b"}) {
    run_for(2, 1 + random() % 6, name);
    run_for(4, 1 + random() % 6, name);
    run_for(1, 1 + random() % 2, name);
    run_for(3, 100, name);
    EXPECT_EQ(read_elastic(dir / name), whole) << name;
  }
}

TEST_F(DistributedTest, ThreeProcessesLiveThroughTwoHundredChainsOfResumes) {
  const test::TempDir dir;
  // Some images are broken, so that bad samples are among what the chains meet.
  std::vector<test::Fields> samples;
  for (int i = 0; i < 43; ++i) {
    samples.push_back({{"png", i % 17 == 5 ? "broken" : test::solid_png(4, 4, i)},
                       {"cls", std::to_string(i % 7)}});
  }
  test::make_dataset(dir, "train", samples, 10);
  const auto result =
      run(3, {"chains", dir / "train.idx", std::to_string(test::repeats(100, 2000))});
  EXPECT_TRUE(result.ok());
}

TEST_F(DistributedTest, AnEpochWithABatchLeftOutIsNotProvenOnAnyRank) {
  const test::TempDir dir;
  make_levels(dir, "train", 20);
  EXPECT_TRUE(run(3, {"unproven", dir / "train.idx"}).ok());
}

TEST_F(DistributedTest, OfALostPeerAllOthersSayWhichItWas) {
  const test::TempDir dir;
  for (const auto& [victim, calls] : {std::pair{0, 5}, {1, 0}, {2, 11}}) {
    const std::string out = dir / ("error" + std::to_string(victim));
    const auto result = run(3, {"lost", out, std::to_string(victim), std::to_string(calls)});
    EXPECT_EQ(result.first_failed, victim);
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(victim)].signal, SIGKILL);
    const std::string last_call =
        calls == 0 ? "none" : std::to_string(calls) + ", all_reduce(sum) of 1000 Float";
    for (const int rank : {0, 1, 2}) {
      if (rank == victim) continue;
      EXPECT_EQ(result.ranks[static_cast<std::size_t>(rank)].exit_code, 0);
      EXPECT_THAT(test::read_file(out + "." + std::to_string(rank)),
                  AllOf(HasSubstr("cannot reduce over the ranks (a rank ended): rank " +
                                  std::to_string(rank) + " of 3 lost rank " +
                                  std::to_string(victim) + " of 3 (host "),
                        HasSubstr("; the last call of all ranks was " + last_call +
                                  "; look at what was "
                                  "said there last"),
                        HasSubstr("after an earlier failure")));
    }
  }
}

TEST_F(DistributedTest, APeerThatHangsIsNamedAtTheTimeout) {
  const test::TempDir dir;
  run(3, {"hang", dir / "error"});
  for (const int rank : {0, 2}) {
    EXPECT_THAT(test::read_file(dir / ("error." + std::to_string(rank))),
                AllOf(HasSubstr("cannot wait for the ranks ("), HasSubstr("lost "),
                      HasSubstr("rank 1 of 3 (host "),
                      HasSubstr("the last call of all ranks was 1, all_reduce(sum) of 1 Long")));
  }
}

TEST_F(DistributedTest, RanksThatDoNotComeAreNamed) {
  const test::TempDir dir;
  EXPECT_TRUE(run(1, {"absent", dir / "error"}).ok());
  EXPECT_THAT(test::read_file(dir / "error"),
              AllOf(HasSubstr("2 of 3 ranks did not come"), HasSubstr("missing ranks 1 and 2")));
}

TEST_F(DistributedTest, TwoProcessesOfOneRankAreRefused) {
  const test::TempDir dir;
  EXPECT_TRUE(run(2, {"twice", dir / "error"}).ok());
  std::string texts;
  for (const auto& name : dir.list()) texts += test::read_file(dir / name);
  EXPECT_THAT(texts, HasSubstr("two processes are the same rank"));
}

std::uint16_t free_port() {
  const shardwise::detail::Socket socket = shardwise::detail::listen_at("127.0.0.1", 0);
  sockaddr_in place{};
  socklen_t size = sizeof place;
  EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  return ntohs(place.sin_port);
}

TEST_F(DistributedTest, ByHandRanksMeetAtAPortAndMayMeetAgain) {
  EXPECT_TRUE(run(3, {"by-hand", std::to_string(free_port())}).ok());
}

TEST_F(DistributedTest, TheReportOfAnEpochNamesTheSlowestRank) {
  const test::TempDir dir;
  ASSERT_TRUE(run(3, {"report", dir / "report"}).ok());
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size()), 0);
  const std::string name = host.data();
  for (const char* const rank : {"0", "1", "2"}) {
    EXPECT_EQ(test::read_file(dir / ("report." + std::string(rank))),
              " rank      wait    compute   exchange    loading   MB read  bad  host\n"
              "    0    0.50 s     3.00 s     6.50 s     1.25 s       2.5    0  " +
                  name +
                  "\n"
                  "    1    6.00 s     3.00 s     1.00 s     2.50 s       2.5    1  " +
                  name +
                  "\n"
                  "    2    0.50 s     3.00 s     6.50 s     3.75 s       2.5    2  " +
                  name + "\nslowest: rank 1 (host " + name +
                  "): 6.00 s of waiting for data and 3.00 s of compute\n");
  }
}

TEST_F(DistributedTest, RanksOutOfStepHearWhichCallsTheyWereAt) {
  const test::TempDir dir;
  ASSERT_TRUE(run(3, {"out-of-step", dir / "errors"}).ok());
  const std::vector<std::string> wanted = {
      "the call is '2, all_reduce(sum) of 1 Long' on rank 2 and '2, barrier' on ranks 0 and 1",
      "'2, all_reduce(sum) of 1 Long' on rank 2 and '2, all_reduce(sum) of 1 Double' on ranks 0",
      "'2, all_reduce(sum) of 101 Float' on rank 2 and '2, all_reduce(sum) of 100 Float'",
      "'2, all_reduce(sum) of 100000 Float' on rank 2 and '2, all_reduce(sum) of 10 Float'",
      "'2, all_reduce(max) of 1000 Float' on rank 2 and '2, all_reduce(sum) of 1000 Float'",
      "'2, broadcast from rank 1 of 1000 Float' on rank 2 and '2, broadcast from rank 0 of 1000",
      "'2, all_reduce(sum) of 1000 Float' on rank 2 and '2, require_same' on ranks 0 and 1"};
  for (const int rank : {0, 1, 2}) {
    std::istringstream lines(test::read_file(dir / ("errors." + std::to_string(rank))));
    for (const std::string& text : wanted) {
      std::string line;
      std::getline(lines, line);
      EXPECT_THAT(line, AllOf(HasSubstr("(the ranks are out of step): rank " +
                                        std::to_string(rank) + " of 3: "),
                              HasSubstr(text), HasSubstr("the same calls in the same order")));
    }
  }
}

TEST_F(DistributedTest, RanksThatGoByOtherDataOrOptionsHearItBeforeTheFirstSum) {
  // faults.md 54
  const test::TempDir dir;
  make_levels(dir, "train", 20);
  make_levels(dir, "other", 21);
  ASSERT_TRUE(run(3, {"contract", dir / "train.idx", dir / "other.idx", dir / "errors"}).ok());
  const std::vector<std::vector<std::string>> wanted = {
      {"the batch size is '64' on rank 2 and '32' on ranks 0 and 1"},
      {"the notes is 'xxxx", "on rank 2 and 'xxx' on ranks 0 and 1"},
      {"the data set", "on rank 2 and '"},
      {"the batch size is '3' on rank 2 and '2' on ranks 0 and 1"},
      {"the order", "on rank 2 and '"},
      {"the set of columns is", "on rank 2 and '"},
      {"the parameter 'weight' is 'Float [3, 4]' on rank 2 and 'Float [2, 4]' on ranks 0 and 1"}};
  for (const int rank : {0, 1, 2}) {
    std::istringstream lines(test::read_file(dir / ("errors." + std::to_string(rank))));
    for (const auto& texts : wanted) {
      std::string line;
      std::getline(lines, line);
      EXPECT_THAT(line, HasSubstr("the ranks do not go by the same: "));
      for (const std::string& text : texts) EXPECT_THAT(line, HasSubstr(text));
    }
  }
}

TEST_F(DistributedTest, CtrlCEndsTheWaitForRanksThatDoNotCome) {
  const test::TempDir dir;
  EXPECT_TRUE(run(2, {"interrupted", dir / "error"}).ok());
  EXPECT_THAT(test::read_file(dir / "error.1"),
              HasSubstr("interrupted while the ranks were meeting: rank 1"));
  EXPECT_THAT(test::read_file(dir / "error.0"),
              HasSubstr("a rank was interrupted while the ranks were meeting: rank 1 (host "));
}

TEST_F(DistributedTest, CtrlCAndALostRankAreHeardWhileGlooConnects) {
  const test::TempDir dir;
  EXPECT_TRUE(run(2, {"connecting", dir / "int", "int"}).ok());
  EXPECT_THAT(test::read_file(dir / "int.1"),
              HasSubstr("interrupted while the ranks were meeting: rank 1"));
  EXPECT_THAT(test::read_file(dir / "int.0"),
              HasSubstr("a rank was interrupted while the ranks were meeting: rank 1 (host "));
  EXPECT_EQ(run(2, {"connecting", dir / "kill", "kill"}).first_failed, 1);
  EXPECT_THAT(test::read_file(dir / "kill.0"),
              HasSubstr("a rank ended while the ranks were connecting: rank 1 (host "));
}

TEST_F(DistributedTest, ConnectingHasATimeoutOfItsOwn) { EXPECT_TRUE(run(3, {"timeouts"}).ok()); }

TEST_F(DistributedTest, RanksStopEarlyTogether) { EXPECT_TRUE(run(2, {"early-stop"}).ok()); }

LocalRanksResult run_shell(int num_ranks, const std::string& script, const std::string& argument) {
  LocalRanksOptions options;
  options.num_ranks = num_ranks;
  options.arguments = {"/bin/sh", "-c", script, argument};
  return run_local_ranks(options);
}

TEST_F(LocalRanksTest, WhenARankFailsTheOthersAreEnded) {
  const auto result = run_shell(3, "test $RANK = 1 && exit 7; exec sleep 600", "");
  EXPECT_EQ(result.first_failed, 1);
  EXPECT_EQ(result.ranks[1].exit_code, 7);
  EXPECT_FALSE(result.ranks[1].stopped_by_us);
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_TRUE(result.ranks[rank].stopped_by_us);
    EXPECT_EQ(result.ranks[rank].signal, SIGTERM);
  }
}

TEST_F(LocalRanksTest, SignalsArePassedOnAndNothingIsLeftRunning) {
  const test::TempDir dir;
  // From another process: a thread of this one would take the signal itself.
  const pid_t sender = ::fork();
  ASSERT_GE(sender, 0);
  if (sender == 0) {
    for (int i = 0; i < 1000 && dir.list().size() < 2; ++i) ::usleep(10'000);
    ::usleep(100'000);
    ::kill(::getppid(), SIGTERM);
    ::_exit(0);
  }
  const auto result = run_shell(2, "echo $$ > \"$0.$RANK\"; exec sleep 600", dir / "pid");
  ::waitpid(sender, nullptr, 0);
  EXPECT_EQ(result.forwarded_signal, SIGTERM);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(rank)].signal, SIGTERM);
    const int pid = std::stoi(test::read_file(dir / ("pid." + std::to_string(rank))));
    EXPECT_EQ(::kill(pid, 0), -1);
    EXPECT_EQ(errno, ESRCH);
  }
}

TEST_F(LocalRanksTest, ImpossibleOptionsAreRefused) {
  EXPECT_EQ(test::error_code([] { run(0, {}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([] { run_local_ranks({}); }), ErrorCode::kInvalidArgument);
  LocalRanksOptions missing;
  missing.arguments = {"/does/not/exist"};
  EXPECT_EQ(run_local_ranks(missing).ranks[0].exit_code, 127);
}

}  // namespace
}  // namespace shardwise::libtorch
