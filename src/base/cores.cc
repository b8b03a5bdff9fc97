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

/// Of its affinity; 0: this process.
unsigned cores_by_affinity(pid_t process) noexcept {
  std::array<cpu_set_t, 16> cores;  // 16,384: Linux refuses a mask that is smaller than its own
  if (::sched_getaffinity(process, sizeof cores, cores.data()) != 0) {
    return std::thread::hardware_concurrency();
  }
  return static_cast<unsigned>(CPU_COUNT_S(sizeof cores, cores.data()));
}

/// The cores that so much time of so long a period is worth, of which a part counts as one.
unsigned cores_worth(std::int64_t quota, std::int64_t period) noexcept {
  if (quota <= 0 || period <= 0) return kNoLimit;
  return static_cast<unsigned>(std::min<std::int64_t>((quota - 1) / period + 1, kNoLimit));
}

/// The limit of one group. Version 2 has "200000 100000" or "max 100000" in one file, version 1 two
/// files of a number each.
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

/// The least limit of a group and of those around it, of which a container may show only the last.
unsigned limit_of_groups(const std::string& root, std::string group, bool is_version_2) {
  unsigned least = limit_of_group(root, is_version_2);
  while (group.size() > 1) {
    least = std::min(least, limit_of_group(root + group, is_version_2));
    group.resize(group.rfind('/'));
  }
  return least;
}

/// True if "cpu" is among "cpu,cpuacct".
bool has_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

/// The cores that a process may use; 0: this one.
unsigned cores_of(pid_t process) noexcept {
  unsigned limit = kNoLimit;
  try {
    const std::string name = process == 0 ? "self" : std::to_string(process);
    limit = cores_by_groups("/proc/" + name + "/cgroup", "/sys/fs/cgroup");
  } catch (const std::exception&) {  // no memory: as without a limit
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
