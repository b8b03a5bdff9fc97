#include "base/cores.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <limits>

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

/// Returns the core limit of the control groups in this line of /proc/self/cgroup.
unsigned allowed(const test::TempDir& dir, const std::string& membership) {
  std::ofstream(dir / "membership") << "3:memory:/elsewhere\n" << membership << '\n';
  return detail::cores_by_groups(dir / "membership", dir / "root");
}

void write(const test::TempDir& dir, const std::string& group, const std::string& file,
           const std::string& text) {
  std::filesystem::create_directories(dir / ("root/" + group));
  std::ofstream(dir / ("root/" + group + "/" + file)) << text << '\n';
}

TEST(CoresTest, AreNoMoreThanControlGroupsAllow) {
  const test::TempDir dir;
  constexpr unsigned kNoLimit = std::numeric_limits<unsigned>::max();
  EXPECT_EQ(allowed(dir, "0::/"), kNoLimit) << "there is no file";
  write(dir, "pod/task", "cpu.max", "max 100000");
  EXPECT_EQ(allowed(dir, "0::/pod/task"), kNoLimit);
  write(dir, "pod", "cpu.max", "250000 100000");
  EXPECT_EQ(allowed(dir, "0::/pod/task"), 3U) << "of the group around it, rounded up";
  write(dir, "pod/task", "cpu.max", "50000 100000");
  EXPECT_EQ(allowed(dir, "0::/pod/task"), 1U);
  write(dir, "", "cpu.max", "200000 100000");
  EXPECT_EQ(allowed(dir, "0::/not/shown/in/the/container"), 2U);
  EXPECT_EQ(detail::cores_by_groups(dir / "none", dir / "root"), kNoLimit);
}

TEST(CoresTest, AreNoMoreThanControlGroupsOfVersion1Allow) {
  const test::TempDir dir;
  constexpr unsigned kNoLimit = std::numeric_limits<unsigned>::max();
  write(dir, "cpu/pod", "cpu.cfs_quota_us", "-1");
  write(dir, "cpu/pod", "cpu.cfs_period_us", "100000");
  EXPECT_EQ(allowed(dir, "4:cpu,cpuacct:/pod"), kNoLimit);
  write(dir, "cpu/pod", "cpu.cfs_quota_us", "400000");
  EXPECT_EQ(allowed(dir, "4:cpu,cpuacct:/pod"), 4U);
  EXPECT_EQ(allowed(dir, "4:cpuset,cpuacct:/pod"), kNoLimit) << "not of the CPU's time";
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
