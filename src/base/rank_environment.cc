#include "base/rank_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

#include "base/hasher.h"
#include "base/process_stat.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {
namespace {

constexpr int kMaxRanks = 1 << 24;
constexpr const char* kNoRanks = "cannot determine the ranks";
constexpr const char* kNoMeeting = "cannot determine the address of rank 0";

[[noreturn]] void throw_environment(const std::string& what, const std::string& where,
                                    const std::string& remedy) {
  throw Error(ErrorCode::kDistributed, what, where, remedy);
}

enum class Launcher { kVariables, kOpenMpi, kSlurm, kPmi };

/// The names of one launcher's variables. nullptr means that the launcher does not set this
/// variable.
struct Names {
  Launcher launcher;
  const char* label;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

constexpr std::array<Names, 5> kLaunchers = {{
    {Launcher::kVariables, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {Launcher::kOpenMpi, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    // PMI is before Slurm in the list: in a Slurm job, mpiexec of MPICH and Intel MPI starts its
    // ranks through Slurm, so both sets of variables exist.
    {Launcher::kPmi, "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {Launcher::kPmi, "PMI", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
    {Launcher::kSlurm, "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
}};

class Reader {
 public:
  explicit Reader(const Environment& get) : get_(get) {}

  std::optional<std::string> text(const char* name) const {
    if (name == nullptr) return std::nullopt;
    auto value = get_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }
  bool has(const char* name) const { return text(name).has_value(); }

  /// Returns the variable's number, which must be in [least, most], or nothing if the variable is
  /// not set.
  std::optional<int> number(const char* name, int least, int most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = parse_int64(*value);
    if (!parsed || *parsed < least || *parsed > most) {
      throw_environment(kNoRanks, std::string(name) + "=" + in_quotes(*value),
                        "set " + std::string(name) + " to a whole number from " +
                            std::to_string(least) + " to " + std::to_string(most));
    }
    return static_cast<int>(*parsed);
  }

  int required(const Names& names, const char* name, int least, int most) const {
    if (const auto value = number(name, least, most)) return *value;
    throw_environment(kNoRanks,
                      "variables of " + std::string(names.label) + " are set, but not " + name,
                      "set " + std::string(name) + ", or unset these variables to run one rank");
  }

  /// Returns "NAME=value and OTHER=value".
  std::string both(const char* name, const char* other) const {
    return std::string(name) + "=" + escaped(text(name).value_or("")) + " and " + other + "=" +
           escaped(text(other).value_or(""));
  }

 private:
  const Environment& get_;
};

// ------------------------------------------------------------------------------------------ Slurm

[[noreturn]] void throw_layout(const std::string& name, const std::string& text) {
  throw_environment(kNoRanks, name + "=" + in_quotes(text),
                    "set " + name + " to the number of tasks of each node, e.g. \"2(x3),1\"");
}

/// Parses e.g. "2(x3),1", which means 2, 2, 2, 1.
std::vector<int> tasks_of_nodes(const std::string& name, const std::string& text) {
  std::vector<int> nodes;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t bracket = part.find("(x");
    const bool repeats = bracket != std::string::npos;
    if (repeats && part.back() != ')') throw_layout(name, text);
    const auto tasks = parse_int64(part.substr(0, bracket));
    const auto times =
        repeats ? parse_int64(part.substr(bracket + 2, part.size() - bracket - 3)) : 1;
    const auto most = static_cast<std::int64_t>(kMaxRanks);
    if (!tasks || !times || *tasks < 0 || *tasks > most || *times < 1 ||
        *times > most - static_cast<std::int64_t>(nodes.size())) {
      throw_layout(name, text);
    }
    nodes.insert(nodes.end(), static_cast<std::size_t>(*times), static_cast<int>(*tasks));
  }
  if (nodes.empty()) throw_layout(name, text);
  return nodes;
}

/// Returns the number of the step's tasks on this node, or nothing if Slurm does not set it.
std::optional<int> tasks_on_this_node(const Reader& env, int world_size, const char* world_name) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = env.text(name);
    if (!text) continue;
    const std::vector<int> nodes = tasks_of_nodes(name, *text);
    const std::int64_t sum = std::accumulate(nodes.begin(), nodes.end(), std::int64_t{0});
    const bool of_step = std::string_view(name) == "SLURM_STEP_TASKS_PER_NODE";
    if (sum != world_size && of_step) {
      throw_environment(kNoRanks, env.both(name, world_name),
                        "keep Slurm's variables as srun sets them: the sum over the nodes must "
                        "equal the number of tasks of the step");
    }
    // The variable may describe the whole job instead of this step.
    if (sum != world_size) continue;
    if (nodes.size() == 1) return nodes[0];
    const auto node = env.number("SLURM_NODEID", 0, kMaxRanks);
    if (!node) continue;
    if (*node >= static_cast<int>(nodes.size()) || nodes[static_cast<std::size_t>(*node)] == 0) {
      throw_environment(
          kNoRanks, env.both("SLURM_NODEID", name),
          "keep Slurm's variables as srun sets them: this node must have at least one task");
    }
    return nodes[static_cast<std::size_t>(*node)];
  }
  const auto num_nodes = env.number("SLURM_STEP_NUM_NODES", 1, kMaxRanks);
  if ((num_nodes ? num_nodes : env.number("SLURM_NNODES", 1, kMaxRanks)) == 1) return world_size;
  return std::nullopt;
}

/// Refuses Slurm's variables in a batch script, where no other ranks will start.
void require_slurm_step(const Reader& env, int world_size) {
  if (world_size > 1 && env.has("SLURM_JOB_ID") && !env.has("SLURM_STEP_NUM_TASKS")) {
    throw_environment(kNoRanks,
                      "SLURM_NTASKS is " + std::to_string(world_size) +
                          ", but this process was not started by srun",
                      "start this process with srun, or unset SLURM_PROCID to run one rank");
  }
}

/// Returns the first host of a Slurm list, e.g. "gpu07" of "gpu[07-09,12],login1".
std::string first_host(std::string_view list) {
  const std::size_t end = list.find_first_of(",[");
  std::string host(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return host;
  std::string_view inside = list.substr(end + 1);
  host += inside.substr(0, inside.find_first_of(",-]"));
  const std::size_t close = inside.find(']');
  if (close != std::string_view::npos) {
    inside.remove_prefix(close + 1);
    host += inside.substr(0, inside.find(','));
  }
  return host;
}

// --------------------------------------------------------------------------------- contradictions

/// Refuses RANK and WORLD_SIZE if a shell exported them before a launcher started the ranks.
/// Otherwise every process would be the same rank, or a separate run. A launcher within a launcher,
/// e.g. torchrun in a Slurm job, sets LOCAL_RANK and is accepted.
void require_own_variables(const Reader& env) {
  if (env.has("LOCAL_RANK") || env.has("TORCHELASTIC_RUN_ID")) return;
  for (const Names& names : kLaunchers) {
    if (names.launcher == Launcher::kVariables || !env.has(names.rank)) continue;
    const bool is_slurm = names.launcher == Launcher::kSlurm;
    const char* const size_name = is_slurm ? "SLURM_STEP_NUM_TASKS" : names.world_size;
    const auto size = env.number(size_name, 1, kMaxRanks);
    if (!size || *size == 1) continue;
    const bool same_size = env.number("WORLD_SIZE", 1, kMaxRanks) == size;
    const bool same_rank = env.number("RANK", 0, kMaxRanks) == env.number(names.rank, 0, kMaxRanks);
    if (same_size && same_rank) continue;
    throw_environment(kNoRanks,
                      same_size ? env.both("RANK", names.rank) : env.both("WORLD_SIZE", size_name),
                      "unset RANK and WORLD_SIZE to use the variables of " +
                          std::string(names.label) + ", or set both to the same values");
  }
}

/// Returns the local rank under torchrun. LOCAL_RANK does not always state it: with the option for
/// virtual local ranks, torchrun sets it to 0 in every process.
int rank_on_torchrun_node(const Reader& env, int rank, int local_rank, int local_size, int world) {
  const auto node = env.number("GROUP_RANK", 0, kMaxRanks);
  const auto num_nodes = env.number("GROUP_WORLD_SIZE", 1, kMaxRanks);
  if (local_rank != 0 || !node || !num_nodes) return local_rank;
  if (static_cast<std::int64_t>(*num_nodes) * local_size != world) return local_rank;
  const std::int64_t place = rank - static_cast<std::int64_t>(*node) * local_size;
  return place >= 0 && place < local_size ? static_cast<int>(place) : local_rank;
}

/// True if srun set the PMI variables. Slurm's own variables then have more information.
bool is_of_slurm(const Reader& env) {
  return env.has("SLURM_STEP_NUM_TASKS") && env.text("SLURM_PROCID") == env.text("PMI_RANK") &&
         env.text("SLURM_STEP_NUM_TASKS") == env.text("PMI_SIZE");
}

void find_local_ranks(const Reader& env, const Names& names, RankEnvironment& found) {
  const auto local_rank = env.number(names.local_rank, 0, found.world_size - 1);
  std::optional<int> size = env.number(names.local_world_size, 1, found.world_size);
  const char* size_name = names.local_world_size;
  if (names.launcher == Launcher::kSlurm) {
    const bool is_step = env.has("SLURM_STEP_NUM_TASKS");
    size = tasks_on_this_node(env, found.world_size, names.world_size);
    size_name = is_step && env.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE"
                                                                : names.world_size;
  }
  if (local_rank && size && *local_rank >= *size) {
    throw_environment(kNoRanks, env.both(names.local_rank, size_name),
                      "set " + std::string(names.local_rank) +
                          " to a number from 0 to the number of ranks on this machine minus 1");
  }
  found.knows_local = found.world_size == 1 || (local_rank && size);
  if (!found.knows_local) return;
  found.local_rank = local_rank.value_or(0);
  found.local_world_size = size.value_or(1);
  if (names.launcher == Launcher::kVariables) {
    found.local_rank = rank_on_torchrun_node(env, found.rank, found.local_rank,
                                             found.local_world_size, found.world_size);
  }
}

// ---------------------------------------------------------------------------------------- meeting

/// Returns a name that is the same on all ranks of one start of the job, and differs between
/// starts. It is empty if no variable distinguishes starts.
std::string job_name(const Reader& env, const RankEnvironment& ranks, std::string_view starter) {
  std::string name;
  const auto add = [&](std::initializer_list<const char*> variables) {
    for (const char* variable : variables) {
      if (const auto value = env.text(variable)) name += "|" + *value;
    }
  };
  if (ranks.launcher == "torchrun" && env.has("TORCHELASTIC_RUN_ID")) {
    // Only one job can use MASTER_PORT on the machine MASTER_ADDR, for the agents' store or for the
    // ranks. It therefore identifies the job.
    add({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"});
  } else if (ranks.launcher == "Open MPI") {
    // Slurm's step is not used: under mpirun in a Slurm job it differs between the daemons that
    // start the ranks.
    add({env.has("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid"});
  } else if (ranks.launcher == "Slurm" && env.has("SLURM_JOB_ID")) {
    add({"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
  } else if (ranks.launcher == "PMI") {
    const bool one_machine = ranks.knows_local && ranks.local_world_size == ranks.world_size;
    if (one_machine && !starter.empty()) name += "|" + std::string(starter);
    add({"PMI_JOBID"});
  }
  add({"SHARDWISE_JOB"});
  return name.empty() ? name : ranks.launcher + name;
}

std::string meeting_address(const Reader& env, const RankEnvironment& ranks) {
  if (const auto address = env.text("MASTER_ADDR")) return *address;
  if (ranks.knows_local && ranks.local_world_size == ranks.world_size) return "127.0.0.1";
  if (env.has("RANK")) {
    throw_environment(kNoMeeting, "RANK and WORLD_SIZE are set, but not MASTER_ADDR",
                      "set MASTER_ADDR to the address of rank 0's machine, or start with torchrun");
  }
  if (ranks.launcher == "Slurm") {
    const auto nodes = env.text("SLURM_STEP_NODELIST")
                           .value_or(env.text("SLURM_JOB_NODELIST").value_or(std::string()));
    if (std::string host = first_host(nodes); !host.empty()) return host;
    if (const auto address = env.text("SLURM_LAUNCH_NODE_IPADDR")) return *address;
  }
  throw_environment(kNoMeeting, "the ranks of " + ranks.launcher + " are on several machines",
                    "set MASTER_ADDR to the address of rank 0's machine on all ranks");
}

/// Adds ports that are derived from the name of the job. They are below the ports that Linux gives
/// to outgoing connections.
void add_made_ports(const std::string& job, std::vector<std::uint16_t>& ports) {
  constexpr int kMadePorts = 8;
  for (std::uint64_t i = 0; i < kMadePorts; ++i) {
    const auto port = static_cast<std::uint16_t>(10000 + hash64(job, i) % 20000);
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) ports.push_back(port);
  }
}

}  // namespace

bool is_batch_script(const Environment& get) {
  const Reader env(get);
  if (!env.has("SLURM_JOB_ID") || env.has("SLURM_STEP_NUM_TASKS")) return false;
  return std::none_of(kLaunchers.begin(), kLaunchers.end(), [&](const Names& names) {
    return names.launcher != Launcher::kSlurm && (env.has(names.rank) || env.has(names.world_size));
  });
}

RankEnvironment rank_environment(const Environment& get) {
  const Reader env(get);
  for (std::size_t i = 0; i < kLaunchers.size(); ++i) {
    Names names = kLaunchers[i];
    if (!env.has(names.rank) && !env.has(names.world_size)) continue;
    if (names.launcher == Launcher::kPmi && is_of_slurm(env)) continue;
    const bool is_slurm = names.launcher == Launcher::kSlurm;
    // In a batch script without a number of tasks, Slurm sets only the rank. In an allocation's
    // shell, it sets only the number of tasks. In both cases, this process is not a rank.
    if (is_slurm && !env.has("SLURM_STEP_NUM_TASKS") && env.has("SLURM_JOB_ID") &&
        env.has(names.rank) != env.has(names.world_size)) {
      continue;
    }
    if (is_slurm && env.has("SLURM_STEP_NUM_TASKS")) names.world_size = "SLURM_STEP_NUM_TASKS";
    // PMI has two names for the variable of the local rank.
    if (names.launcher == Launcher::kPmi && !env.has(names.local_rank) &&
        env.has(kLaunchers[i + 1].local_rank)) {
      names = kLaunchers[i + 1];
    }

    RankEnvironment found;
    found.launcher = names.label;
    if (names.launcher == Launcher::kVariables && !env.has("TORCHELASTIC_RUN_ID")) {
      found.launcher = "variables set by hand";
    }
    found.world_size = env.required(names, names.world_size, 1, kMaxRanks);
    found.rank = env.required(names, names.rank, 0, kMaxRanks);
    if (found.rank >= found.world_size) {
      throw_environment(
          kNoRanks, env.both(names.rank, names.world_size),
          "set " + std::string(names.rank) + " to a number from 0 to the world size minus 1");
    }
    if (is_slurm) require_slurm_step(env, found.world_size);
    if (names.launcher == Launcher::kVariables) require_own_variables(env);
    find_local_ranks(env, names, found);
    return found;
  }
  RankEnvironment alone;
  alone.launcher = "none";
  return alone;
}

MeetingPoint meeting_point(const RankEnvironment& ranks, const Environment& get,
                           std::string_view starter) {
  const Reader env(get);
  MeetingPoint point;
  point.address = meeting_address(env, ranks);
  point.job = job_name(env, ranks, starter);
  const auto port = env.number("MASTER_PORT", 1, 65535);
  // If torchrun's own store listens at MASTER_PORT, no other listener can.
  const bool is_taken = env.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (port && !is_taken) point.ports.push_back(static_cast<std::uint16_t>(*port));
  if (!point.job.empty()) add_made_ports(point.job, point.ports);
  if (point.ports.empty()) {
    throw_environment(kNoMeeting,
                      env.has("RANK") ? "RANK and WORLD_SIZE are set, but not MASTER_PORT"
                                      : ranks.launcher + " gives this job no unique name",
                      "on all ranks, set MASTER_PORT to a free port of rank 0's machine, or "
                      "SHARDWISE_JOB to a new name for this run");
  }
  return point;
}

namespace {

std::optional<std::string> variable_of_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

RankEnvironment rank_environment() { return rank_environment(variable_of_process); }
bool is_batch_script() { return is_batch_script(variable_of_process); }

MeetingPoint meeting_point(const RankEnvironment& ranks) {
  return meeting_point(ranks, variable_of_process,
                       ranks.launcher == "PMI" ? launching_process("PMI_RANK") : "");
}

std::string launching_process(std::string_view rank_variable, int process) {
  constexpr std::size_t kParent = 1;
  constexpr std::size_t kStartTime = 19;
  const std::string wanted = std::string(rank_variable) + "=";
  std::string pid = std::to_string(process == 0 ? ::getpid() : process);
  constexpr int kMaxAncestors = 64;
  for (int i = 0; i < kMaxAncestors && pid != "0"; ++i) {
    const std::vector<std::string> stat = detail::process_stat(pid);
    if (stat.size() <= kStartTime) return {};
    if (i == 0) {  // start at the parent
      pid = stat[kParent];
      continue;
    }
    const std::string variables = contents("/proc/" + pid + "/environ");
    const bool has = variables.compare(0, wanted.size(), wanted) == 0 ||
                     variables.find('\0' + wanted) != std::string::npos;
    if (!has) {
      return contents("/proc/sys/kernel/random/boot_id") + pid + "/" + stat[kStartTime];
    }
    pid = stat[kParent];
  }
  return {};
}

std::string describe(const RankEnvironment& environment) {
  return "rank " + std::to_string(environment.rank) + " of " +
         std::to_string(environment.world_size);
}

}  // namespace shardwise::detail
