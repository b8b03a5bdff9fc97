#include "base/rank_environment.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <sstream>

#include "support/support.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
/// A set of variables, made from a text like "RANK=5 WORLD_SIZE=8".
struct Variables : std::map<std::string, std::string> {
  using map::map;
  Variables(const char* text) {  // NOLINT(google-explicit-constructor)
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      (*this)[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
};

Environment environment_of(const Variables& variables) {
  return [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

RankEnvironment ranks_of(const Variables& variables) {
  return rank_environment(environment_of(variables));
}

MeetingPoint meet(const Variables& variables, const std::string& starter = "") {
  return meeting_point(ranks_of(variables), environment_of(variables), starter);
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
  }
  return variables;
}

// The variables that launchers set, observed with torchrun 1.13.1 and 2.13, Open MPI 4.1.4 and 5,
// MPICH 4.0.2 (Hydra), Intel MPI 2021, Cray PALS, and Slurm 22.05.

const Variables kTorchrun113 =
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 ROLE_RANK=5 "
    "ROLE_WORLD_SIZE=8 ROLE_NAME=default MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 "
    "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 "
    "TORCHELASTIC_USE_AGENT_STORE=True NCCL_ASYNC_ERROR_HANDLING=1";

const Variables kTorchrun213 =
    "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 "
    "ROLE_RANK=1 ROLE_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=44929 "
    "TORCHELASTIC_RUN_ID=0e27032e-089c-4885-9eca-8fc5c1e50e9c TORCHELASTIC_RESTART_COUNT=0 "
    "TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT "
    "TORCHELASTIC_USE_AGENT_STORE=True TORCH_NCCL_ASYNC_ERROR_HANDLING=1";

const Variables kOpenMpi4 =
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=2 "
    "OMPI_MCA_ess_base_jobid=262012929 PMIX_NAMESPACE=262012929 PMIX_RANK=1";

const Variables kOpenMpi5 =
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=4 "
    "PMIX_NAMESPACE=prterun-a-811@1 PMIX_RANK=3";

const Variables kHydra =
    "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 HYDI_CONTROL_FD=7 "
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME=a";

const Variables kIntelMpi = "PMI_RANK=4 PMI_SIZE=5 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";

const Variables kPals = "PMI_RANK=9 PMI_SIZE=16 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4";

const Variables kSlurm =
    "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=4 SLURM_NTASKS=16 "
    "SLURM_TASKS_PER_NODE=8(x2) SLURM_STEP_NUM_TASKS=7 SLURM_STEP_NUM_NODES=4 "
    "SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_STEP_NODELIST=gpu[07-09,12],login1 "
    "SLURM_NODEID=2 SLURM_LOCALID=0";

const Variables kByHand = "RANK=1 WORLD_SIZE=2 MASTER_ADDR=head MASTER_PORT=1234";

TEST(RankEnvironmentTest, WithoutALauncherThisProcessIsAlone) {
  const auto alone = ranks_of("MASTER_ADDR=somewhere HOME=/");
  EXPECT_EQ(alone.launcher, "none");
  EXPECT_EQ(alone.rank, 0);
  EXPECT_EQ(alone.world_size, 1);
  EXPECT_TRUE(alone.knows_local);
}

TEST(RankEnvironmentTest, EachLaunchersVariablesAreUnderstood) {
  struct Row {
    const char* what;
    Variables variables;
    const char* launcher;
    int rank, world_size, local_rank, local_world_size;
    bool knows_local = true;
  };
  const std::vector<Row> rows = {
      {"torchrun 1.13", kTorchrun113, "torchrun", 5, 8, 1, 4},
      {"torchrun 2.13", kTorchrun213, "torchrun", 1, 2, 1, 2},
      {"torchrun with virtual local ranks", with(kTorchrun213, "LOCAL_RANK=0"), "torchrun", 1, 2, 1,
       2},
      {"torchrun in a Slurm job, one of its tasks", with(kSlurm, kTorchrun213), "torchrun", 1, 2, 1,
       2},
      {"torchrun under mpirun, one of its ranks", with(kOpenMpi5, kTorchrun213), "torchrun", 1, 2,
       1, 2},
      {"Open MPI 4", kOpenMpi4, "Open MPI", 1, 2, 1, 2},
      {"Open MPI 5", kOpenMpi5, "Open MPI", 3, 4, 1, 2},
      {"Open MPI in a batch script of Slurm", with(kOpenMpi4, "SLURM_JOB_ID=5 SLURM_PROCID=0"),
       "Open MPI", 1, 2, 1, 2},
      {"MPICH", kHydra, "PMI", 1, 2, 1, 2},
      {"MPICH in a batch script of Slurm",
       with(kHydra, "SLURM_JOB_ID=5 SLURM_PROCID=0 SLURM_NTASKS=2"), "PMI", 1, 2, 1, 2},
      {"MPICH, whose proxies srun starts, one a node", with(kSlurm, kIntelMpi), "PMI", 4, 5, 1, 2},
      {"Intel MPI", kIntelMpi, "PMI", 4, 5, 1, 2},
      {"Cray PALS", kPals, "PMI", 9, 16, 1, 4},
      {"PMI that does not say who shares a machine", "PMI_RANK=1 PMI_SIZE=2", "PMI", 1, 2, 0, 1,
       false},
      {"Slurm", kSlurm, "Slurm", 4, 7, 0, 2},
      {"Slurm, the last node", with(kSlurm, "SLURM_PROCID=6 SLURM_NODEID=3"), "Slurm", 6, 7, 0, 1},
      {"Slurm with PMI-2", with(kSlurm, "PMI_RANK=4 PMI_SIZE=7 PMI_FD=9"), "Slurm", 4, 7, 0, 2},
      {"Slurm, on one node",
       "SLURM_JOB_ID=77 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_NNODES=1",
       "Slurm", 1, 2, 1, 2},
      {"Slurm, one node of many tasks",
       "SLURM_JOB_ID=77 SLURM_PROCID=11 SLURM_STEP_NUM_TASKS=12 SLURM_STEP_TASKS_PER_NODE=12 "
       "SLURM_LOCALID=11",
       "Slurm", 11, 12, 11, 12},
      {"Slurm that gives the layout of the step in the job's variable",
       "SLURM_JOB_ID=77 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_TASKS_PER_NODE=1,2 "
       "SLURM_NODEID=1 SLURM_LOCALID=1",
       "Slurm", 2, 3, 1, 2},
      {"Slurm whose job has another layout than the step",
       "SLURM_JOB_ID=77 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_TASKS_PER_NODE=8(x2) "
       "SLURM_NODEID=1 SLURM_LOCALID=0",
       "Slurm", 2, 3, 0, 1, false},
      {"by hand, without LOCAL_RANK", kByHand, "variables set by hand", 1, 2, 0, 1, false},
      {"by hand, with LOCAL_RANK alone", with(kByHand, "LOCAL_RANK=1"), "variables set by hand", 1,
       2, 0, 1, false},
      {"by hand, with both", with(kByHand, "LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"),
       "variables set by hand", 1, 2, 0, 1},
      {"by hand, alike what the launcher says", with(kOpenMpi4, kByHand), "variables set by hand",
       1, 2, 0, 1, false},
      {"by hand, from an interactive shell of one task",
       with(kByHand, "SLURM_JOB_ID=5 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1"),
       "variables set by hand", 1, 2, 0, 1, false},
      {"by hand, in a batch script", with(kByHand, "SLURM_JOB_ID=5 SLURM_PROCID=0 SLURM_NTASKS=2"),
       "variables set by hand", 1, 2, 0, 1, false},
      {"a batch script", "SLURM_JOB_ID=5 SLURM_PROCID=0", "none", 0, 1, 0, 1},
      {"the shell of an allocation", "SLURM_JOB_ID=5 SLURM_NTASKS=4", "none", 0, 1, 0, 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const auto found = ranks_of(row.variables);
    EXPECT_EQ(found.launcher, row.launcher);
    EXPECT_EQ(found.rank, row.rank);
    EXPECT_EQ(found.world_size, row.world_size);
    EXPECT_EQ(found.local_rank, row.local_rank);
    EXPECT_EQ(found.local_world_size, row.local_world_size);
    EXPECT_EQ(found.knows_local, row.knows_local);
  }
}

TEST(RankEnvironmentTest, EachNodeOfAnUnevenSlurmStepHasItsOwnNumberOfRanks) {
  // The tasks per node are 2(x3),1, in blocks over four nodes.
  const std::vector<std::array<const char*, 3>> ranks = {
      {"0", "0", "0"}, {"1", "0", "1"}, {"2", "1", "0"}, {"3", "1", "1"},
      {"4", "2", "0"}, {"5", "2", "1"}, {"6", "3", "0"}};
  for (const auto& [rank, node, local] : ranks) {
    const auto found = ranks_of(
        with(kSlurm, {{"SLURM_PROCID", rank}, {"SLURM_NODEID", node}, {"SLURM_LOCALID", local}}));
    EXPECT_EQ(found.local_world_size, std::string(node) == "3" ? 1 : 2) << rank;
    EXPECT_EQ(std::to_string(found.local_rank), local) << rank;
  }
}

TEST(RankEnvironmentTest, HalfSetOrContradictingVariablesAreErrorsThatNameThem) {
  struct Row {
    Variables variables;
    std::vector<const char*> texts;
  };
  const std::vector<Row> rows = {
      {with(kByHand, "RANK="), {"not RANK"}},
      {with(kByHand, "WORLD_SIZE="), {"not WORLD_SIZE"}},
      {with(kByHand, "RANK=2"), {"RANK=2 and WORLD_SIZE=2"}},
      {with(kByHand, "RANK=-1"), {"RANK='-1'"}},
      {with(kByHand, "WORLD_SIZE=two"), {"WORLD_SIZE='two'"}},
      {with(kByHand, "WORLD_SIZE=0"), {"WORLD_SIZE='0'"}},
      {with(kByHand, "LOCAL_RANK=2"), {"LOCAL_RANK='2'"}},
      {with(kByHand, "LOCAL_WORLD_SIZE=3"), {"LOCAL_WORLD_SIZE='3'"}},
      {with(kByHand, "LOCAL_RANK=1 LOCAL_WORLD_SIZE=1"), {"LOCAL_RANK=1 and LOCAL_WORLD_SIZE=1"}},
      // A shell exported the variables before mpirun or srun: each process would be the same rank,
      // or a separate run.
      {with(kOpenMpi4, with(kByHand, "RANK=0")), {"RANK=0 and OMPI_COMM_WORLD_RANK=1"}},
      {with(kHydra, "RANK=0 WORLD_SIZE=1"), {"WORLD_SIZE=1 and PMI_SIZE=2"}},
      {with(kSlurm, "RANK=0 WORLD_SIZE=1"),
       {"WORLD_SIZE=1 and SLURM_STEP_NUM_TASKS=7", "RANK and WORLD_SIZE", "variables of Slurm"}},
      {"OMPI_COMM_WORLD_RANK=1", {"OMPI_COMM_WORLD_SIZE"}},
      {with(kOpenMpi4, "OMPI_COMM_WORLD_LOCAL_SIZE=1"),
       {"OMPI_COMM_WORLD_LOCAL_RANK=1 and OMPI_COMM_WORLD_LOCAL_SIZE=1"}},
      {"PMI_RANK=1", {"PMI_SIZE"}},
      {with(kHydra, "MPI_LOCALNRANKS=1"), {"MPI_LOCALRANKID=1 and MPI_LOCALNRANKS=1"}},
      {"SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=8", {"srun"}},
      {with(kSlurm, "SLURM_STEP_TASKS_PER_NODE=2(x3)"),
       {"SLURM_STEP_TASKS_PER_NODE=2(x3) and SLURM_STEP_NUM_TASKS=7"}},
      {with(kSlurm, "SLURM_NODEID=4"), {"SLURM_NODEID=4 and SLURM_STEP_TASKS_PER_NODE="}},
      {with(kSlurm, "SLURM_LOCALID=2"), {"SLURM_LOCALID=2 and SLURM_STEP_TASKS_PER_NODE=2(x3),1"}},
      {with(kSlurm, "SLURM_PROCID=7"), {"SLURM_PROCID=7 and SLURM_STEP_NUM_TASKS=7"}},
  };
  for (const Row& row : rows) {
    const std::string text = test::error_text([&] { ranks_of(row.variables); });
    for (const char* part : row.texts) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(test::error_code([&] { ranks_of(row.variables); }), ErrorCode::kDistributed);
  }
  for (const char* layout : {"2(x3", "2(x)", "2x3", ",", "2(x3),-1", "two", "2(x99999999)", "()"}) {
    EXPECT_THAT(
        test::error_text([&] {
          ranks_of(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", layout}}));
        }),
        AllOf(HasSubstr("SLURM_STEP_TASKS_PER_NODE="), HasSubstr(layout), HasSubstr("2(x3),1")));
  }
}

TEST(MeetingPointTest, TheRanksMeetOnRankZerosMachine) {
  EXPECT_EQ(meet(kTorchrun113).address, "10.0.0.1");
  EXPECT_EQ(meet(kTorchrun213).address, "localhost");
  EXPECT_EQ(meet(kOpenMpi4).address, "127.0.0.1");
  EXPECT_EQ(meet(kHydra, "boot/1/2").address, "127.0.0.1");
  EXPECT_EQ(meet(kByHand).address, "head");
  EXPECT_EQ(meet(kSlurm).address, "gpu07");
  EXPECT_EQ(meet(with(kSlurm, "SLURM_STEP_NODELIST= SLURM_JOB_NODELIST=a3-n[2,5].x")).address,
            "a3-n2.x");
  EXPECT_EQ(meet(with(kSlurm, "SLURM_STEP_NODELIST= SLURM_LAUNCH_NODE_IPADDR=10.1.2.3")).address,
            "10.1.2.3");
  EXPECT_EQ(meet(with(kSlurm, "MASTER_ADDR=other")).address, "other");
}

TEST(MeetingPointTest, ThePortIsThatWhichWasAskedForOrMadeFromTheJob) {
  // If the variables were set by hand, two runs get the same job name. They then use a single port,
  // which only one of the runs can bind.
  EXPECT_THAT(meet(kByHand).ports, ElementsAre(1234));
  EXPECT_EQ(meet(kByHand).job, "");
  const auto named = meet(with(kByHand, "SHARDWISE_JOB=tuesday"));
  EXPECT_THAT(named.ports, SizeIs(testing::Gt(1u)));
  EXPECT_EQ(named.ports[0], 1234);
  // If torchrun's own store listens at MASTER_PORT, the ranks connect at another port.
  for (const Variables& launcher : {kTorchrun113, kTorchrun213}) {
    const auto theirs = meet(launcher);
    const auto own = meet(with(launcher, "TORCHELASTIC_USE_AGENT_STORE=False"));
    const auto port = static_cast<std::uint16_t>(std::stoi(launcher.at("MASTER_PORT")));
    EXPECT_THAT(theirs.ports, testing::Not(testing::Contains(port)));
    EXPECT_EQ(own.ports[0], port);
  }
  for (const auto& point : {meet(kSlurm), meet(kOpenMpi4), meet(kHydra, "boot/1/2")}) {
    EXPECT_THAT(point.ports, SizeIs(testing::Gt(4u)));
    for (const std::uint16_t port : point.ports) {
      EXPECT_GE(port, 10000);
      EXPECT_LT(port, 30000);
    }
  }
}

TEST(MeetingPointTest, AllRanksOfAJobAgreeOnItAndJobsDiffer) {
  const auto same = [](const Variables& a, const Variables& b, const std::string& starter_a = "s",
                       const std::string& starter_b = "s") {
    const auto first = meet(a, starter_a);
    const auto second = meet(b, starter_b);
    EXPECT_EQ(first.job == second.job, first.ports == second.ports);
    return first.job == second.job;
  };
  EXPECT_TRUE(same(kSlurm, with(kSlurm, "SLURM_PROCID=1 SLURM_NODEID=0")));
  EXPECT_FALSE(same(kSlurm, with(kSlurm, "SLURM_JOB_ID=78")));
  EXPECT_FALSE(same(kSlurm, with(kSlurm, "SLURM_STEP_ID=1")));
  EXPECT_FALSE(same(kSlurm, with(kSlurm, "SLURM_RESTART_COUNT=1")));
  EXPECT_TRUE(same(kOpenMpi4, with(kOpenMpi4, "OMPI_COMM_WORLD_RANK=0")));
  EXPECT_FALSE(same(kOpenMpi4, with(kOpenMpi4, "PMIX_NAMESPACE=262012930")));
  // Hydra sets no job number, so the process that started the ranks identifies the job.
  EXPECT_TRUE(same(kHydra, with(kHydra, "PMI_RANK=0 PMI_FD=6")));
  EXPECT_FALSE(same(kHydra, kHydra, "boot/811/5", "boot/812/5"));
  EXPECT_FALSE(same(kTorchrun213, with(kTorchrun213, "TORCHELASTIC_RESTART_COUNT=1")));
  EXPECT_FALSE(same(kTorchrun213, with(kTorchrun213, "TORCHELASTIC_RUN_ID=other")));
  EXPECT_FALSE(same(kTorchrun113, with(kTorchrun113, "MASTER_PORT=29501")));
}

TEST(MeetingPointTest, WhatIsMissingIsNamed) {
  const auto text = [](const Variables& variables) {
    return test::error_text([&] { meet(variables); });
  };
  EXPECT_THAT(text(with(kByHand, "MASTER_ADDR=")), HasSubstr("not MASTER_ADDR"));
  EXPECT_THAT(text(with(kByHand, "MASTER_PORT=")),
              AllOf(HasSubstr("not MASTER_PORT"), HasSubstr("SHARDWISE_JOB")));
  EXPECT_THAT(text(with(kByHand, "MASTER_PORT=65536")), HasSubstr("MASTER_PORT='65536'"));
  EXPECT_THAT(text(kOpenMpi5), AllOf(HasSubstr("Open MPI"), HasSubstr("several machines"),
                                     HasSubstr("set MASTER_ADDR")));
  EXPECT_THAT(text(kIntelMpi), HasSubstr("set MASTER_ADDR"));
  // On several machines, different processes start the ranks of MPICH, so the user must name the
  // job.
  EXPECT_THAT(text(with(kIntelMpi, "MASTER_ADDR=head")),
              AllOf(HasSubstr("PMI gives this job no"), HasSubstr("set MASTER_PORT"),
                    HasSubstr("SHARDWISE_JOB")));
  EXPECT_THAT(meet(with(kIntelMpi, "MASTER_ADDR=head MASTER_PORT=99")).ports, ElementsAre(99));
}

TEST(LaunchingProcessTest, IsTheSameForAllThatItStartedWhateverIsBetween) {
  // This process starts a shell with the rank's variable, and the shell starts another program,
  // which runs as long as its input is open.
  std::array<int, 2> input{};
  std::array<int, 2> output{};
  ASSERT_EQ(::pipe2(input.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(output.data(), O_CLOEXEC), 0);
  const pid_t shell = ::fork();
  ASSERT_GE(shell, 0);
  if (shell == 0) {
    ::fcntl(input[0], F_SETFD, 0);
    ::dup2(input[0], 9);
    ::dup2(output[1], STDOUT_FILENO);
    ::setenv("SHARDWISE_TEST_RANK", "1", 1);
    ::execl("/bin/sh", "sh", "-c", "cat <&9 >/dev/null & echo $!; wait", nullptr);
    ::_exit(98);
  }
  ::close(output[1]);
  std::array<char, 32> text{};
  ASSERT_GT(::read(output[0], text.data(), text.size() - 1), 0);
  const int program = std::atoi(text.data());
  const std::string starter = launching_process("SHARDWISE_TEST_RANK", program);
  EXPECT_THAT(starter, HasSubstr("\n" + std::to_string(::getpid()) + "/"));
  EXPECT_EQ(launching_process("SHARDWISE_TEST_RANK", shell), starter);
  // If the shell does not have the variable, the shell counts as the process that started the
  // ranks.
  EXPECT_THAT(launching_process("SHARDWISE_TEST_OTHER", program),
              HasSubstr("\n" + std::to_string(shell) + "/"));
  EXPECT_THAT(launching_process("SHARDWISE_TEST_RANK"),
              HasSubstr("\n" + std::to_string(::getppid()) + "/"));
  ::close(input[1]);
  EXPECT_EQ(::waitpid(shell, nullptr, 0), shell);
  ::close(input[0]);
  ::close(output[0]);
}

}  // namespace
}  // namespace shardwise
