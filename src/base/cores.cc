#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <limits>
#include <thread>

namespace shardwise::detail {
namespace {

constexpr unsigned kNoLimit = std::numeric_limits<unsigned>::max();

/// Returns the size of a process's affinity mask. Process 0 means this process.
unsigned cores_by_affinity(pid_t process) noexcept {
  // Room for 16,384 CPUs, because Linux refuses a mask that is smaller than the kernel's.
  std::array<cpu_set_t, 16> cores;
  if (::sched_getaffinity(process, sizeof cores, cores.data()) != 0) {
    return std::thread::hardware_concurrency();
  }
  return static_cast<unsigned>(CPU_COUNT_S(sizeof cores, cores.data()));
}

/// Converts a time quota per period to cores, rounded up.
unsigned cores_worth(std::int64_t quota, std::int64_t period) noexcept {
  if (quota <= 0 || period <= 0) return kNoLimit;
  return static_cast<unsigned>(std::min<std::int64_t>((quota - 1) / period + 1, kNoLimit));
}

/// Returns the core limit of one control group. Version 2 has one file with quota and period, e.g.
/// "200000 100000" or "max 100000". Version 1 has one file for each of the two numbers.
unsigned limit_of_group(const std::string& folder, bool is_version_2) {
  std::int64_t quota = 0, period = 0;
  if (is_version_2) {
    std::ifstream(folder + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  return cores_worth(quota, period);
}

/// Returns the smallest core limit of a control group and its ancestors. In a container only the
/// root may be visible.
unsigned limit_of_groups(const std::string& root, std::string group, bool is_version_2) {
  unsigned least = limit_of_group(root, is_version_2);
  while (group.size() > 1) {
    least = std::min(least, limit_of_group(root + group, is_version_2));
    group.resize(group.rfind('/'));
  }
  return least;
}

/// True if "cpu" is in a list such as "cpu,cpuacct".
bool has_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

/// Returns the number of cores that a process may use. Process 0 means this process.
unsigned cores_of(pid_t process) noexcept {
  unsigned limit = kNoLimit;
  try {
    const std::string name = process == 0 ? "self" : std::to_string(process);
    limit = cores_by_groups("/proc/" + name + "/cgroup", "/sys/fs/cgroup");
  } catch (const std::exception&) {  // if memory is exhausted, assume no limit
  }
  return std::min(cores_by_affinity(process), limit);
}

}  // namespace

unsigned cores_by_groups(const std::string& membership, const std::string& root) {
  unsigned least = kNoLimit;
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // "NUMBER:CONTROLLERS:/GROUP"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, limit_of_groups(root, group, true));
    } else if (has_cpu(controllers)) {
      least = std::min(least, limit_of_groups(root + "/cpu", group, false));
    }
  }
  return least;
}

unsigned usable_cores() noexcept { return std::max(1U, cores_of(0)); }

unsigned cores_of_rank(unsigned own, unsigned of_launcher, unsigned num_ranks) noexcept {
  const unsigned share = std::max(own, of_launcher) / std::max(1U, num_ranks);
  return std::clamp(share, 1U, std::max(1U, own));
}

unsigned cores_of_rank(unsigned num_ranks) noexcept {
  return cores_of_rank(usable_cores(), cores_of(::getppid()), num_ranks);
}

}  // namespace shardwise::detail
