#include <map>

#include "base/rank_environment.h"
#include "support/support.h"

namespace shardwise {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

RankEnvironment read(const Variables& variables) {
  return rank_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(RankEnvironmentTest, WithoutALauncherThisProcessIsAlone) {
  const auto alone = read({{"MASTER_ADDR", "somewhere"}, {"HOME", "/"}});
  EXPECT_EQ(alone.launcher, "none");
  EXPECT_EQ(alone.rank, 0);
  EXPECT_EQ(alone.world_size, 1);
}

TEST(RankEnvironmentTest, EachLaunchersVariablesAreUnderstood) {
  struct Row {
    Variables variables;
    const char* launcher;
    int rank, world_size, local_rank, local_world_size;
    const char* address;
    int port;  // 0: made from the job
  };
  const std::vector<Row> rows = {
      {{{"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "29500"}},
       "torchrun",
       5,
       8,
       1,
       4,
       "10.0.0.1",
       29500},
      {{{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
       "Open MPI",
       3,
       4,
       3,
       4,
       "127.0.0.1",
       0},
      {{{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"MASTER_ADDR", "head"},
        {"MASTER_PORT", "1234"}},
       "Open MPI",
       3,
       4,
       1,
       2,
       "head",
       1234},
      {{{"SLURM_JOB_ID", "77"},
        {"SLURM_PROCID", "9"},
        {"SLURM_NTASKS", "16"},
        {"SLURM_STEP_NUM_TASKS", "12"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_STEP_NUM_NODES", "3"},
        {"SLURM_STEP_NODELIST", "gpu[07-09,12],login1"}},
       "Slurm",
       9,
       12,
       1,
       1,
       "gpu07",
       0},
      {{{"SLURM_JOB_ID", "77"},
        {"SLURM_PROCID", "1"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NNODES", "1"}},
       "Slurm",
       1,
       2,
       1,
       2,
       "127.0.0.1",
       0},
      {{{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_JOB_NODELIST", "a3-n[2,5].rack"}},
       "Slurm",
       1,
       2,
       0,
       1,
       "a3-n2.rack",
       0},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.1.2.3"}},
       "Slurm",
       1,
       2,
       1,
       1,
       "10.1.2.3",
       0},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
       "PMI",
       1,
       2,
       1,
       2,
       "127.0.0.1",
       0},
      // torchrun inside of a Slurm job is torchrun; mpirun inside of one is Open MPI.
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}},
       "torchrun",
       0,
       1,
       0,
       1,
       "",
       0},
      {{{"SLURM_JOB_ID", "5"},
        {"SLURM_PROCID", "0"},
        {"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "Open MPI",
       1,
       2,
       1,
       2,
       "127.0.0.1",
       0},
      // A batch script, or an allocation's shell, is no rank.
      {{{"SLURM_JOB_ID", "5"}, {"SLURM_PROCID", "0"}}, "none", 0, 1, 0, 1, "", 0},
      {{{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}}, "none", 0, 1, 0, 1, "", 0},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    SCOPED_TRACE("row " + std::to_string(i));
    const auto found = read(row.variables);
    EXPECT_EQ(found.launcher, row.launcher);
    EXPECT_EQ(found.rank, row.rank);
    EXPECT_EQ(found.world_size, row.world_size);
    EXPECT_EQ(found.local_rank, row.local_rank);
    EXPECT_EQ(found.local_world_size, row.local_world_size);
    EXPECT_EQ(found.master_address, row.address);
    if (row.port != 0) {
      EXPECT_EQ(found.master_port, row.port);
    } else if (found.world_size > 1) {
      EXPECT_GE(found.master_port, 10000);
      EXPECT_LT(found.master_port, 30000);
    }
  }
}

TEST(RankEnvironmentTest, AllRanksOfAJobMeetAtOnePortAndJobsDiffer) {
  const auto port = [](const char* job, const char* rank) {
    return read({{"SLURM_JOB_ID", job},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_PROCID", rank},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_NNODES", "1"}})
        .master_port;
  };
  EXPECT_EQ(port("100", "0"), port("100", "3"));
  EXPECT_NE(port("100", "0"), port("101", "0"));
}

TEST(RankEnvironmentTest, TorchrunsOwnStoreAndRestartsAreSeen) {
  const auto found = read({{"RANK", "0"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", "1"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_RUN_ID", "r"},
                           {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_TRUE(found.launcher_store);
  EXPECT_EQ(found.attempt, "r/2");
}

TEST(RankEnvironmentTest, HalfSetOrContradictingVariablesAreErrorsThatNameThem) {
  const Variables torchrun = {{"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_RANK", "0"},
                              {"MASTER_ADDR", "a"},
                              {"MASTER_PORT", "1"}};
  const auto text = [](Variables variables, const std::string& name, const std::string& value) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
    return test::error_text([&] { read(variables); });
  };
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(text(torchrun, name, ""), HasSubstr(name)) << name;
  }
  EXPECT_THAT(text(torchrun, "RANK", "2"), HasSubstr("RANK=2 and WORLD_SIZE=2"));
  EXPECT_THAT(text(torchrun, "RANK", "-1"), HasSubstr("RANK='-1'"));
  EXPECT_THAT(text(torchrun, "WORLD_SIZE", "two"), HasSubstr("WORLD_SIZE='two'"));
  EXPECT_THAT(text(torchrun, "WORLD_SIZE", "0"), HasSubstr("WORLD_SIZE='0'"));
  EXPECT_THAT(text(torchrun, "MASTER_PORT", "65536"), HasSubstr("MASTER_PORT='65536'"));
  EXPECT_THAT(text(torchrun, "LOCAL_RANK", "2"), HasSubstr("LOCAL_RANK='2'"));
  EXPECT_THAT(text(torchrun, "LOCAL_WORLD_SIZE", "3"), HasSubstr("LOCAL_WORLD_SIZE='3'"));

  EXPECT_THAT(test::error_text([] {
                read({{"OMPI_COMM_WORLD_RANK", "1"}});
              }),
              HasSubstr("OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(test::error_text([] {
                read({{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
              }),
              HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(test::error_text([] {
                read({{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
              }),
              HasSubstr("srun"));
  EXPECT_EQ(test::error_code([] { read({{"PMI_RANK", "1"}}); }), ErrorCode::kDistributed);
}

}  // namespace
}  // namespace shardwise
