// Tests that examples/train.cc and examples/train_images.cc train, prove their epochs, and continue
// from their checkpoints.

#include <unistd.h>

#include <csignal>
#include <sstream>

#include "libtorch/local_ranks.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/libtorch.h"
#include "support/environment.h"
#include "support/images.h"
#include "tools/process.h"

namespace shardwise::test {
namespace {

TEST(TrainExampleTest, GoesOnFromItsCheckpointOnOtherRanks) {
  const TempDir dir;
  Environment environment;
  environment.set("XDG_CACHE_HOME", dir / "cache");
  TarBuilder tar;
  for (unsigned i = 0; i < 20; ++i) {
    tar.file(std::to_string(i) + ".cls", std::to_string(i % 2));
    tar.file(std::to_string(i) + ".png", encode_png(test_picture(20, 24, i)));
  }
  write_file(dir / "t.tar", tar.end().bytes());
  const std::string checkpoint = dir / "run.pt";
  const auto train = [&](const char* epochs) {
    const Finished finished = run({SHARDWISE_EXAMPLE_TRAIN, dir / "t.tar", epochs, checkpoint});
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished.out;
  };
  EXPECT_EQ(train("1"), "epoch 0: 20 samples, each exactly once: proven\n");
  std::string rest = "epoch 1: 20 samples, each exactly once: proven\n";
  if (libtorch::has_distributed()) {
    libtorch::LocalRanksOptions two;
    two.num_ranks = 2;
    two.arguments = {SHARDWISE_EXAMPLE_TRAIN, dir / "t.tar", "2", checkpoint};
    EXPECT_TRUE(libtorch::run_local_ranks(two).ok());
    rest.clear();
  }
  EXPECT_EQ(train("3"), rest + "epoch 2: 20 samples, each exactly once: proven\n");
}

/// Writes pictures of two classes that differ in colour. Adds `shift` to the labels.
std::string write_pictures(const TempDir& dir, const std::string& name, int shift) {
  TarBuilder tar;
  for (int i = 0; i < 24; ++i) {
    const std::string key = std::to_string(i);
    tar.file(key + ".cls", std::to_string(i % 2 + shift));
    tar.file(key + ".png", solid_png(16, 16, i % 2 == 0 ? 20 + i : 200 + i));
  }
  write_file(dir / (name + ".tar"), tar.end().bytes());
  BuildOptions options;
  options.content.columns = {parse_column("cls")};
  build_index(dir / (name + ".idx"), {dir / (name + ".tar")}, options);
  return dir / (name + ".idx");
}

TEST(TrainImagesExampleTest, TrainsEvaluatesStopsEarlyAndGoesOn) {
  const TempDir dir;
  const std::string train = write_pictures(dir, "train", 0);
  const std::string never_right = write_pictures(dir, "wrong", 7);
  const std::string checkpoint = dir / "run.pt";
  write_file(dir / "skip", "3\n8\n");
  const auto arguments = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {
        SHARDWISE_EXAMPLE_TRAIN_IMAGES, "--train", train,       "--size", "16",
        "--global-batch-size",          "5",       "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto begun = run(arguments({"--eval", train, "--epochs", "1", "--accumulate", "2",
                                    "--checkpoint", checkpoint, "--checkpoint-minutes", "2e-5"}));
  EXPECT_EQ(begun.code, 0) << begun.err;
  EXPECT_THAT(begun.out,
              testing::AllOf(testing::HasSubstr("epoch 0: 24 samples, each exactly once: proven\n"
                                                "loss "),
                             testing::HasSubstr(" of 24, each counted once)")));
  EXPECT_THAT(begun.err, testing::HasSubstr(" rank      wait    compute"));
  // The model in the checkpoint has the accuracy that was printed.
  const auto evaluated =
      run(arguments({"--eval", train, "--eval-only", "1", "--checkpoint", checkpoint}));
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(evaluated.out, begun.out.substr(begun.out.find("accuracy ")));
  if (libtorch::has_distributed()) {
    libtorch::LocalRanksOptions two;
    two.num_ranks = 2;
    two.arguments = arguments({"--eval", train, "--epochs", "2", "--checkpoint", checkpoint});
    EXPECT_TRUE(libtorch::run_local_ranks(two).ok());
  }
  // The accuracy never improves.
  const auto wrong = arguments({"--eval", never_right, "--patience", "2", "--skip", dir / "skip",
                                "--epochs", "9", "--checkpoint", dir / "wrong.pt"});
  const auto stopped = run(wrong);
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_THAT(stopped.out,
              testing::AllOf(testing::HasSubstr("epoch 2: 22 samples, each exactly once"),
                             testing::HasSubstr("accuracy 0.00 % (0 of 24, each counted once)"),
                             testing::HasSubstr("no better for 2 epochs: done\n"),
                             testing::Not(testing::HasSubstr("epoch 3"))));
  EXPECT_EQ(run(wrong).out, "no better for 2 epochs: done\n") << "its patience is in the file";
}

/// Waits until the process has a handler for the signal.
void wait_for_handler(const Process& process, int signal) {
  const auto is_handled = [&] {
    std::istringstream lines(read_file("/proc/" + std::to_string(process.pid()) + "/status"));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("SigCgt:")) {
        return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
      }
    }
    return false;
  };
  for (int i = 0; i < 60'000 && !is_handled(); ++i) ::usleep(1'000);
}

TEST(TrainImagesExampleTest, ASignalGivesItsExitCodeWhereverItComes) {
  const TempDir dir;
  const std::string train = write_pictures(dir, "train", 0);
  const std::vector<std::string> arguments = {SHARDWISE_EXAMPLE_TRAIN_IMAGES,
                                              "--train",
                                              train,
                                              "--eval",
                                              train,
                                              "--epochs",
                                              "1",
                                              "--size",
                                              "320",
                                              "--threads",
                                              "1",
                                              "--checkpoint",
                                              dir / "run.pt"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    return more;
  };
  // A signal during the evaluation after the last step. The continued run repeats the evaluation.
  Process stopped(arguments);
  for (int i = 0; i < 60'000 && stopped.err_so_far().find("wait    compute") == std::string::npos;
       ++i) {
    ::usleep(1'000);
  }
  stopped.send(SIGTERM);
  const auto first = stopped.wait();
  EXPECT_EQ(first.code, 128 + SIGTERM) << first.err;
  EXPECT_THAT(first.out, testing::Not(testing::HasSubstr("accuracy")));
  EXPECT_THAT(first.err, testing::HasSubstr("stopped: SIGTERM"));
  const auto rest = run(arguments);
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, testing::StartsWith("accuracy "));
  EXPECT_EQ(run(with({"--eval-only", "1"})).out, rest.out);
  EXPECT_EQ(run(arguments).out, "") << "it is made once";
  // A signal before or during the only evaluation.
  Process evaluation(with({"--eval-only", "1"}));
  wait_for_handler(evaluation, SIGUSR1);
  evaluation.send(SIGUSR1);
  const auto second = evaluation.wait();
  EXPECT_EQ(second.code, 128 + SIGUSR1) << second.err;
  EXPECT_EQ(second.out, "");
  if (!libtorch::has_distributed()) return;
  // A signal while the ranks wait for each other.
  Environment environment;
  environment.set("RANK", "1");
  environment.set("WORLD_SIZE", "2");
  environment.set("MASTER_ADDR", "127.0.0.1");
  environment.set("SHARDWISE_JOB", "train_images " + std::to_string(::getpid()));
  Process meeting(arguments);
  wait_for_handler(meeting, SIGTERM);
  meeting.send(SIGTERM);
  const auto third = meeting.wait();
  EXPECT_EQ(third.code, 128 + SIGTERM) << third.err;
  EXPECT_THAT(third.err, testing::StartsWith("train_images: "));
}

TEST(TrainImagesExampleTest, SaysWhatItCannotDo) {
  const TempDir dir;
  const std::string train = write_pictures(dir, "train", 0);
  build_index(dir / "plain.idx", {dir / "train.tar"});
  const auto error_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SHARDWISE_EXAMPLE_TRAIN_IMAGES);
    const auto finished = run(std::move(arguments));
    EXPECT_EQ(finished.code, 2) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(error_of({"--epochs", "1"}), testing::HasSubstr("--train INDEX"));
  EXPECT_THAT(error_of({"--train", train, "--epoch", "1"}),
              testing::HasSubstr("no option '--epoch'; see --help"));
  EXPECT_THAT(error_of({"--train", train, "--epochs", "1x"}),
              testing::HasSubstr("--epochs must be a number of at least 0, not '1x'"));
  EXPECT_THAT(error_of({"--train", train, "--epochs", "1.5"}),
              testing::HasSubstr("--epochs must be an integer, not '1.5'"));
  EXPECT_THAT(error_of({"--train", train, "--accumulate", "0"}),
              testing::HasSubstr("--accumulate"));
  EXPECT_THAT(error_of({"--train", dir / "plain.idx"}),
              testing::HasSubstr("no column cls; give --classes"));
  EXPECT_THAT(error_of({"--train", train, "--eval-only", "1"}),
              testing::HasSubstr("--eval-only needs --eval"));
}

}  // namespace
}  // namespace shardwise::test
