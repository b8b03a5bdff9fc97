#include "base/cores.h"

#include <sched.h>

#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

TEST(CoresTest, AreThoseThatTheProcessMayUse) {
  test::Child bound([]() -> std::string {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return "cannot bind";
    if (usable_cores() != 1) return std::to_string(usable_cores()) + " cores";
    return cores_of_rank(1) == 1 ? "" : "a rank has " + std::to_string(cores_of_rank(1));
  });
  EXPECT_EQ(bound.wait(), "");
}

TEST(CoresTest, RanksShareThoseOfTheMachine) {
  EXPECT_EQ(cores_of_rank(64, 64, 1), 64U);
  EXPECT_EQ(cores_of_rank(64, 64, 8), 8U);
  EXPECT_EQ(cores_of_rank(2, 2, 2), 1U);
  EXPECT_EQ(cores_of_rank(2, 2, 5), 1U) << "each has one";
}

TEST(CoresTest, ARankThatWasBoundHasItsOwn) {
  EXPECT_EQ(cores_of_rank(8, 64, 8), 8U) << "srun --cpus-per-task 8";
  EXPECT_EQ(cores_of_rank(8, 64, 4), 8U) << "and no more";
  EXPECT_EQ(cores_of_rank(32, 64, 8), 8U) << "four ranks on each of two sockets";
  EXPECT_EQ(cores_of_rank(1, 64, 2), 1U) << "mpirun --bind-to core";
  EXPECT_EQ(cores_of_rank(8, 1, 4), 2U) << "the launcher alone was bound";
}

}  // namespace
}  // namespace shardwise
