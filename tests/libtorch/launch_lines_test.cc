// Runs the launch lines of docs/train-libtorch.md, with two ranks on this machine instead of
// sixteen on two machines. Skips launchers that are not installed.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "libtorch/rendezvous/hub.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/support.h"

namespace shardwise {
namespace {

using testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// Returns a free port below those that the system assigns.
int free_port() {
  constexpr int kFirst = 30'000;
  constexpr int kNumber = 2000;
  for (int i = 0; i < kNumber; ++i) {
    const int port = kFirst + (::getpid() + i) % kNumber;
    const auto here = shardwise::detail::listen_at("0.0.0.0", static_cast<std::uint16_t>(port));
    if (here.is_open()) return port;
  }
  ADD_FAILURE() << "no port is free";
  return kFirst;
}

/// Returns the page's line with this beginning, changed to two ranks on this machine.
std::string line_of_page(const std::string& beginning) {
  std::ifstream page(test::source_dir() + "/docs/train-libtorch.md");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(beginning) || !line.ends_with(" $TRAIN")) continue;
    line = replaced(line, "node1:8,node2:8", "localhost:2");
    line = replaced(line, "node1,node2", "localhost");
    line = replaced(line, "node1", "127.0.0.1");
    line = replaced(line, "--nodes 2 --ntasks-per-node 8", "--overcommit --nodes 1 -n 2");
    line = replaced(line, "--nproc-per-node 8", "--nproc-per-node 1");
    line = replaced(line, "-ppn 8", "-ppn 2");
    line = replaced(line, "16", "2");
    line = replaced(line, "29400", std::to_string(free_port()));
    return line;
  }
  ADD_FAILURE() << "the page has no line that begins with '" << beginning << "'";
  return "false";
}

class LaunchLinesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (shell(std::string(SHARDWISE_TRAIN) + " --version | grep -q 'one rank only'") == 0) {
      GTEST_SKIP() << "needs Gloo; skipped because this build runs one rank only";
    }
    std::vector<test::Fields> samples;
    for (int i = 0; i < 24; ++i) {
      samples.push_back({{"png", test::solid_png(8, 8, 10 * i)}, {"cls", std::to_string(i % 2)}});
    }
    test::make_dataset(dir_, "train", samples);
    ::setenv(
        "TRAIN",
        (std::string(SHARDWISE_TRAIN) + " --epochs 1 --threads 1 --compute-threads 1 --train " +
         (dir_ / "train.idx") + " --eval " + (dir_ / "train.idx"))
            .c_str(),
        1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    ::setenv("OMPI_MCA_plm", "isolated", 1);  // one machine: mpirun needs no ssh
  }

  static int shell(const std::string& command) {
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static bool is_installed(const std::string& program) {
    return shell("command -v " + program + " > /dev/null") == 0;
  }

  /// Runs the line. Expects that rank 0 has proven its epoch.
  void expect_proof(const std::string& command) {
    const std::string log = dir_ / "log";
    EXPECT_EQ(shell("exec > '" + log + "' 2>&1; " + command), 0) << command << '\n'
                                                                 << test::read_file(log);
    EXPECT_THAT(test::read_file(log), HasSubstr("epoch 0: 24 samples, each exactly once: proven"));
  }
  /// Like expect_proof(), but runs the line twice at the same time, with `variable` set to 0 and to
  /// 1.
  void expect_proof_of_two(const std::string& command, const std::string& variable) {
    expect_proof("export " + variable + "=1; { " + command + "; } & export " + variable + "=0; " +
                 command + " && wait $!");
  }

  const test::TempDir dir_;
};

TEST_F(LaunchLinesTest, Torchrun) {
  if (!is_installed("torchrun"))
    GTEST_SKIP() << "needs torchrun; skipped because it is not installed";
  expect_proof_of_two(line_of_page("torchrun "), "NODE");
}

TEST_F(LaunchLinesTest, OpenMpi) {
  if (!is_installed("mpirun.openmpi"))
    GTEST_SKIP() << "needs Open MPI; skipped because it is not installed";
  expect_proof(replaced(line_of_page("mpirun "), "mpirun ", "mpirun.openmpi "));
}

TEST_F(LaunchLinesTest, Mpich) {
  if (!is_installed("mpiexec.hydra"))
    GTEST_SKIP() << "needs MPICH; skipped because it is not installed";
  expect_proof(replaced(line_of_page("mpiexec "), "mpiexec ", "mpiexec.hydra "));
}

TEST_F(LaunchLinesTest, Slurm) {
  if (!is_installed("srun") || shell("srun -n 1 true > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "needs Slurm; skipped because srun cannot start programs here";
  }
  expect_proof(line_of_page("srun "));
}

TEST_F(LaunchLinesTest, ByHand) { expect_proof_of_two(line_of_page("RANK=$R "), "R"); }

}  // namespace
}  // namespace shardwise
