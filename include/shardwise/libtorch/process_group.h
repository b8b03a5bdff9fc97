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

/// The ranks of a run, connected by c10d's Gloo backend.
///
/// Copies refer to the same group. All ranks must make the same calls in the same order, one at a
/// time. Each call sends its number, kind, and the type and size of its tensor to the other ranks.
/// If these differ, every rank gets an error that names the calls, before tensors are added. With
/// one rank, calls do nothing, with or without c10d.
///
/// Destruction waits for other ranks only if a bucket of reducer_hook() (adopt.h) is in flight.
///
/// Processes: must not be used after fork() in the child.
/// Effects: starts threads and opens sockets of Gloo. Rank 0 listens only while the ranks connect.
///   Each rank also listens on a port, on which another rank reports that its call failed.
/// Cost: a tensor of up to about 200 bytes is sent with the header of the call, in one exchange. A
///   larger tensor needs a second exchange.
/// Errors: kDistributed if a peer is lost, does not answer in time, or makes another call. The text
///   names the ranks with host and process, and the last call that all ranks have made. If a
///   process ended, the error is thrown within about a second. If a process hangs or is
///   unreachable, it is thrown some seconds after the timeout. Afterwards every call of the group
///   fails at once.
class SHARDWISE_EXPORT ProcessGroup {
 public:
  struct Options {
    /// How long a rank waits at the start for the other ranks to appear and connect.
    std::chrono::milliseconds connect_timeout{300'000};
    /// How long a call waits for a peer that hangs or is unreachable. The end of a peer's process
    /// is noticed at once.
    std::chrono::milliseconds timeout{300'000};
    /// Ends the wait for other ranks at the start. A signal handler may set its flag. The other
    /// ranks are notified. If some ranks have not appeared yet, this rank stays up to 5 s to notify
    /// those that appear. Gloo cannot be interrupted while it connects: a thread continues until
    /// `connect_timeout`.
    CancelToken cancel{};
    /// Called after 5 s of waiting at the start, and then repeatedly, with a text like "waiting for
    /// ranks 3 and 7 (host b)".
    std::function<void(const std::string& text)> notice{};
    /// Lets the ranks stop together, see StopGuard. Either all ranks have a guard, or none. Its
    /// signals also end the wait at the start. It must outlive the use of the group.
    StopGuard* guard = nullptr;
  };
  enum class ReduceOp : std::uint8_t { kSum, kMin, kMax };

  /// Makes a group of this process alone.
  ProcessGroup();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;
  [[nodiscard]] int local_world_size() const noexcept;
  [[nodiscard]] bool is_first() const noexcept { return rank() == 0; }

  /// Replaces `tensor` by the element-wise sum (or minimum, maximum) over all ranks, bitwise equal
  /// on every rank.
  /// Shapes: any, the same on all ranks; numbers of any type. Tensors on other devices, and strided
  ///   tensors, are copied to contiguous CPU memory and back.
  /// Exactness: floats below 32 bits are added in float32 and rounded once. Integers wrap around on
  ///   overflow. The sum of bools is their logical OR. Complex numbers support only the sum. If any
  ///   rank has a NaN, minimum and maximum are NaN.
  /// Errors: Unsupported for sparse and quantized tensors, and for the minimum or maximum of types
  ///   without an order.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  std::int64_t all_reduce(std::int64_t value, ReduceOp op = ReduceOp::kSum) const;
  double all_reduce(double value, ReduceOp op = ReduceOp::kSum) const;

  /// Replaces `tensor` by its value on rank `root`.
  /// Shapes: any, the same on all ranks; any type, neither quantized nor sparse.
  void broadcast(const torch::Tensor& tensor, int root = 0) const;

  /// True on every rank if `value` is true on any rank.
  bool any(bool value) const { return all_reduce(std::int64_t{value}, ReduceOp::kMax) != 0; }

  /// Returns once every rank has called it.
  void barrier() const;

  /// Checks that all ranks pass the same record, e.g. data, options and versions. Call it before
  /// the first reduction of a run: otherwise results of ranks with different data are added without
  /// an error.
  /// @param record  pairs of name and value, e.g. {"batch size", "32"}.
  /// Errors: Mismatch, on every rank, naming the records that differ, their values, and the ranks
  ///   that have them. The group stays usable.
  void require_same(const std::vector<std::pair<std::string, std::string>>& record) const;

 private:
  friend struct GroupAccess;

  explicit ProcessGroup(std::shared_ptr<detail::AgreedCalls> calls) : calls_(std::move(calls)) {}

  std::shared_ptr<detail::AgreedCalls> calls_;
};

/// Connects to the other ranks of the run under torchrun, mpirun or srun, and waits for all of
/// them. Without a launcher the group is this process alone. Environment variables determine the
/// rank of this process. The first launcher whose variables are set is used:
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
/// Rank 0 listens while the ranks connect. Its address is MASTER_ADDR. If that is not set, the
/// address is 127.0.0.1 if all ranks are on this machine, and under Slurm the first host of the
/// step. Its port is MASTER_PORT if that is free. Otherwise it is one of eight ports in [10000,
/// 30000), derived from the launcher's name of the job. The store of torchrun is not used, so
/// torchrun's version does not matter.
///
/// Ranks of other jobs are refused. Jobs are distinguished by the launcher's job number, or by the
/// process that started them (MPICH). You may also set SHARDWISE_JOB on all ranks, to a name for
/// this start. No wait is longer than `connect_timeout`. All ranks may call this function again:
/// each call makes a new group.
///
/// Errors: kDistributed, naming the variables, if a launcher's variable is missing, is not a
///   number, or contradicts another.
/// Errors: kDistributed, naming ranks and hosts, if ranks did not appear, ended or disconnected
///   during the start, or have another version of this library or of LibTorch.
/// Errors: kDistributed if there are several ranks and this build has no c10d with Gloo. Cancelled.
SHARDWISE_EXPORT ProcessGroup init_process_group(const ProcessGroup::Options& options = {});

/// True if init_process_group() of this build supports more than one rank. If false,
/// adopt_process_group() may still support a c10d group of several ranks.
SHARDWISE_EXPORT bool has_distributed() noexcept;

}  // namespace shardwise::libtorch
