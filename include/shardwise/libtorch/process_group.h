#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::libtorch {

class StopGuard;
namespace detail {
class AgreedCalls;
}  // namespace detail

/// The ranks of a run, over c10d's Gloo backend.
///
/// A handle: copies are the same group. Every rank must make the same calls in the same order; one
/// call at a time. Each call tells the other ranks its number, its kind, and the type and size of
/// its tensor: where they differ every rank gets an error that names the calls, before a number is
/// added. With one rank the calls do nothing and cost nothing, with or without c10d.
///
/// Destruction never waits for other ranks, but for a bucket of reducer_hook() (adopt.h) that is on
/// its way. Not for use across fork().
///
/// Effects: threads and sockets of Gloo. Rank 0 listens while the ranks meet, and not after. Each
///   rank has a port of its own, at which others leave word when a call of theirs failed.
/// Cost: what fits into some 200 bytes goes with the call's number, in one exchange; more takes a
///   second one.
/// Errors: kDistributed when a peer is lost, does not answer in time, or is at another call; the
///   text names the ranks, with host and process, and the last call that all have made. It comes
///   within about a second when a process ended, and some seconds after the timeout of one that
///   hangs or is out of reach. The group is of no use after that: every later call fails
///   at once.
class SHARDWISE_EXPORT ProcessGroup {
 public:
  struct Options {
    /// How long a rank waits at the start for the others to come, and to connect.
    std::chrono::milliseconds connect_timeout{300'000};
    /// How long one call waits for the other ranks. A peer that dies is noticed at once, whatever
    /// this is; it is for one that hangs, or is out of reach.
    std::chrono::milliseconds timeout{300'000};
    /// Ends the wait at the start: a signal handler may set its flag. The other ranks hear of it;
    /// where some have not come yet, this one stays up to 5 s, to tell those that do meanwhile.
    /// Gloo's own connecting cannot be ended: a thread of it goes on, until `connect_timeout`.
    CancelToken cancel{};
    /// Is told who is waited for at the start, as "waiting for ranks 3 and 7 (host b)", when that
    /// takes 5 s, and now and then again.
    std::function<void(const std::string& text)> notice{};
    /// Lets the ranks stop together, see StopGuard; all ranks have one, or none. Its signals end
    /// the wait at the start, too. It outlives the group's use.
    StopGuard* guard = nullptr;
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
  /// Shapes: any, the same on all ranks; numbers of any type, on the CPU. What is elsewhere is
  ///   copied there and back; strided tensors are copied, too. Floats of less than 32 bits are
  ///   added in float32 and rounded once. Integers wrap. Of bools the sum is "or"; complex numbers
  ///   have a sum only. Where any rank gives a NaN, the minimum and maximum are NaN.
  /// Errors: Unsupported, for sparse and quantized tensors, and for what has no order.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  std::int64_t all_reduce(std::int64_t value, ReduceOp op = ReduceOp::kSum) const;
  double all_reduce(double value, ReduceOp op = ReduceOp::kSum) const;

  /// Replaces `tensor` by what it is on rank `root`.
  /// Shapes: any, the same on all ranks; of any type that is not quantized, and not sparse.
  void broadcast(const torch::Tensor& tensor, int root = 0) const;

  /// True on every rank if it is true on any: how ranks decide together.
  bool any(bool value) const { return all_reduce(std::int64_t{value}, ReduceOp::kMax) != 0; }

  /// Returns once every rank has called it.
  void barrier() const;

  /// Holds what this rank goes by against what the others do, as data, options and versions: to be
  /// called before the first sum of a run, since ranks with other data add up without a word.
  /// @param record  names and values, as {"batch size", "32"}.
  /// Errors: Mismatch, on every rank, with the names whose values differ, the values, and the ranks
  ///   that have them. The group stays usable.
  void require_same(const std::vector<std::pair<std::string, std::string>>& record) const;

 private:
  friend struct GroupAccess;

  explicit ProcessGroup(std::shared_ptr<detail::AgreedCalls> calls) : calls_(std::move(calls)) {}

  std::shared_ptr<detail::AgreedCalls> calls_;
};

/// Meets the other ranks of the run under torchrun, mpirun or srun, and waits for all of them;
/// without a launcher the group is this process alone. The launcher's environment says which rank
/// this process is; the first of these whose variables are set counts:
///
///     torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
///     by hand    RANK WORLD_SIZE MASTER_ADDR MASTER_PORT [LOCAL_RANK LOCAL_WORLD_SIZE]
///     Open MPI   OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK
///                OMPI_COMM_WORLD_LOCAL_SIZE
///     PMI        PMI_RANK PMI_SIZE, and MPI_LOCALRANKID MPI_LOCALNRANKS (MPICH, Intel MPI) or
///                PMI_LOCAL_RANK PMI_LOCAL_SIZE (Cray)
///     Slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) SLURM_LOCALID SLURM_NODEID
///                SLURM_STEP_TASKS_PER_NODE (or SLURM_TASKS_PER_NODE), in a job step
///     none       this process alone
///
/// The ranks meet at rank 0, which listens for that time. Its address is MASTER_ADDR; without that
/// 127.0.0.1 if all ranks are on this machine, and under Slurm the first host of the step. Its port
/// is MASTER_PORT, if that is free; else one of eight in [10000, 30000) made from what the launcher
/// tells the job by: the store of torchrun is not used, so its version is of no concern. Ranks of
/// another job are refused: by the launcher's number of the job, by the process that started them
/// (MPICH), or by SHARDWISE_JOB, a name of this start that may be set on all ranks. No wait is
/// longer than `connect_timeout`. It may be called again, on all ranks: each call makes a group.
///
/// Errors: kDistributed, naming the variables, if one of a set is missing, is no number, or
///   contradicts another; naming ranks and hosts: those that did not come, that ended or left while
///   the ranks met, or that have another version of this library or of LibTorch; also where this
///   build has no c10d with Gloo and there are several ranks. Cancelled.
SHARDWISE_EXPORT ProcessGroup init_process_group(const ProcessGroup::Options& options = {});

/// True if init_process_group() of this build can form groups of more than one rank. Without, those
/// of c10d that a program makes itself may have several, see adopt_process_group().
SHARDWISE_EXPORT bool has_distributed() noexcept;

}  // namespace shardwise::libtorch
