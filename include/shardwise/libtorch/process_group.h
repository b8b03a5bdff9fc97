#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include <torch/types.h>

#include "shardwise/base/export.h"

namespace shardwise::detail {
struct RankEnvironment;
}  // namespace shardwise::detail

namespace shardwise::libtorch {

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
  struct Options {
    /// How long a rank waits for the others to come at the start.
    std::chrono::milliseconds connect_timeout{300'000};
    /// How long one call waits for the other ranks. A peer that dies is noticed at once, whatever
    /// this is; it is for one that hangs.
    std::chrono::milliseconds timeout{1'800'000};
  };
  enum class ReduceOp : std::uint8_t { kSum, kMin, kMax };

  /// This process alone.
  ProcessGroup();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;
  [[nodiscard]] int local_world_size() const noexcept;
  [[nodiscard]] bool is_first() const noexcept { return rank() == 0; }

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
  friend ProcessGroup init_process_group(const Options& options);

  struct Impl;
  [[nodiscard]] static ProcessGroup connect(const shardwise::detail::RankEnvironment& environment,
                                            const Options& options);
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

/// Meets the other ranks of the run under torchrun, mpirun or srun, and waits for all of them;
/// without a launcher the group is this process alone. The launcher's environment says which rank
/// this process is, and where the ranks meet; the first of these launchers whose variables are set
/// counts:
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
///   contradicts another; naming the ranks that did not come; also where this build has no c10d
///   with Gloo and there are several ranks.
SHARDWISE_EXPORT ProcessGroup init_process_group(const ProcessGroup::Options& options = {});

/// True if this build can form groups of more than one rank.
SHARDWISE_EXPORT bool has_distributed() noexcept;

}  // namespace shardwise::libtorch
