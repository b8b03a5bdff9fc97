#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

namespace shardwise::detail {
namespace {

/// The cores that a process may use; 0: this one.
unsigned cores_of(pid_t process) noexcept {
  std::array<cpu_set_t, 16> cores;  // 16,384: Linux refuses a mask that is smaller than its own
  if (::sched_getaffinity(process, sizeof cores, cores.data()) != 0) {
    return std::thread::hardware_concurrency();
  }
  return static_cast<unsigned>(CPU_COUNT_S(sizeof cores, cores.data()));
}

}  // namespace

unsigned usable_cores() noexcept { return std::max(1U, cores_of(0)); }

unsigned cores_of_rank(unsigned own, unsigned of_launcher, unsigned num_ranks) noexcept {
  const unsigned share = std::max(own, of_launcher) / std::max(1U, num_ranks);
  return std::clamp(share, 1U, std::max(1U, own));
}

unsigned cores_of_rank(unsigned num_ranks) noexcept {
  return cores_of_rank(usable_cores(), cores_of(::getppid()), num_ranks);
}

}  // namespace shardwise::detail
