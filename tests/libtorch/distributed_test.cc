#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "libtorch/rendezvous/hub.h"
#include "rank_run.h"

namespace shardwise::libtorch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using DistributedTest = RanksTest;
using LocalRanksTest = RanksTest;

/// A case of the rank program that checks itself on every rank.
struct Scenario {
  const char* property;
  const char* name;
  std::vector<int> worlds;
};

const std::vector<Scenario> kScenarios = {
    {"NumbersOfEveryTypeAreReducedAndRoundedOnce", "reduce-types", {1, 2, 3}},
    {"GradientsOfSeveralPassesAndTypesAverageToThoseOfOneProcess", "accumulated", {3}},
    {"ParametersWithoutGradientsKeepTheirValue", "frozen", {2, 3}},
    {"ParametersAndBuffersOfEveryTypeAreThoseOfRank0", "types", {1, 3}},
    {"BuffersAreAveragedAndRoundedOnce", "buffers", {1, 2, 3}},
    {"AnEpochWithABatchLeftOutIsNotProvenOnAnyRank", "unproven", {3}},
    {"CheckpointsAreWrittenReadAndRefusedByAllRanksTogether", "checkpoint", {1, 3}},
    {"ConnectingHasATimeoutOfItsOwn", "timeouts", {3}},
    {"RanksStopEarlyTogether", "early-stop", {2}},
};

class ScenarioTest : public RanksTest, public testing::WithParamInterface<Scenario> {};

TEST_P(ScenarioTest, Holds) {
  const std::string data = make_levels("train", 20);
  for (const int world : GetParam().worlds) {
    EXPECT_TRUE(run(world, GetParam().name, {data}, "out" + std::to_string(world)).ok()) << world;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ScenarioTest, testing::ValuesIn(kScenarios),
                         [](const auto& row) { return std::string(row.param.property); });

TEST_F(DistributedTest, ModelsThatDifferInABitAreNamedOnAllRanks) {
  ASSERT_TRUE(run(3, "replicas").ok());
  const std::vector<std::vector<std::string>> wanted = {
      {"models", "not the same", "parameter '0.bias' is '", "on rank 2 and '", "on ranks 0 and 1"},
      {"buffer '1.running_mean' is '", "buffer '1.running_var' is '", "on rank 2, '",
       "on rank 1 and '", "on rank 0", "average_buffers()"},
      {"parameter '2.weight' is", "'Float [1, 1]' on rank 2", "not given on ranks 0 and 1"}};
  for (const int rank : {0, 1, 2}) {
    std::istringstream lines(told(rank));
    for (const auto& texts : wanted) {
      std::string line;
      std::getline(lines, line);
      for (const std::string& text : texts) EXPECT_THAT(line, HasSubstr(text));
    }
  }
}

TEST_F(DistributedTest, EvaluationIsRightAndTheSameBitsOnAnyNumberOfRanks) {
  for (const std::size_t count : {3u, 41u}) {  // with 3 samples, there are more ranks than samples
    const std::string data = make_levels("eval" + std::to_string(count), count);
    std::string expected;
    for (const int world : {1, 2, 3, 5}) {
      ASSERT_TRUE(run(world, "evaluate-bits", {data}).ok()) << count << ", " << world;
      const std::string bits = test::read_file(dir_ / "out");
      if (expected.empty()) expected = bits;
      EXPECT_EQ(bits, expected) << count << " samples, " << world << " ranks";
    }
  }
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

/// Reads what the ranks wrote in the case "elastic": the samples of each step, and the proofs.
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
  const std::string data =
      make_levels("train", 23);  // five steps per epoch; the last step has three samples
  const auto run_for = [&](int world, std::uint64_t steps, const std::string& name) {
    for (int rank = 0; rank < 4; ++rank) {  // all files must exist
      std::ofstream(dir_ / (name + "." + std::to_string(rank)), std::ios::app);
    }
    ASSERT_TRUE(
        run(world, "elastic", {data, dir_ / (name + ".pt"), std::to_string(steps)}, name).ok())
        << world;
  };
  run_for(1, 100, "whole");
  const auto whole = read_elastic(dir_ / "whole");
  EXPECT_EQ(whole.first.size(), 15u);
  EXPECT_THAT(whole.second, HasSubstr("epoch 2: 23 samples, each exactly once: proven"));
  std::mt19937_64 random(15);
  for (const char* const name : {"a", "b"}) {
    run_for(2, 1 + random() % 6, name);
    run_for(4, 1 + random() % 6, name);
    run_for(1, 1 + random() % 2, name);
    run_for(3, 100, name);
    EXPECT_EQ(read_elastic(dir_ / name), whole) << name;
  }
}

TEST_F(DistributedTest, ThreeProcessesLiveThroughTwoHundredChainsOfResumes) {
  // Some images are broken, so that the chains also have bad samples.
  std::vector<test::Fields> samples;
  for (int i = 0; i < 43; ++i) {
    samples.push_back({{"png", i % 17 == 5 ? "broken" : test::solid_png(4, 4, i)},
                       {"cls", std::to_string(i % 7)}});
  }
  test::make_dataset(dir_, "train", samples, 10);
  const std::string count = std::to_string(test::repeats(100, 2000));
  EXPECT_TRUE(run(3, "chains", {dir_ / "train.idx", count}).ok());
}

class LostTest : public RanksTest {
 protected:
  /// One of three ranks was killed. Expects that the others exit with 0, and named the killed rank.
  void expect_named(const LocalRanksResult& result, int lost, const std::string& last_call) {
    EXPECT_EQ(result.first_failed, lost);
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(lost)].signal, SIGKILL);
    for (const int rank : {0, 1, 2}) {
      if (rank == lost) continue;
      EXPECT_EQ(result.ranks[static_cast<std::size_t>(rank)].exit_code, 0);
      const std::string who = "rank " + std::to_string(lost) + " of 3 (host ";
      EXPECT_THAT(
          told(rank),
          AllOf(HasSubstr("(a rank ended): rank " + std::to_string(rank) + " of 3 lost " + who),
                HasSubstr(", process "), HasSubstr("all ranks was " + last_call + ";"),
                HasSubstr("last checkpoint")));
    }
  }
};

TEST_F(LostTest, OfALostPeerAllOthersSayWhichItWas) {
  // faults.md 63: an adopted group makes four calls before the program's first call.
  for (const auto& [kind, own_calls] : {std::pair{"own", 0}, std::pair{"adopted", 4}}) {
    for (const auto& [lost, calls] : {std::pair{0, 5}, {1, 0}, {2, 11}}) {
      const std::string number = std::to_string(own_calls + calls);
      const std::string last = calls > 0       ? number + ", all_reduce(sum) of 1000 Float"
                               : own_calls > 0 ? number + ", introduce"
                                               : "none";
      std::filesystem::remove(dir_ / "out.meeting");
      const auto result = run(3, "lost", {kind, std::to_string(lost), std::to_string(calls)});
      expect_named(result, lost, last);
      for (const int rank : {0, 1, 2}) {
        if (rank == lost) continue;
        EXPECT_THAT(told(rank), HasSubstr("after an earlier failure"));
      }
    }
  }
}

TEST_F(LostTest, ARankThatIsKilledWithinABackwardPassOfC10dsReducerIsNamed) {
  // Fault under test: tests/faults.md 63.
  run(3, "reducer-lost");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(told(rank), AllOf(HasSubstr("(a rank ended): rank " + std::to_string(rank)),
                                  HasSubstr(" lost rank 1 of 3 (host "), HasSubstr(", bucket ")));
  }
}

TEST_F(DistributedTest, APeerThatHangsIsNamedAtTheTimeout) {
  run(3, "hang");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(told(rank),
                AllOf(HasSubstr("cannot wait"), HasSubstr("lost "), HasSubstr("rank 1 of 3 (host "),
                      HasSubstr("all ranks was 1, all_reduce(sum) of 1 Long")));
  }
}

std::uint16_t free_port() {
  const shardwise::detail::Socket socket = shardwise::detail::listen_at("127.0.0.1", 0);
  sockaddr_in place{};
  socklen_t size = sizeof place;
  EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  return ntohs(place.sin_port);
}

TEST_F(DistributedTest, ByHandRanksMeetAtAPortAndMayMeetAgain) {
  EXPECT_TRUE(run(3, "by-hand", {std::to_string(free_port())}).ok());
}

TEST_F(DistributedTest, TheReportOfAnEpochNamesTheSlowestRank) {
  ASSERT_TRUE(run(3, "report").ok());
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size()), 0);
  const std::string name = host.data();
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(told(rank),
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
  ASSERT_TRUE(run(3, "out-of-step").ok());
  const std::vector<std::string> wanted = {
      "'2, all_reduce(sum) of 1 Long' on rank 2 and '2, barrier' on ranks 0 and 1",
      "'2, all_reduce(sum) of 1 Long' on rank 2 and '2, all_reduce(sum) of 1 Double' on ranks 0",
      "'2, all_reduce(sum) of 101 Float' on rank 2 and '2, all_reduce(sum) of 100 Float'",
      "'2, all_reduce(sum) of 100000 Float' on rank 2 and '2, all_reduce(sum) of 10 Float'",
      "'2, all_reduce(max) of 1000 Float' on rank 2 and '2, all_reduce(sum) of 1000 Float'",
      "'2, broadcast from rank 1 of 1000 Float' on rank 2 and '2, broadcast from rank 0 of 1000",
      "'2, all_reduce(sum) of 1000 Float' on rank 2 and '2, require_same' on ranks 0 and 1"};
  for (const int rank : {0, 1, 2}) {
    std::istringstream lines(told(rank));
    for (const std::string& text : wanted) {
      std::string line;
      std::getline(lines, line);
      EXPECT_THAT(line, AllOf(HasSubstr("out of step): rank " + std::to_string(rank) + " of 3: "),
                              HasSubstr(text), HasSubstr("the same calls")));
    }
  }
}

TEST_F(DistributedTest, RanksThatGoByOtherDataOrOptionsHearItBeforeTheFirstSum) {
  // Fault under test: tests/faults.md 54.
  ASSERT_TRUE(run(3, "contract", {make_levels("train", 20), make_levels("other", 21)}).ok());
  const std::vector<std::vector<std::string>> wanted = {
      {"batch size", "'64' on rank 2 and '32' on ranks 0 and 1"},
      {"the notes is 'xxxx", "on rank 2 and 'xxx' on ranks 0 and 1"},
      {"the data set", "on rank 2 and '"},
      {"batch size", "'3' on rank 2 and '2' on ranks 0 and 1"},
      {"the order", "on rank 2 and '"},
      {"set of columns", "on rank 2 and '"},
      {"parameter 'weight'", "'Float [3, 4]' on rank 2 and 'Float [2, 4]' on ranks 0 and 1"}};
  for (const int rank : {0, 1, 2}) {
    std::istringstream lines(told(rank));
    for (const auto& texts : wanted) {
      std::string line;
      std::getline(lines, line);
      EXPECT_THAT(line, HasSubstr("the ranks' settings differ: "));
      for (const std::string& text : texts) EXPECT_THAT(line, HasSubstr(text));
    }
  }
}

TEST_F(DistributedTest, CtrlCAndALostRankAreHeardWhileGlooConnects) {
  EXPECT_TRUE(run(2, "connecting", {"int"}, "int").ok());
  EXPECT_THAT(told(1, "int"),
              AllOf(HasSubstr("interrupted"), HasSubstr("rendezvous of the ranks: rank 1")));
  EXPECT_THAT(told(0, "int"), AllOf(HasSubstr("a rank was interrupted"),
                                    HasSubstr("rendezvous of the ranks: rank 1 (host ")));
  EXPECT_EQ(run(2, "connecting", {"kill"}, "kill").first_failed, 1);
  EXPECT_THAT(told(0, "kill"),
              AllOf(HasSubstr("a rank ended"), HasSubstr("connecting: rank 1 (host ")));
}

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

TEST_F(LocalRanksTest, ExitCodesAreKnownWhenSigchldIsIgnored) {
  auto* const before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run_shell(2, "exit $RANK", "").first_failed, 1);
  EXPECT_EQ(std::signal(SIGCHLD, before), SIG_IGN);
}

TEST_F(LocalRanksTest, SignalsArePassedOnAndNothingIsLeftRunning) {
  // Send it from another process: otherwise a thread of this process would take the signal.
  const pid_t sender = ::fork();
  ASSERT_GE(sender, 0);
  if (sender == 0) {
    for (int i = 0; i < 1000 && dir_.list().size() < 2; ++i) ::usleep(10'000);
    ::usleep(100'000);
    ::kill(::getppid(), SIGTERM);
    ::_exit(0);
  }
  const auto result = run_shell(2, "echo $$ > \"$0.$RANK\"; exec sleep 600", dir_ / "pid");
  ::waitpid(sender, nullptr, 0);
  EXPECT_EQ(result.forwarded_signal, SIGTERM);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(result.ranks[static_cast<std::size_t>(rank)].signal, SIGTERM);
    const int pid = std::stoi(test::read_file(dir_ / ("pid." + std::to_string(rank))));
    EXPECT_EQ(::kill(pid, 0), -1);
    EXPECT_EQ(errno, ESRCH);
  }
}

TEST_F(LocalRanksTest, ImpossibleOptionsAreRefused) {
  EXPECT_EQ(test::error_code([&] { run(0, "reduce-types"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([] { run_local_ranks({}); }), ErrorCode::kInvalidArgument);
  LocalRanksOptions missing;
  missing.arguments = {"/does/not/exist"};
  EXPECT_EQ(run_local_ranks(missing).ranks[0].exit_code, 127);
}

}  // namespace
}  // namespace shardwise::libtorch
