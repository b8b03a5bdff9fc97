#include "base/rank_environment.h"

#include <array>
#include <cstdlib>
#include <string_view>

#include "base/hasher.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {
namespace {

[[noreturn]] void throw_environment(const std::string& what, const std::string& where,
                                    const std::string& remedy) {
  throw Error(ErrorCode::kDistributed, what, where, remedy);
}

/// The variables of one launcher; nullptr where it has none.
struct Names {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

constexpr std::array<Names, 4> kLaunchers = {{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
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

  /// A number in [least, most]; nothing if the variable is not set.
  std::optional<int> number(const char* name, int least, int most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = parse_int64(*value);
    if (!parsed || *parsed < least || *parsed > most) {
      throw_environment("cannot determine the ranks", std::string(name) + "=" + in_quotes(*value),
                        "it must be a whole number from " + std::to_string(least) + " to " +
                            std::to_string(most));
    }
    return static_cast<int>(*parsed);
  }

  int required(const Names& names, const char* name, int least, int most) const {
    if (const auto value = number(name, least, most)) return *value;
    throw_environment("cannot determine the ranks",
                      "variables of " + std::string(names.launcher) + " are set, but not " + name,
                      "set " + std::string(name) + ", or unset the others to run alone");
  }

 private:
  const Environment& get_;
};

/// The first host of a Slurm list, as "gpu[07-09,12],login1" -> "gpu07".
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

/// A name that all ranks of one job know, and that no other job has.
std::string job_name(const Reader& env, const Names& names) {
  std::string name;
  for (const char* variable : {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE",
                               "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "HYDRA_JOB_ID"}) {
    const bool is_slurm = std::string_view(variable).substr(0, 5) == "SLURM";
    // Under mpirun in a Slurm job the step differs between ranks' daemons.
    if (std::string_view(variable) == "SLURM_STEP_ID" &&
        std::string_view(names.launcher) != "Slurm") {
      continue;
    }
    if (const auto value = env.text(variable)) name += *value + (is_slurm ? "/" : "|");
  }
  return name;
}

void find_meeting_point(const Reader& env, const Names& names, RankEnvironment& found) {
  const std::string_view launcher = names.launcher;
  if (const auto address = env.text("MASTER_ADDR")) {
    found.master_address = *address;
  } else if (launcher == "torchrun") {
    throw_environment("cannot determine where the ranks meet",
                      "RANK and WORLD_SIZE are set, but not MASTER_ADDR",
                      "set MASTER_ADDR to the address of rank 0, or start with torchrun");
  } else if (found.local_world_size == found.world_size) {
    found.master_address = "127.0.0.1";
  } else if (launcher == "Slurm") {
    const auto nodes = env.text("SLURM_STEP_NODELIST")
                           .value_or(env.text("SLURM_JOB_NODELIST").value_or(std::string()));
    found.master_address = first_host(nodes);
    if (found.master_address.empty()) {
      found.master_address = env.text("SLURM_LAUNCH_NODE_IPADDR").value_or(std::string());
    }
  }
  if (found.master_address.empty()) {
    throw_environment("cannot determine where the ranks meet",
                      "the ranks of " + std::string(launcher) + " are on several machines",
                      "set MASTER_ADDR to the address of rank 0's machine on all ranks");
  }

  if (const auto port = env.number("MASTER_PORT", 1, 65535)) {
    found.master_port = static_cast<std::uint16_t>(*port);
  } else if (launcher == "torchrun") {
    throw_environment("cannot determine where the ranks meet",
                      "RANK and WORLD_SIZE are set, but not MASTER_PORT",
                      "set MASTER_PORT to a free port of rank 0's machine, or start with torchrun");
  } else {
    // Below the ports that Linux gives to outgoing connections.
    found.master_port = static_cast<std::uint16_t>(10000 + hash64(job_name(env, names)) % 20000);
  }
}

/// Slurm's variables are there in a batch script, too, where no peers will come.
void require_slurm_step(const Reader& env, int world_size) {
  if (world_size > 1 && env.has("SLURM_JOB_ID") && !env.has("SLURM_STEP_NUM_TASKS")) {
    throw_environment("cannot determine the ranks",
                      "SLURM_NTASKS is " + std::to_string(world_size) +
                          ", but this process was not started by srun",
                      "start it with srun, or unset SLURM_PROCID to run alone");
  }
}

}  // namespace

RankEnvironment rank_environment(const Environment& get) {
  constexpr int kMostRanks = 1 << 24;
  const Reader env(get);
  for (Names names : kLaunchers) {
    if (!env.has(names.rank) && !env.has(names.world_size)) continue;
    const bool is_slurm = std::string_view(names.launcher) == "Slurm";
    // In a batch script without a number of tasks Slurm sets the rank alone; in an allocation's
    // shell the number alone. Neither is a rank of anything.
    if (is_slurm && !env.has("SLURM_STEP_NUM_TASKS") && env.has("SLURM_JOB_ID") &&
        env.has(names.rank) != env.has(names.world_size)) {
      continue;
    }
    if (is_slurm && env.has("SLURM_STEP_NUM_TASKS")) names.world_size = "SLURM_STEP_NUM_TASKS";

    RankEnvironment found;
    found.launcher = names.launcher;
    found.world_size = env.required(names, names.world_size, 1, kMostRanks);
    found.rank = env.required(names, names.rank, 0, kMostRanks);
    if (found.rank >= found.world_size) {
      throw_environment("cannot determine the ranks",
                        std::string(names.rank) + "=" + std::to_string(found.rank) + " and " +
                            names.world_size + "=" + std::to_string(found.world_size),
                        "ranks are numbered from 0 to the world size less 1");
    }
    if (is_slurm) require_slurm_step(env, found.world_size);
    const auto local_rank = env.number(names.local_rank, 0, found.world_size - 1);
    found.local_rank = local_rank.value_or(found.rank);
    const auto local_size = env.number(names.local_world_size, 1, found.world_size);
    const auto num_nodes = env.number("SLURM_STEP_NUM_NODES", 1, kMostRanks);
    if (local_size) {
      found.local_world_size = *local_size;
    } else if (is_slurm &&
               (num_nodes ? num_nodes : env.number("SLURM_NNODES", 1, kMostRanks)) == 1) {
      found.local_world_size = found.world_size;
    }
    if (found.local_rank >= found.local_world_size && local_size) {
      throw_environment("cannot determine the ranks",
                        std::string(names.local_rank) + "=" + std::to_string(found.local_rank) +
                            " and " + names.local_world_size + "=" + std::to_string(*local_size),
                        "local ranks are numbered from 0 to the local world size less 1");
    }
    if (found.world_size > 1) find_meeting_point(env, names, found);
    found.launcher_store = env.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    found.attempt = env.text("TORCHELASTIC_RUN_ID").value_or("") + "/" +
                    env.text("TORCHELASTIC_RESTART_COUNT").value_or("0");
    return found;
  }
  RankEnvironment alone;
  alone.launcher = "none";
  return alone;
}

RankEnvironment rank_environment() {
  return rank_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

std::string describe(const RankEnvironment& environment) {
  return "rank " + std::to_string(environment.rank) + " of " +
         std::to_string(environment.world_size);
}

}  // namespace shardwise::detail
