#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "rank_run.h"
#include "shardwise/libtorch/stop_guard.h"

namespace shardwise::libtorch {
namespace {

using testing::HasSubstr;

using StopTest = RanksTest;

class StopWorldTest : public StopTest, public testing::WithParamInterface<int> {
 protected:
  /// @param passes  number of batches per step.
  /// @param group   "own" or "adopted".
  void live(const std::string& passes, const std::string& group) {
    EXPECT_TRUE(run(GetParam(), "lives",
                    {make_levels("train", 43), std::to_string(test::repeats(5, 50)),
                     std::to_string(test::random_seed()), passes, group})
                    .ok());
  }
};

TEST_P(StopWorldTest, RanksThatStopInAnyWayEndAtOneStepWithAnExactCheckpoint) { live("1", "own"); }

TEST_P(StopWorldTest, StepsOfSeveralPassesAreWholeOrNotAtAll) { live("3", "own"); }

TEST_P(StopWorldTest, RanksOfAnAdoptedGroupStopTogetherToo) { live("1", "adopted"); }

INSTANTIATE_TEST_SUITE_P(Ranks, StopWorldTest, testing::Values(1, 2, 3, 4));

TEST_F(StopTest, AStepHasTheCollectivesOfItsGradientsAndNoOther) {
  const std::string data = make_levels("train", 43);
  EXPECT_TRUE(run(2, "count", {data, "own"}).ok());
  EXPECT_TRUE(run(2, "count", {data, "adopted"}).ok());
}

TEST_F(StopTest, ARankThatThrowsWithinABackwardPassOfC10dsReducerStopsAllAtOnce) {
  // Fault under test: tests/faults.md 64.
  for (const int world : {1, 2, 3}) {
    const std::string name = std::to_string(world);
    const auto result =
        run(world, "reducer", {std::to_string(test::repeats(4, 50)), name}, "run" + name);
    EXPECT_TRUE(result.ok()) << world;
  }
}

TEST_F(StopTest, AllRanksHearThatACheckpointIsDue) { EXPECT_TRUE(run(2, "saves").ok()); }

TEST_F(StopTest, AGuardHasOneGroupAndAllRanksOfItHaveAGuard) { EXPECT_TRUE(run(2, "guards").ok()); }

TEST_F(StopTest, ASecondSigintOrSigtermEndsTheProcessWhateverCameBefore) {
  const std::vector<std::vector<int>> rows = {{SIGINT, SIGINT},
                                              {SIGTERM, SIGTERM},
                                              {SIGINT, SIGTERM, SIGINT},
                                              {SIGINT, SIGTERM, SIGTERM},
                                              {SIGUSR1, SIGUSR1, SIGINT, SIGINT},
                                              {SIGTERM, SIGINT, SIGINT},
                                              {SIGUSR2, SIGTERM, SIGTERM}};
  for (const auto& signals : rows) {
    std::vector<std::string> texts;
    for (const int signal : signals) texts.push_back(std::to_string(signal));
    EXPECT_EQ(run(1, "second", texts).ranks[0].signal, signals.back())
        << testing::PrintToString(signals);
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
  // Fault under test: tests/faults.md 67.
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
              HasSubstr("cannot be handled: 9"));
  const StopGuard first;
  EXPECT_THAT(test::error_text([] { StopGuard second; }), HasSubstr("already has a StopGuard"));
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
