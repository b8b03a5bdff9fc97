#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>

#include "base/cores.h"
#include "support/dataset.h"
#include "support/environment.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A running shardwise-train. Its outputs are written to files.
class Trainer {
 public:
  /// @param arguments  if --threads is missing, loading and compute threads are set to 1.
  /// @param out  file for results; "" closes standard output.
  Trainer(const test::TempDir& dir, std::vector<std::string> arguments)
      : Trainer(dir, std::move(arguments), dir / "stdout") {}
  Trainer(const test::TempDir& dir, std::vector<std::string> arguments, std::string out)
      : out_(std::move(out)), err_(dir / "stderr") {
    arguments.insert(arguments.begin(), SHARDWISE_TRAIN);
    if (std::ranges::find(arguments, "--threads") == arguments.end()) {
      arguments.insert(arguments.end(), {"--threads", "1", "--compute-threads", "1"});
    }
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      std::signal(SIGINT, SIG_DFL);  // background jobs ignore it
      if (out_.empty()) ::close(STDOUT_FILENO);
      if ((!out_.empty() && std::freopen(out_.c_str(), "w", stdout) == nullptr) ||
          std::freopen(err_.c_str(), "w", stderr) == nullptr) {
        ::_exit(99);
      }
      ::execv(pointers[0], pointers.data());
      ::_exit(98);
    }
  }
  ~Trainer() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  pid_t pid() const { return pid_; }
  /// Waits for the end. Returns the exit code, or minus the signal that killed the process.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool has_begun() const { return ::access(err_.c_str(), F_OK) == 0; }
  bool has_ended() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }
  std::string out() const { return test::read_file(out_); }
  std::string err() const { return test::read_file(err_); }

  /// Returns the child processes.
  std::vector<pid_t> children() const {
    std::ifstream in("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                     "/children");
    std::vector<pid_t> pids;
    for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
    return pids;
  }

 private:
  std::string out_;
  std::string err_;
  pid_t pid_ = -1;
};

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome run(const test::TempDir& dir, std::vector<std::string> arguments) {
  Trainer trainer(dir, std::move(arguments));
  const int code = trainer.wait();
  return {code, trainer.out(), trainer.err()};
}

/// Three classes that differ in colour, which are learnt quickly.
class TrainTest : public testing::Test {
 protected:
  static std::vector<test::Fields> samples(std::size_t count) {
    std::vector<test::Fields> all;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t label = i % 3;
      test::Rgb image{12, 12, std::vector<std::uint8_t>(12 * 12 * 3, 40)};
      for (std::size_t p = 0; p < 144; ++p) {
        image.pixels[3 * p + label] = static_cast<std::uint8_t>(150 + (i * 7 + p) % 100);
      }
      all.push_back({{"png", test::encode_png(image)}, {"cls", std::to_string(label)}});
    }
    return all;
  }

  void SetUp() override {
    test::make_dataset(dir_, "train", samples(120), 50);
    test::make_dataset(dir_, "eval", samples(37), 50);
  }

  std::vector<std::string> with(std::vector<std::string> more) const {
    std::vector<std::string> all = {"--train",         dir_ / "train.idx",    "--eval",
                                    dir_ / "eval.idx", "--global-batch-size", "12",
                                    "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  test::TempDir dir_;
};

TEST_F(TrainTest, ResultsThatCannotBeWrittenAreAnErrorOnceTheRunIsDone) {
  if (::access("/dev/full", W_OK) != 0)
    GTEST_SKIP() << "needs /dev/full; skipped because it does not exist";
  for (const std::string out : {"/dev/full", ""}) {
    for (const bool is_json : {false, true}) {
      const std::string checkpoint =
          dir_ / ((out.empty() ? "closed" : "full") + std::string(is_json ? "-json.pt" : ".pt"));
      std::vector<std::string> arguments = with({"--epochs", "2", "--checkpoint", checkpoint});
      if (is_json) arguments.emplace_back("--json");
      Trainer trainer(dir_, arguments, out);
      EXPECT_EQ(trainer.wait(), 1);
      EXPECT_THAT(trainer.err(),
                  HasSubstr(out.empty() ? "Bad file descriptor" : "No space left on device"));
      EXPECT_THAT(trainer.err(), HasSubstr("cannot write the results: 'standard output'"));
      EXPECT_TRUE(std::filesystem::exists(checkpoint)) << "the run went on";
    }
  }
}

class RanksTrainTest : public TrainTest {
 protected:
  void SetUp() override {
    if (run(dir_, {"--version"}).out.find("one rank only") != std::string::npos) {
      GTEST_SKIP() << "needs Gloo; skipped because this build runs one rank only";
    }
    TrainTest::SetUp();
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> all;
  for (const auto& line : lines_of(text)) all.push_back(nlohmann::json::parse(line));
  return all;
}

TEST_F(RanksTrainTest, TwoRanksLearnAndEndWithAccuracyAndProofs) {
  const auto run_ = run(dir_, with({"--local-ranks", "2", "--epochs", "3"}));
  ASSERT_EQ(run_.code, 0) << run_.err;
  EXPECT_EQ(run_.err, "");
  const auto lines = lines_of(run_.out);
  ASSERT_EQ(lines.size(), 7u) << run_.out;
  EXPECT_THAT(lines[0],
              AllOf(HasSubstr("epoch 0: loss "), HasSubstr("120 images"), HasSubstr("images/s")));
  EXPECT_EQ(lines[3], "accuracy 100.00 % (37 of 37), each sample counted once");
  for (const int epoch : {0, 1, 2}) {
    EXPECT_EQ(lines[static_cast<std::size_t>(4 + epoch)],
              "epoch " + std::to_string(epoch) + ": 120 samples, each exactly once: proven");
  }
}

TEST_F(RanksTrainTest, TheSameRunTwiceIsTheSameAndOtherRanksTakeTheSameSteps) {
  const auto losses = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--json", "--epochs", "2", "--seed", "4"});
    const auto result = run(dir_, with(more));
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<double> all;
    for (const auto& line : json_lines(result.out)) {
      if (line.contains("loss")) all.push_back(line["loss"]);
    }
    return all;
  };
  const auto two = losses({"--local-ranks", "2"});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(losses({"--local-ranks", "2"}), two);
  // A step has the same samples on any number of ranks. Only rounding differs.
  const auto one = losses({});
  EXPECT_NEAR(one[0], two[0], 1e-3);
  EXPECT_NEAR(losses({"--local-ranks", "3"})[0], two[0], 1e-3);
}

TEST_F(RanksTrainTest, TheScheduleStandsWhereItStoodOnMoreRanks) {
  const std::string checkpoint = dir_ / "run.pt";
  const auto with_batches_of_12 = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--train", dir_ / "train.idx", "--batch-size", "12", "--quiet"});
    return more;
  };
  ASSERT_EQ(run(dir_, with_batches_of_12({"--epochs", "1", "--checkpoint", checkpoint})).code, 0);
  // With twice the ranks, an epoch has half the steps. If the learning rate depended on the number
  // of steps, its schedule would be at its end, and the learning rate would be 0.
  const auto loss_of_the_rest = [&](const std::string& rate) {
    const std::string copy = dir_ / ("at-" + rate + ".pt");
    std::filesystem::copy_file(checkpoint, copy);
    const auto result =
        run(dir_, with_batches_of_12({"--epochs", "2", "--checkpoint", copy, "--resume", "--json",
                                      "--local-ranks", "2", "--lr", rate}));
    EXPECT_EQ(result.code, 0) << result.err;
    return json_lines(result.out).front()["loss"].get<double>();
  };
  EXPECT_LT(loss_of_the_rest("0.003"), 0.99 * loss_of_the_rest("1e-12"));
}

/// A run that is killed and continued again and again, each time on one of the numbers of ranks in
/// `worlds`.
class KilledRuns {
 public:
  KilledRuns(const test::TempDir& dir, std::vector<std::string> arguments, std::uint64_t seed)
      : dir_(dir), arguments_(std::move(arguments)), random_(seed) {}

  /// @return  number of rounds in which a rank was killed.
  int live(const std::string& name, const std::vector<int>& worlds, int most) {
    const std::string checkpoint = dir_ / name;
    for (int round = 0; round < most; ++round) {
      const int world = worlds[random_() % worlds.size()];
      auto arguments = arguments_;
      arguments.insert(arguments.end(), {"--checkpoint", checkpoint, "--checkpoint-steps", "2",
                                         "--local-ranks", std::to_string(world)});
      if (::access(checkpoint.c_str(), F_OK) == 0) arguments.push_back("--resume");
      Trainer trainer(dir_, arguments);
      const auto ranks = kill_one(trainer, checkpoint, world);
      const int code = trainer.wait();
      EXPECT_EQ(code, ranks.empty() ? 0 : 1) << trainer.err();
      if (!ranks.empty()) {
        EXPECT_THAT(trainer.err(),
                    AllOf(HasSubstr("killed by signal 9"),
                          HasSubstr(" of " + std::to_string(world)), HasSubstr("--resume")));
      }
      for (const pid_t rank : ranks) EXPECT_EQ(::kill(rank, 0), -1) << "a rank is left";
      take(trainer.out());
      if (code == 0 || testing::Test::HasFailure()) return round;
    }
    return most;
  }
  const std::map<int, double>& losses() const { return losses_; }

 private:
  /// Kills a rank after some checkpoints.
  /// @return  process IDs of all ranks; empty if the run ended first.
  std::vector<pid_t> kill_one(const Trainer& trainer, const std::string& checkpoint, int world) {
    const auto version = [&] {
      struct stat status {};
      return ::stat(checkpoint.c_str(), &status) == 0 ? status.st_ino : 0;
    };
    for (auto left = 1 + random_() % 3; left > 0; --left) {
      for (const auto before = version(); version() == before && !trainer.has_ended();)
        ::usleep(500);
    }
    ::usleep(static_cast<useconds_t>(random_() % 20'000));
    const auto ranks = trainer.children();
    const auto rank = random_() % static_cast<unsigned>(world);
    if (ranks.size() != static_cast<std::size_t>(world)) return {};  // the ranks are about to end
    ::kill(ranks[rank], SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(trainer.pid()), &info, WEXITED | WNOWAIT);
    return info.si_status != 0 ? ranks : std::vector<pid_t>();
  }

  void take(const std::string& out) {
    for (const auto& line : json_lines(out)) {
      if (!line.contains("loss")) continue;
      const int epoch = line["epoch"];
      EXPECT_EQ(line["proof"],
                "epoch " + std::to_string(epoch) + ": 120 samples, each exactly once: proven");
      losses_[epoch] = line["loss"];
    }
  }

  const test::TempDir& dir_;
  const std::vector<std::string> arguments_;
  std::mt19937_64 random_;
  std::map<int, double> losses_;
};

TEST_F(RanksTrainTest, RunsThatAreKilledAgainAndAgainLoseNoSampleAndNoDigitOfTheLoss) {
  const int rounds = test::repeats(3, 50);
  const auto arguments = with({"--epochs", "5", "--json"});
  auto whole = arguments;
  whole.insert(whole.end(), {"--local-ranks", "2"});
  const auto expected = json_lines(run(dir_, whole).out);
  ASSERT_EQ(expected.size(), 6u);
  int same = 0;
  for (std::uint64_t seed = 1; same < rounds && !HasFailure(); ++seed) {
    KilledRuns runs(dir_, arguments, seed);
    same += std::max(1, runs.live("same" + std::to_string(seed), {2}, rounds - same));
    for (const auto& [epoch, loss] : runs.losses()) {
      EXPECT_EQ(loss, expected[static_cast<std::size_t>(epoch)]["loss"]) << "seed " << seed;
    }
  }
  int other = 0;
  for (std::uint64_t seed = 1; other < rounds && !HasFailure(); ++seed) {
    KilledRuns runs(dir_, arguments, seed);
    other +=
        std::max(1, runs.live("other" + std::to_string(seed), {1, 2, 3, 4, 5, 6}, rounds - other));
    for (const auto& [epoch, loss] : runs.losses()) {
      EXPECT_NEAR(loss, expected[static_cast<std::size_t>(epoch)]["loss"], 1e-2)
          << "seed " << seed << ": only the rounding differs";
    }
  }
}

TEST_F(TrainTest, AnEvaluationThatASignalEndedIsMadeFirstWhenTheRunGoesOn) {
  // Fault under test: tests/faults.md 66.
  test::make_dataset(dir_, "many", samples(2000), 500);
  const auto arguments = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(),
                {"--train", dir_ / "train.idx", "--eval", dir_ / "many.idx", "--batch-size", "12",
                 "--epochs", "1", "--resize", "64x64", "--quiet", "--json", "--checkpoint",
                 dir_ / (name + ".pt"), "--log-samples", dir_ / name});
    return more;
  };
  const auto whole = run(dir_, arguments("whole", {}));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto expected = json_lines(whole.out);
  ASSERT_EQ(expected.size(), 2u);

  Trainer trainer(dir_, arguments("part", {}));
  const auto is_at_last_step = [&] {
    const std::string log = dir_ / "part.0";
    return ::access(log.c_str(), F_OK) == 0 && lines_of(test::read_file(log)).size() == 120;
  };
  for (int i = 0; i < 60'000 && !is_at_last_step(); ++i) ::usleep(1'000);
  ::kill(trainer.pid(), SIGTERM);
  ASSERT_EQ(trainer.wait(), 143) << trainer.err();
  const auto part = json_lines(trainer.out());
  ASSERT_EQ(part.size(), 2u) << trainer.out();
  EXPECT_EQ(part[0]["loss"], expected[0]["loss"]);
  EXPECT_FALSE(part[0].contains("accuracy"));
  EXPECT_TRUE(part[1].contains("stopped"));

  const auto rest = run(dir_, arguments("part", {"--resume"}));
  EXPECT_EQ(rest.code, 0);
  EXPECT_THAT(rest.err, HasSubstr("only the evaluation"));
  const auto made = json_lines(rest.out);
  ASSERT_EQ(made.size(), 2u) << rest.out;
  EXPECT_EQ(made[0]["epoch"], 0);
  EXPECT_EQ(made[0]["accuracy"], expected[0]["accuracy"]);
  EXPECT_EQ(made[0]["evaluated"], 2000);
  EXPECT_EQ(made[1]["accuracy"], expected[1]["accuracy"]);

  const auto again = run(dir_, arguments("part", {"--resume"}));
  EXPECT_THAT(again.err, HasSubstr("give a larger --epochs"));
  EXPECT_EQ(json_lines(again.out).size(), 1u) << again.out;
}

TEST_F(TrainTest, ASignalThatComesWhileTheProcessEndsKillsNoRunThatIsDone) {
  // Fault under test: tests/faults.md 67.
  Trainer trainer(dir_, with({"--epochs", "1"}));
  const auto is_done = [&] {
    return trainer.has_begun() &&
           trainer.out().find("each exactly once: proven") != std::string::npos;
  };
  for (int i = 0; i < 60'000 && !is_done(); ++i) ::usleep(1'000);
  ASSERT_TRUE(is_done()) << trainer.err();
  siginfo_t info{};
  while (info.si_pid == 0) {
    ::kill(trainer.pid(), SIGUSR1);
    ::waitid(P_PID, static_cast<id_t>(trainer.pid()), &info, WEXITED | WNOHANG | WNOWAIT);
  }
  // The first signal may have arrived before the run was over on all ranks.
  EXPECT_THAT(trainer.wait(), testing::AnyOf(0, 128 + SIGUSR1));
}

TEST_F(RanksTrainTest, ASignalEndsAllRanksWith130AndLeavesNothingHalfWritten) {
  const std::string checkpoint = dir_ / "run.pt";
  Trainer trainer(dir_,
                  with({"--local-ranks", "2", "--epochs", "100000", "--checkpoint", checkpoint}));
  for (int i = 0; i < 3000 && ::access(checkpoint.c_str(), F_OK) != 0; ++i) ::usleep(10'000);
  const auto ranks = trainer.children();
  EXPECT_EQ(ranks.size(), 2u);
  ::kill(trainer.pid(), SIGINT);
  EXPECT_EQ(trainer.wait(), 130);
  EXPECT_THAT(trainer.err(), AllOf(HasSubstr("interrupted"), Not(HasSubstr("error"))));
  for (const pid_t rank : ranks) EXPECT_EQ(::kill(rank, 0), -1);
  for (const auto& name : dir_.list()) EXPECT_THAT(name, Not(HasSubstr(".tmp")));
}

TEST_F(RanksTrainTest, ARankThatDoesNotAnswerInTimeIsNamedAndIsNoInterruption) {
  const std::string checkpoint = dir_ / "run.pt";
  Trainer trainer(dir_, with({"--local-ranks", "2", "--epochs", "100000", "--timeout", "5",
                              "--checkpoint", checkpoint}));
  for (int i = 0; i < 6000 && ::access(checkpoint.c_str(), F_OK) != 0; ++i) ::usleep(10'000);
  const auto ranks = trainer.children();
  ASSERT_EQ(ranks.size(), 2u) << trainer.err();
  ::kill(ranks[1], SIGSTOP);
  // The other rank gives up waiting, and ends.
  for (int i = 0; i < 60'000 && trainer.children().size() == 2; ++i) ::usleep(10'000);
  ::kill(ranks[1], SIGCONT);
  EXPECT_EQ(trainer.wait(), 1);
  EXPECT_THAT(trainer.err(), AllOf(HasSubstr("does not answer"), HasSubstr("lost rank 1 of 2"),
                                   Not(HasSubstr("interrupted"))));
}

TEST_F(RanksTrainTest, ASignalToOneRankStopsAllWithACheckpointFromWhichTheRunGoesOn) {
  const auto common = [&](const std::string& checkpoint) {
    return with({"--local-ranks", "2", "--epochs", "3", "--json", "--checkpoint", checkpoint});
  };
  const auto whole = run(dir_, common(dir_ / "whole.pt"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::map<int, double> losses;
  for (const auto& line : json_lines(whole.out)) {
    if (line.contains("loss")) losses[line["epoch"].get<int>()] = line["loss"];
  }
  const std::string checkpoint = dir_ / "part.pt";
  int code = 0;
  {
    auto arguments = common(checkpoint);
    arguments.insert(arguments.end(), {"--checkpoint-steps", "2"});
    Trainer trainer(dir_, arguments);
    for (int i = 0; i < 60'000 && ::access(checkpoint.c_str(), F_OK) != 0; ++i) ::usleep(1'000);
    const auto ranks = trainer.children();
    if (ranks.size() == 2) ::kill(ranks[1], SIGTERM);
    code = trainer.wait();
    EXPECT_TRUE(code == 143 || (code == 0 && ranks.size() < 2)) << code << trainer.err();
    if (code == 143) {
      EXPECT_THAT(trainer.err(),
                  AllOf(HasSubstr("note: stopped after step "), HasSubstr(": SIGTERM (rank 1)"),
                        HasSubstr("interrupted"), Not(HasSubstr("error"))));
    }
    for (const auto& line : json_lines(trainer.out())) {
      if (!line.contains("loss")) continue;
      EXPECT_EQ(line["loss"], losses.at(line["epoch"].get<int>()));
    }
  }
  auto arguments = common(checkpoint);
  arguments.push_back("--resume");
  const auto rest = run(dir_, arguments);
  ASSERT_EQ(rest.code, 0) << rest.err;
  for (const auto& line : json_lines(rest.out)) {
    if (!line.contains("loss")) continue;
    EXPECT_EQ(line["loss"], losses.at(line["epoch"].get<int>()));
  }
}

/// Expects that resuming with another seed is refused, and changes no file.
void expect_refused_run_to_leave_all(const test::TempDir& dir, std::vector<std::string> arguments) {
  const std::string checkpoint = dir / "run.pt";
  arguments.insert(arguments.end(), {"--checkpoint", checkpoint, "--epochs", "2"});
  const auto first = run(dir, arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string bytes = test::read_file(checkpoint);
  const auto files = dir.list();
  arguments.insert(arguments.end(), {"--resume", "--seed", "9"});
  const auto refused = run(dir, arguments);
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("seed"));
  EXPECT_TRUE(test::read_file(checkpoint) == bytes) << "the checkpoint was changed";
  EXPECT_EQ(dir.list(), files);
}

TEST_F(TrainTest, AResumedRunThatIsRefusedLeavesTheCheckpointAsItIs) {
  expect_refused_run_to_leave_all(dir_, with({}));
}

TEST_F(RanksTrainTest, ARefusedRunOfSeveralRanksLeavesTheCheckpointAsItIs) {
  expect_refused_run_to_leave_all(dir_, with({"--local-ranks", "2"}));
}

TEST_F(RanksTrainTest, ARunThatIsOutOfTimeOrPatienceEndsWithZeroAndItsCheckpoint) {
  const auto late = run(dir_, with({"--local-ranks", "2", "--epochs", "100000", "--max-minutes",
                                    "0.02", "--checkpoint", dir_ / "late.pt"}));
  EXPECT_EQ(late.code, 0) << late.err;
  EXPECT_THAT(late.err, AllOf(HasSubstr("note: stopped after step "), HasSubstr("1200 ms")));
  EXPECT_TRUE(late.err.find("late.pt' with --resume") != std::string::npos ||
              late.err.find("no checkpoint has") != std::string::npos)
      << late.err;
  // On a busy machine, the time may be over before the first step.
  if (late.err.find("stopped after step 0:") == std::string::npos) {
    EXPECT_EQ(::access((dir_ / "late.pt").c_str(), F_OK), 0);
    EXPECT_THAT(late.err, HasSubstr("; continue from '" + (dir_ / "late.pt") + "' with --resume"));
  }

  // After the first epochs all predictions are right, so the accuracy cannot improve.
  const auto done = run(dir_, with({"--local-ranks", "2", "--epochs", "100", "--patience", "2",
                                    "--checkpoint", dir_ / "best.pt"}));
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err,
              AllOf(HasSubstr(": no better accuracy"), HasSubstr("2 evaluations (rank 0)")));
  EXPECT_THAT(done.out, HasSubstr("each sample counted once"));
  // The resumed run ends at once, because its evaluations have already used up --patience.
  const auto again = run(dir_, with({"--local-ranks", "2", "--epochs", "100", "--patience", "2",
                                     "--checkpoint", dir_ / "best.pt", "--resume"}));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err,
              AllOf(HasSubstr(": no better accuracy"), HasSubstr("2 evaluations (rank 0)")));
  EXPECT_THAT(again.out, Not(HasSubstr("loss")));
}

TEST_F(RanksTrainTest, AfterABadImageTheRunGoesOnFromTheStepBeforeIt) {
  auto bad = samples(30);
  const std::string good = bad[17][0].second;
  const auto arguments = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--train", dir_ / "bad.idx", "--local-ranks", "2", "--batch-size", "3",
                             "--epochs", "1", "--quiet", "--checkpoint", dir_ / "bad.pt"});
    return more;
  };
  bad[17][0].second = good.substr(0, 60) + std::string(good.size() - 60, 'x');
  test::make_dataset(dir_, "bad", bad, 50);
  const auto failed = run(dir_, arguments({"--seed", "3"}));
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("cannot decode"), HasSubstr("s00017")));
  ASSERT_EQ(::access((dir_ / "bad.pt").c_str(), F_OK), 0) << failed.err;
  const auto rest = run(dir_, arguments({"--seed", "3", "--max-bad", "1", "--resume"}));
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("29 samples, each exactly once, 1 excluded on purpose: proven"));
}

TEST_F(RanksTrainTest, ABadImageEndsTheRunWithItsName) {
  auto bad = samples(30);
  bad[17][0].second = bad[17][0].second.substr(0, 60);
  test::make_dataset(dir_, "bad", bad, 50);
  const auto result = run(
      dir_, {"--train", dir_ / "bad.idx", "--local-ranks", "2", "--batch-size", "3", "--quiet"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("shardwise-train: error: rank "), HasSubstr("bad-0.tar"),
                                HasSubstr("s00017"), HasSubstr("png")));
  EXPECT_EQ(lines_of(result.err).size(), 1U)
      << "said once, by the rank that met it: " << result.err;
}

/// A pipe for a program's standard error that is full until it is drained.
class FullPipe {
 public:
  explicit FullPipe(const std::string& path) {
    std::filesystem::remove(path);
    if (::mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("no fifo");
    end_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK);
    while (::write(end_, "x", 1) == 1) {
    }
  }
  ~FullPipe() { ::close(end_); }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  /// Reads until the program has ended. Returns the program's text.
  std::string drain(const Trainer& trainer) {
    std::string text;
    for (bool was_last = false;; was_last = trainer.has_ended()) {
      char buffer[4096];
      ssize_t count = 0;
      while ((count = ::read(end_, buffer, sizeof buffer)) > 0) {
        text.append(buffer, static_cast<std::size_t>(count));
      }
      if (was_last) return text.substr(text.find_first_not_of('x'));
      ::usleep(1000);
    }
  }

 private:
  int end_ = -1;
};

TEST_F(RanksTrainTest, ABadImageIsTheCauseAlsoIfItsRankEndsAfterTheOthers) {
  auto bad = samples(30);
  bad[17][0].second = bad[17][0].second.substr(0, 60);
  test::make_dataset(dir_, "bad", bad, 50);
  FullPipe err(dir_ / "stderr");
  // The full pipe keeps the rank with the bad image from ending before it has reported the error.
  Trainer trainer(dir_, {"--train", dir_ / "bad.idx", "--local-ranks", "2", "--batch-size", "3",
                         "--quiet", "--checkpoint", dir_ / "bad.pt"});
  while (trainer.children().size() < 2 && !trainer.has_ended()) ::usleep(1000);
  while (trainer.children().size() == 2 && !trainer.has_ended()) ::usleep(1000);
  const std::string said = err.drain(trainer);
  EXPECT_EQ(trainer.wait(), 1);
  EXPECT_THAT(said, AllOf(HasSubstr("cannot decode"), HasSubstr("s00017")));
  EXPECT_THAT(said, Not(HasSubstr("lost contact")));
}

TEST_F(TrainTest, TheNumberOfComputeThreadsIsTheOptionsOrOpenMpsOrTheShareOfTheCores) {
  test::Environment environment;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) environment.unset(name);
  const auto threads = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--epochs", "1", "--threads", "1", "--json"});
    const auto result = run(dir_, with(std::move(more)));
    EXPECT_EQ(result.code, 0) << result.err;
    return json_lines(result.out).back()["compute_threads"].get<unsigned>();
  };
  EXPECT_EQ(threads({}), usable_cores());
  EXPECT_EQ(threads({"--compute-threads", "5"}), 5U);
  environment.set("OMP_NUM_THREADS", "3");
  EXPECT_EQ(threads({}), 3U);
  EXPECT_EQ(threads({"--compute-threads", "5"}), 5U);
}

TEST_F(RanksTrainTest, ComputeThreadsSleepWhileTheyWait) {
  test::Environment environment;
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    environment.unset(name);
  }
  environment.set("OMP_DISPLAY_ENV", "verbose");
  // libgomp prints how long its threads spin before they sleep. Other libraries print less.
  const auto sleeping = [&](std::vector<std::string> more) {
    // Let the run fail at its first step, as spinning threads are slow.
    more.insert(more.end(), {"--threads", "1", "--classes", "1"});
    const auto result = run(dir_, with(std::move(more)));
    EXPECT_THAT(result.err, HasSubstr("not a class"));
    if (result.err.find("GOMP_SPINCOUNT") == std::string::npos) return -1;
    int count = 0;
    for (const auto& line : lines_of(result.err)) {
      if (line.find("GOMP_SPINCOUNT = '0'") != std::string::npos) ++count;
    }
    return count;
  };
  const int alone = sleeping({});
  if (alone < 0) GTEST_SKIP() << "needs libgomp; skipped because this LibTorch does not use it";
  EXPECT_EQ(alone, 1);
  EXPECT_EQ(sleeping({"--local-ranks", "2"}), 2) << "but for the launcher, which computes nothing";
  environment.set("OMP_WAIT_POLICY", "active");
  EXPECT_EQ(sleeping({}), 0);
  EXPECT_EQ(sleeping({"--local-ranks", "2"}), 0);
}

TEST_F(TrainTest, BadSamplesUpToMaxBadAreLeftOutAndNamedAtTheEnd) {
  auto bad = samples(30);
  bad[17][0].second = bad[17][0].second.substr(0, 60);
  test::make_dataset(dir_, "bad", bad, 50);
  const auto result = run(
      dir_, {"--train", dir_ / "bad.idx", "--batch-size", "6", "--epochs", "2", "--max-bad", "1"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("sample 17 was left out"), HasSubstr("s00017"),
                                HasSubstr("shardwise-train: loading: ")));
  EXPECT_THAT(result.out,
              HasSubstr("29 samples, each exactly once, 1 excluded on purpose: proven"));
  const auto evaluated = run(dir_, {"--train", dir_ / "bad.idx", "--eval", dir_ / "bad.idx",
                                    "--batch-size", "6", "--epochs", "1", "--max-bad", "1"});
  EXPECT_EQ(evaluated.code, 1);
  EXPECT_THAT(evaluated.err,
              AllOf(HasSubstr("s00017"), HasSubstr("--max-bad applies to --train only")));
}

TEST_F(TrainTest, ResampledEpochsAreProvenAsOrderedAndCheckpointed) {
  const auto result =
      run(dir_, with({"--sampler", "resampled", "--epochs", "2", "--checkpoint", dir_ / "run.pt"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("epoch 1: 120 samples drawn with replacement, as ordered"));
  EXPECT_EQ(::access((dir_ / "run.pt").c_str(), F_OK), 0);
  EXPECT_EQ(result.err, "") << "it was asked to be quiet";
}

TEST_F(TrainTest, AStartThatIsRefusedKeepsTheLogOfSamples) {
  const auto arguments =
      with({"--epochs", "1", "--checkpoint", dir_ / "run.pt", "--log-samples", dir_ / "log"});
  const auto first = run(dir_, arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string log = test::read_file(dir_ / "log.0");
  EXPECT_EQ(lines_of(log).size(), 120u);
  const auto again = run(dir_, arguments);
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("the checkpoint already exists"));
  EXPECT_EQ(test::read_file(dir_ / "log.0"), log);
}

TEST_F(RanksTrainTest, ExplainOnACheckpointNamesWhatTheNextStepOfTheResumedRunReads) {
  const std::string checkpoint = dir_ / "run.pt";
  const std::vector<std::string> common = {
      "--train", dir_ / "train.idx", "--batch-size", "7", "--local-ranks", "2",  "--epochs",
      "2",       "--quiet",          "--seed",       "9", "--chunk",       "11", "--window",
      "3",       "--log-samples"};
  const auto with = [&](const std::string& log, const std::string& checkpoint_file,
                        const std::vector<std::string>& more) {
    std::vector<std::string> all = common;
    all.insert(all.end(), {log, "--checkpoint", checkpoint_file});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  {
    Trainer trainer(dir_, with(dir_ / "first", checkpoint, {"--checkpoint-steps", "3"}));
    for (int i = 0; i < 3000 && ::access(checkpoint.c_str(), F_OK) != 0; ++i) ::usleep(10'000);
    // The checkpoint is of every third step, or of an epoch's end, so the next step has 7 samples
    // per rank. The checkpoint that the ranks write when their parent is killed may be of any step.
    ASSERT_EQ(::access(checkpoint.c_str(), F_OK), 0) << trainer.err();
    test::write_file(dir_ / "kept.pt", test::read_file(checkpoint));
    ::kill(trainer.pid(), SIGKILL);
    trainer.wait();
  }
  const std::string command = std::string(SHARDWISE_PROGRAM) + " explain " + (dir_ / "train.idx") +
                              " --checkpoint " + (dir_ / "kept.pt") +
                              " --world 2 --batch 7 --step 0 > " + (dir_ / "explained");
  ASSERT_EQ(std::system(command.c_str()), 0);
  const auto resumed = run(dir_, with(dir_ / "second", dir_ / "kept.pt", {"--resume"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  for (const std::string rank : {"0", "1"}) {
    std::vector<std::string> explained;
    for (const auto& line : lines_of(test::read_file(dir_ / "explained"))) {
      std::istringstream words(line);
      std::string of_rank, sample;
      words >> of_rank >> sample;
      if (of_rank == rank) explained.push_back(sample);
    }
    std::vector<std::string> read;
    std::string step;
    for (const auto& line : lines_of(test::read_file(dir_ / ("second." + rank)))) {
      std::istringstream words(line);
      std::string epoch, of_step, sample;
      words >> epoch >> of_step >> sample;
      if (step.empty()) step = of_step;
      if (of_step == step) read.push_back(sample);
    }
    EXPECT_EQ(read.size(), 7u);
    EXPECT_EQ(explained, read) << "rank " << rank;
  }
}

/// Rank `rank` of two, started by hand.
class RankByHand {
 public:
  RankByHand(const std::string& job, int rank, const std::vector<std::string>& arguments) {
    const std::vector<std::pair<std::string, std::string>> variables = {
        {"RANK", std::to_string(rank)},
        {"WORLD_SIZE", "2"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"SHARDWISE_JOB", job}};
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    trainer_.emplace(dir_, arguments);
    for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  }
  Trainer* operator->() { return &*trainer_; }

 private:
  const test::TempDir dir_;
  std::optional<Trainer> trainer_;
};

TEST_F(RanksTrainTest, RanksStartedWithOtherDataOrOptionsAllSayWhichAndWhere) {
  // Fault under test: tests/faults.md 54.
  test::make_dataset(dir_, "other", samples(121), 50);
  const auto job = [&](const std::string& name) {
    return "train_test " + std::to_string(::getpid()) + " " + name;
  };
  struct Row {
    std::vector<std::string> rank_0, rank_1;
    std::vector<const char*> texts;
  };
  const std::vector<Row> rows = {
      {with({"--lr", "0.001"}),
       with({"--lr", "0.002"}),
       {"the --lr is ", "'0.002' on rank 1", "'0.001' on rank 0"}},
      {with({"--checkpoint", dir_ / "rank0.pt"}),
       with({}),
       {"the --checkpoint is ", "'none' on rank 1", "'given' on rank 0"}},
      {{"--train", dir_ / "train.idx", "--batch-size", "4"},
       {"--train", dir_ / "other.idx", "--batch-size", "8"},
       {"the data set is ", "'121 samples, ", "the batch size is ", "'8' on rank 1"}},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    RankByHand rank_0(job(std::to_string(i)), 0, rows[i].rank_0);
    RankByHand rank_1(job(std::to_string(i)), 1, rows[i].rank_1);
    for (RankByHand* rank : {&rank_0, &rank_1}) {
      EXPECT_EQ((*rank)->wait(), 1);
      EXPECT_THAT((*rank)->err(), HasSubstr("the ranks' settings differ: "));
      for (const char* text : rows[i].texts) EXPECT_THAT((*rank)->err(), HasSubstr(text));
    }
  }
}

/// Returns true if the process has a handler for the signal.
bool handles(pid_t pid, int signal) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string name, value; in >> name;) {
    if (name == "SigCgt:" && in >> value) {
      return (std::stoull(value, nullptr, 16) >> (signal - 1) & 1) != 0;
    }
  }
  return false;
}

TEST_F(RanksTrainTest, CtrlCEndsARankThatWaitsForOthers) {
  RankByHand rank("train_test " + std::to_string(::getpid()), 1, {"--train", dir_ / "train.idx"});
  // After 5 s it reports that it is waiting.
  const auto said = [&] {
    return rank->has_begun() && rank->err().find("waiting for rank 0 ") != std::string::npos;
  };
  for (int i = 0; i < 12'000 && !said(); ++i) ::usleep(10'000);
  EXPECT_THAT(rank->err(), AllOf(HasSubstr("shardwise-train: note: rank 1 of 2: "),
                                 HasSubstr("waiting for rank 0 at ")));
  ::kill(rank->pid(), SIGINT);
  EXPECT_EQ(rank->wait(), 130);
  EXPECT_THAT(rank->err(),
              AllOf(HasSubstr("interrupted"), Not(HasSubstr("error")),
                    HasSubstr("note: rank 1 of 2: interrupted; "), HasSubstr("notify rank 0 at ")));
}

TEST_F(RanksTrainTest, ASignalToOneRankWhileTheRanksMeetIsTheExitCode) {
  Trainer trainer(dir_, with({"--local-ranks", "3"}));
  for (int i = 0; i < 60'000 && trainer.children().size() < 3; ++i) ::usleep(1'000);
  const auto ranks = trainer.children();
  ASSERT_EQ(ranks.size(), 3u) << trainer.err();
  ::kill(ranks[2], SIGSTOP);  // rank 0 waits for this rank, and stays to inform it when it is
                              // interrupted
  for (int i = 0; i < 60'000 && !handles(ranks[0], SIGUSR1); ++i) ::usleep(1'000);
  ::kill(ranks[0], SIGUSR1);
  // Rank 1 is informed and ends first. The launcher then sends SIGTERM to the others.
  for (int i = 0; i < 60'000 && trainer.children().size() == 3; ++i) ::usleep(1'000);
  ::kill(ranks[2], SIGCONT);
  EXPECT_EQ(trainer.wait(), 128 + SIGUSR1) << trainer.err();
}

TEST_F(TrainTest, WhatCannotWorkIsSaidOnceWithTheWayOut) {
  const auto text = [&](std::vector<std::string> arguments, int code) {
    const auto result = run(dir_, std::move(arguments));
    EXPECT_EQ(result.code, code) << result.err;
    if (code == 1) {
      EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
    }
    return result.err;
  };
  EXPECT_THAT(text({"--train", dir_ / "none.idx", "--local-ranks", "2"}, 1), HasSubstr("none.idx"));
  EXPECT_THAT(text(with({"--checkpoint", dir_ / "no.pt", "--resume"}), 1), HasSubstr("no.pt"));
  test::write_file(dir_ / "junk.pt", "junk");
  EXPECT_THAT(text(with({"--checkpoint", dir_ / "junk.pt"}), 1),
              HasSubstr("the checkpoint already exists"));
  EXPECT_THAT(text(with({"--checkpoint", dir_ / "junk.pt", "--resume"}), 1),
              AllOf(HasSubstr("not a complete checkpoint"), HasSubstr("junk.pt")));
  ::mkdir((dir_ / "folder").c_str(), 0755);
  EXPECT_THAT(
      text(with({"--checkpoint", dir_ / "folder"}), 1),
      AllOf(HasSubstr("is a folder: '"), HasSubstr("such as '" + (dir_ / "folder/run.pt"))));
  EXPECT_THAT(text(with({"--label-field", "txt"}), 1),
              AllOf(HasSubstr("txt"), HasSubstr("with --label-field")));
  EXPECT_THAT(text(with({"--classes", "2"}), 1), HasSubstr("larger --classes"));
  EXPECT_THAT(text(with({"--streams", "2", "--local-ranks", "3"}), 2), HasSubstr("streams"));
  EXPECT_THAT(text({}, 2), HasSubstr("shardwise-train: error: "));
  EXPECT_THAT(text(with({"--batch-size", "4"}), 2), HasSubstr("--global-batch-size"));
  EXPECT_THAT(text(with({"--chunk", "7", "--sampler", "sharded"}), 2), HasSubstr("--chunk"));
  EXPECT_THAT(text(with({"--epoch", "3"}), 2), HasSubstr("did you mean --epochs"));
  EXPECT_THAT(text(with({"--skip", "/dev/null"}), 2), HasSubstr("is not a regular file"));
  text(with({"--resume"}), 2);
  text(with({"--tail", "some"}), 2);
  text(with({"--sampler", "some"}), 2);
  text(with({"--resize", "0x4"}), 2);
  text(with({"--unknown"}), 2);
}

}  // namespace
}  // namespace shardwise
