#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <torch/types.h>

#include "shardwise/base/export.h"

namespace shardwise::libtorch {

/// Which of how many this process is, and where the ranks meet: what a launcher left in the
/// environment.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< among the ranks of this machine
  int local_world_size = 1;  ///< ranks on this machine; 1 where the launcher does not say
  std::string launcher;      ///< "torchrun", "Open MPI", "Slurm", "PMI" or "none"
  std::string master_address;
  std::uint16_t master_port = 0;
  /// The launcher's own store listens at the address (torchrun): rank 0 is a client like the
  /// others.
  bool launcher_store = false;
  /// Tells one start of the ranks from the next, where they meet in the same store.
  std::string attempt;
};

/// Looks up one variable; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the launcher's variables; the first of these that is there counts:
///
///     torchrun   RANK WORLD_SIZE [LOCAL_RANK] [LOCAL_WORLD_SIZE] MASTER_ADDR MASTER_PORT
///     Open MPI   OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK
///                OMPI_COMM_WORLD_LOCAL_SIZE
///     Slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) SLURM_LOCALID, in a job step
///     PMI        PMI_RANK PMI_SIZE MPI_LOCALRANKID: MPICH, Intel MPI
///     none       this process alone
///
/// Where the launcher names no meeting point, MASTER_ADDR and MASTER_PORT do. Without MASTER_ADDR
/// it is 127.0.0.1 if all ranks are on this machine; under Slurm the first host of the step, which
/// is where rank 0 runs. Without MASTER_PORT it is a port in [10000, 30000) made from the job's
/// number, the same on all ranks.
///
/// Errors: kDistributed, naming the variable, if one of a set is missing, is no number, or
///   contradicts another.
SHARDWISE_EXPORT RankEnvironment rank_environment();
/// The same of other variables than this process's.
SHARDWISE_EXPORT RankEnvironment rank_environment(const Environment& get);

struct ProcessGroupOptions {
  /// How long a rank waits for the others to come at the start.
  std::int64_t connect_timeout_ms = 300'000;
  /// How long one call waits for the other ranks. A peer that dies is noticed at once, whatever
  /// this is; it is for one that hangs.
  std::int64_t timeout_ms = 1'800'000;
};

enum class ReduceOp : std::uint8_t { kSum, kMin, kMax };

/// The ranks of a run, over c10d's Gloo backend and TCPStore.
///
/// A handle: copies are the same group. Every rank must make the same calls in the same order; one
/// call at a time. With one rank the calls do nothing and cost nothing, with or without c10d.
///
/// Destruction never waits for other ranks. Not for use across fork().
///
/// Effects: threads and sockets of Gloo; rank 0 listens at master_port until it is destroyed,
///   unless the launcher does.
/// Errors: kDistributed when a peer is lost or does not answer in time; the text names this rank
///   and what to do. The group is of no use after that: every later call fails at once.
class SHARDWISE_EXPORT ProcessGroup {
 public:
  /// This process alone.
  ProcessGroup();
  /// Meets the other ranks. Waits for all of them.
  /// Errors: kDistributed, naming the ranks that did not come; also where this build has no c10d
  ///   with Gloo and world_size > 1.
  static ProcessGroup connect(const RankEnvironment& environment,
                              const ProcessGroupOptions& options = {});

  int rank() const noexcept;
  int world_size() const noexcept;
  int local_rank() const noexcept;
  int local_world_size() const noexcept;
  bool is_first() const noexcept { return rank() == 0; }

  /// Replaces `tensor` by the element-wise sum (or minimum, maximum) over all ranks, the same bits
  /// on every rank.
  /// Shapes: any, the same on all ranks; float32/64, float16, int8, uint8, int32 or int64, on the
  ///   CPU. What is elsewhere is copied there and back; strided tensors are copied, too.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  std::int64_t all_reduce(std::int64_t value, ReduceOp op = ReduceOp::kSum) const;
  double all_reduce(double value, ReduceOp op = ReduceOp::kSum) const;

  /// Replaces `tensor` by what it is on rank `root`.
  /// Shapes: as all_reduce().
  void broadcast(const torch::Tensor& tensor, int root = 0) const;

  /// True on every rank if it is true on any: how ranks decide together.
  bool any(bool value) const { return all_reduce(std::int64_t{value}, ReduceOp::kMax) != 0; }

  /// Returns once every rank has called it.
  void barrier() const;

 private:
  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

/// ProcessGroup::connect(rank_environment()): under torchrun, mpirun or srun the ranks of the run,
/// otherwise this process alone.
SHARDWISE_EXPORT ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

/// True if this build can form groups of more than one rank.
SHARDWISE_EXPORT bool has_distributed() noexcept;

}  // namespace shardwise::libtorch
