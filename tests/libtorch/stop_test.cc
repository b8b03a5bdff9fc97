#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "libtorch/local_ranks.h"
#include "shardwise/libtorch/process_group.h"
#include "shardwise/libtorch/stop_guard.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise::libtorch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StopTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_distributed()) GTEST_SKIP() << "this build runs one rank only: it has no Gloo";
  }

  void make_data() {
    std::vector<test::Fields> samples;
    for (int i = 0; i < 43; ++i) {
      samples.push_back({{"png", test::solid_png(4, 4, i)}, {"cls", std::to_string(i % 7)}});
    }
    test::make_dataset(dir_, "train", samples, 10);
  }

  LocalRanksResult run(int num_ranks, const std::vector<std::string>& arguments) {
    LocalRanksOptions options;
    options.num_ranks = num_ranks;
    options.arguments = {SHARDWISE_STOP_PROGRAM};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    return run_local_ranks(options);
  }

  test::TempDir dir_;
};

class StopWorldTest : public StopTest, public testing::WithParamInterface<int> {
 protected:
  /// @param passes  of a step.
  /// @param group   "own" or "adopted".
  void live(const std::string& passes, const std::string& group) {
    make_data();
    EXPECT_TRUE(run(GetParam(), {"lives", dir_ / "train.idx", dir_ / "run",
                                 std::to_string(test::repeats(5, 50)),
                                 std::to_string(test::random_seed()), passes, group})
                    .ok());
  }
};

TEST_P(StopWorldTest, RanksThatStopInAnyWayEndAtOneStepWithAnExactCheckpoint) { live("1", "own"); }

TEST_P(StopWorldTest, StepsOfSeveralPassesAreWholeOrNotAtAll) { live("3", "own"); }

TEST_P(StopWorldTest, RanksOfAnAdoptedGroupStopTogetherToo) { live("1", "adopted"); }

INSTANTIATE_TEST_SUITE_P(Ranks, StopWorldTest, testing::Values(1, 2, 3, 4));

TEST_F(StopTest, AStepHasTheCollectivesOfItsGradientsAndNoOther) {
  make_data();
  EXPECT_TRUE(run(2, {"count", dir_ / "train.idx"}).ok());
  EXPECT_TRUE(run(2, {"count", dir_ / "train.idx", dir_ / "meeting"}).ok());
}

/// Of the ranks of an adopted group one was killed. What the others said.
void expect_named(const std::string& out, int killed, const std::string& last_call) {
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == killed) continue;
    const std::string own = "rank " + std::to_string(rank) + " of 3";
    EXPECT_THAT(test::read_file(out + "." + std::to_string(rank)),
                AllOf(HasSubstr("(a rank ended): " + own),
                      HasSubstr(" lost rank " + std::to_string(killed) + " of 3 (host "),
                      HasSubstr(", process "), HasSubstr("the last call of all ranks was "),
                      HasSubstr(last_call)));
  }
}

TEST_F(StopTest, ALostRankOfAnAdoptedGroupIsNamedByTheOthers) {
  // faults.md 63
  for (int killed = 0; killed < 3; ++killed) {
    const std::string name = std::to_string(killed);
    run(3, {"lost", dir_ / ("meeting" + name), dir_ / ("lost" + name), name});
    expect_named(dir_ / ("lost" + name), killed, ", all_reduce(sum) of 1000 Float");
  }
}

TEST_F(StopTest, ARankThatThrowsWithinABackwardPassOfC10dsReducerStopsAllAtOnce) {
  // faults.md 64
  for (const int world : {1, 2, 3}) {
    const std::string name = std::to_string(world);
    const auto result = run(world, {"reducer", dir_ / ("meeting" + name), dir_ / ("run" + name),
                                    std::to_string(test::repeats(4, 50)), name});
    EXPECT_TRUE(result.ok()) << world;
  }
}

TEST_F(StopTest, ARankThatIsKilledWithinABackwardPassOfC10dsReducerIsNamed) {
  // faults.md 63
  run(3, {"reducer-lost", dir_ / "meeting", dir_ / "lost"});
  expect_named(dir_ / "lost", 1, ", bucket ");
}

TEST_F(StopTest, AllRanksHearThatACheckpointIsDue) { EXPECT_TRUE(run(2, {"saves"}).ok()); }

TEST_F(StopTest, AGuardHasOneGroupAndAllRanksOfItHaveAGuard) {
  EXPECT_TRUE(run(2, {"guards", dir_ / "meeting"}).ok());
}

TEST_F(StopTest, ASecondSigintOrSigtermEndsTheProcessWhateverCameBefore) {
  const std::vector<std::vector<int>> rows = {{SIGINT, SIGINT},
                                              {SIGTERM, SIGTERM},
                                              {SIGINT, SIGTERM, SIGINT},
                                              {SIGINT, SIGTERM, SIGTERM},
                                              {SIGUSR1, SIGUSR1, SIGINT, SIGINT},
                                              {SIGTERM, SIGINT, SIGINT},
                                              {SIGUSR2, SIGTERM, SIGTERM}};
  for (const auto& signals : rows) {
    std::vector<std::string> arguments = {"second"};
    for (const int signal : signals) arguments.push_back(std::to_string(signal));
    EXPECT_EQ(run(1, arguments).ranks[0].signal, signals.back()) << testing::PrintToString(signals);
  }
}

TEST(StopGuardTest, HandlersAreThoseFromBeforeOnceItIsGone) {
  const auto handler_of = [](int signal) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    return action.sa_handler;
  };
  std::signal(SIGUSR2, SIG_IGN);
  {
    const StopGuard guard({.signals = {SIGUSR1, SIGUSR2}});
    EXPECT_NE(handler_of(SIGUSR1), SIG_DFL);
    EXPECT_NE(handler_of(SIGUSR2), SIG_IGN);
    EXPECT_EQ(handler_of(SIGTERM), SIG_DFL) << "it was not asked for";
  }
  EXPECT_EQ(handler_of(SIGUSR1), SIG_DFL);
  EXPECT_EQ(handler_of(SIGUSR2), SIG_IGN);
  std::signal(SIGUSR2, SIG_DFL);
}

TEST(StopGuardTest, WhileItLivesAClosedPipeIsAnErrorAndNoEnd) {
  // faults.md 67
  const auto write_to_closed = [] {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    ::close(ends[0]);
    const auto written = ::write(ends[1], "x", 1);
    const int error = errno;
    ::close(ends[1]);
    return written < 0 ? error : 0;
  };
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  {
    const StopGuard guard;
    EXPECT_EQ(write_to_closed(), EPIPE);
  }
  EXPECT_EQ(std::signal(SIGPIPE, [](int) {}), SIG_DFL) << "it is as it was";
  {
    const StopGuard guard;
    EXPECT_NE(std::signal(SIGPIPE, SIG_IGN), SIG_IGN) << "a handler of the program is kept";
  }
  std::signal(SIGPIPE, before);
}

TEST(StopGuardTest, WhatATerminalSendsStaysIgnoredWhereItIs) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  {
    StopGuard guard({.signals = {SIGINT, SIGHUP}});
    ::raise(SIGINT);
    EXPECT_FALSE(guard.should_stop());
  }
  std::signal(SIGINT, before);
}

TEST(StopGuardTest, ImpossibleOnesAreRefused) {
  EXPECT_THAT(test::error_text([] {
                StopGuard({.signals = {SIGTERM, SIGKILL}});
              }),
              HasSubstr("a signal cannot be handled: 9"));
  const StopGuard first;
  EXPECT_THAT(test::error_text([] { StopGuard second; }),
              HasSubstr("there is a StopGuard already"));
}

TEST(StopGuardTest, AProcessAloneStopsAtOnceAndSavesWhenItsLoopThrows) {
  StopGuard guard({.signals = {SIGUSR1}});
  bool saved = false;
  EXPECT_FALSE(guard.should_stop());
  guard.run([] {}, [&] { saved = true; });
  EXPECT_FALSE(saved) << "the loop came to its end";
  EXPECT_THAT(test::error_text([&] {
                guard.run([] { throw InvalidArgument("no good", "here", "mend it"); },
                          [&] { saved = true; });
              }),
              HasSubstr("no good: here; mend it"));
  EXPECT_TRUE(saved);
  EXPECT_EQ(guard.exit_code(), 1);
}

TEST(StopGuardTest, AReasonIsKeptAndASignalIsMoreThanARequest) {
  StopGuard guard({.signals = {SIGUSR1}});
  guard.request("no better for a while");
  guard.request("another");
  EXPECT_TRUE(guard.should_stop());
  EXPECT_EQ(guard.reason(), "no better for a while");
  EXPECT_EQ(guard.exit_code(), 0);
  ::raise(SIGUSR1);
  EXPECT_TRUE(guard.should_stop());
  EXPECT_EQ(guard.reason(), "SIGUSR1");
  EXPECT_EQ(guard.exit_code(), 128 + SIGUSR1);
}

}  // namespace
}  // namespace shardwise::libtorch
