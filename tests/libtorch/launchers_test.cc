// Starts ranks by real launchers. Skips launchers that are not installed.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>

#include "shardwise/libtorch/process_group.h"
#include "support/support.h"

namespace shardwise::libtorch {
namespace {

std::optional<std::string> find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

/// Starts a program. Writes its output to the file `log`.
pid_t start(std::vector<std::string> arguments, const std::string& log) {
  std::vector<char*> pointers;
  for (auto& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    // Open MPI requires this if root runs it.
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    ::setenv("OMPI_MCA_plm", "isolated", 1);  // one machine: mpirun needs no ssh
    ::execv(pointers[0], pointers.data());
    ::_exit(98);
  }
  return pid;
}

int exit_code_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class LaunchersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_distributed())
      GTEST_SKIP() << "needs Gloo; skipped because this build runs one rank only";
  }

  /// Runs two jobs at the same time, by `command` plus the rank program's arguments. Expects that
  /// each job's ranks find only each other, and know which ranks share their machine.
  void expect_two_jobs(const std::vector<std::string>& command, int world) {
    std::vector<pid_t> jobs;
    for (const char* job : {"a", "b"}) {
      auto arguments = command;
      arguments.insert(arguments.end(), {SHARDWISE_RANK_PROGRAM, "launched", dir_ / "out", job});
      jobs.push_back(start(arguments, dir_ / (std::string("log.") + job)));
    }
    for (const std::size_t i : {0u, 1u}) {
      const std::string job = i == 0 ? "a" : "b";
      EXPECT_EQ(exit_code_of(jobs[i]), 0) << test::read_file(dir_ / ("log." + job));
      for (int rank = 0; rank < world; ++rank) {
        const std::string file = dir_ / ("out." + job + "." + std::to_string(rank));
        ASSERT_TRUE(std::filesystem::exists(file)) << test::read_file(dir_ / ("log." + job));
        EXPECT_EQ(test::read_file(file), "world " + std::to_string(world) + ", local " +
                                             std::to_string(rank) + " of " + std::to_string(world));
        std::filesystem::remove(file);
      }
    }
  }

  const test::TempDir dir_;
};

TEST_F(LaunchersTest, TwoJobsOfMpichOnOneMachineNeverMix) {
  const auto hydra = find_program("mpiexec.hydra");
  if (!hydra) GTEST_SKIP() << "needs MPICH; skipped because mpiexec.hydra is not installed";
  expect_two_jobs({*hydra, "-n", "3"}, 3);
  // A shell between the launcher and the ranks makes no difference.
  expect_two_jobs({*hydra, "-n", "2", "/bin/sh", "-c", "\"$0\" \"$@\"; exit $?"}, 2);
}

TEST_F(LaunchersTest, TwoJobsOfOpenMpiOnOneMachineNeverMix) {
  const auto mpirun = find_program("mpirun.openmpi");
  if (!mpirun) GTEST_SKIP() << "needs Open MPI; skipped because mpirun is not installed";
  expect_two_jobs({*mpirun, "--oversubscribe", "-n", "3"}, 3);
}

TEST_F(LaunchersTest, TorchrunOfAnyVersionStartsRanksOfThisOne) {
  const auto torchrun = find_program("torchrun");
  if (!torchrun) GTEST_SKIP() << "needs torchrun; skipped because it is not installed";
  expect_two_jobs({*torchrun, "--standalone", "--no-python", "--nproc-per-node", "2"}, 2);
}

TEST_F(LaunchersTest, TwoStepsOfSlurmNeverMix) {
  const auto srun = find_program("srun");
  if (!srun) GTEST_SKIP() << "needs Slurm; skipped because srun is not installed";
  if (exit_code_of(start({*srun, "-n", "1", "true"}, dir_ / "log")) != 0) {
    GTEST_SKIP() << "needs Slurm; skipped because srun cannot start programs here";
  }
  expect_two_jobs({*srun, "--overcommit", "-n", "2"}, 2);
}

/// A script that connects two network namespaces by a virtual cable. It runs ranks 0 and 1 in the
/// first and rank 2 in the second. Exits with 77 if namespaces are not available.
/// - $1 is the rank program, $2 the case, and $3 the prefix of output files. In cases that begin
///   with "unplugged", the script removes the cable once all ranks make calls.
/// - $4 is MASTER_ADDR. The name host-a is a loopback address in the first namespace, as in
///   Debian's /etc/hosts.
constexpr const char* kTwoHosts = R"(
program=$1 case=$2 out=$3 master=$4
a=shardwise-a-$$ b=shardwise-b-$$
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf /etc/netns/$a /etc/netns/$b' EXIT
mkdir -p /etc/netns/$a /etc/netns/$b && echo 127.0.1.1 host-a >/etc/netns/$a/hosts &&
  echo 10.77.15.1 host-a >/etc/netns/$b/hosts || exit 77
ip netns add $a && ip netns add $b &&
  ip -n $a link add end-a type veth peer name end-b netns $b &&
  ip -n $a address add 10.77.15.1/24 dev end-a && ip -n $b address add 10.77.15.2/24 dev end-b &&
  ip -n $a link set end-a up && ip -n $b link set end-b up &&
  ip -n $a link set lo up && ip -n $b link set lo up || exit 77
rank() {
  ip netns exec $1 unshare --uts sh -c 'hostname $0; exec "$@"' $2 \
    env RANK=$3 WORLD_SIZE=3 MASTER_ADDR=$master MASTER_PORT=29415 "$program" $case "$out" x
}
rank $a host-a 0 & first=$!
rank $a host-a 1 & second=$!
rank $b host-b 2 & third=$!
if [ "${case#unplugged}" != "$case" ]; then
  until [ -e "$out.ready.0" ] && [ -e "$out.ready.1" ] && [ -e "$out.ready.2" ]; do
    kill -0 $first $second $third || exit 1
    sleep 0.1
  done
  ip -n $b link set end-b down
fi
wait $first && wait $second && wait $third
)";

class HostsTest : public LaunchersTest {
 protected:
  void run_on_two_hosts(const char* what, const char* master = "10.77.15.1") {
    if (!find_program("ip"))
      GTEST_SKIP() << "needs the program ip; skipped because it is not installed";
    const int code = exit_code_of(start(
        {"/bin/sh", "-c", kTwoHosts, "sh", SHARDWISE_RANK_PROGRAM, what, dir_ / "out", master},
        dir_ / "log"));
    if (code == 77)
      GTEST_SKIP() << "needs network namespaces; skipped because they cannot be created here";
    ASSERT_EQ(code, 0) << test::read_file(dir_ / "log");
  }
};

TEST_F(HostsTest, RanksMeetByHandAndKnowWhoSharesAHost) {
  for (const char* master : {"10.77.15.1", "host-a"}) {
    run_on_two_hosts("launched", master);
    if (IsSkipped() || HasFailure()) return;
    EXPECT_EQ(test::read_file(dir_ / "out.x.0"), "world 3, local 0 of 2");
    EXPECT_EQ(test::read_file(dir_ / "out.x.1"), "world 3, local 1 of 2");
    EXPECT_EQ(test::read_file(dir_ / "out.x.2"), "world 3, local 0 of 1");
  }
}

TEST_F(HostsTest, RankZeroOnAnotherHostThanMasterAddrIsNamed) {
  run_on_two_hosts("misled", "10.77.15.2");
  if (IsSkipped() || HasFailure()) return;
  EXPECT_THAT(test::read_file(dir_ / "out.x.0"),
              testing::AllOf(testing::HasSubstr("listens on host host-a (10.77.15.1), port 29415"),
                             testing::HasSubstr("MASTER_ADDR=10.77.15.2 is not an address")));
  for (const char* rank : {"1", "2"}) {
    EXPECT_THAT(test::read_file(dir_ / "out.x." + rank),
                testing::AllOf(testing::HasSubstr("waiting for rank 0"),
                               testing::HasSubstr("'10.77.15.2' port 29415 (")));
  }
}

class CableTest : public HostsTest, public testing::WithParamInterface<const char*> {};

TEST_P(CableTest, RanksBehindACableThatIsPulledAreNamedAtTheTimeout) {
  // Fault under test: tests/faults.md 63.
  run_on_two_hosts(GetParam());
  if (IsSkipped() || HasFailure()) return;
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(test::read_file(dir_ / "out." + rank),
                testing::AllOf(testing::HasSubstr("does not answer"),
                               testing::HasSubstr(" lost rank 2 of 3 (host host-b, process ")));
  }
  EXPECT_THAT(test::read_file(dir_ / "out.2"),
              testing::HasSubstr(" lost rank 0 of 3 (host host-a, process "));
}

INSTANTIATE_TEST_SUITE_P(OfAGroup, CableTest, testing::Values("unplugged", "unplugged-adopted"),
                         [](const auto& instance) {
                           return std::string(instance.index == 0 ? "OfOurs" : "Adopted");
                         });

}  // namespace
}  // namespace shardwise::libtorch
