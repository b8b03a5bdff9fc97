#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/agreement.h"
#include "base/fork.h"
#include "libtorch/call_header.h"
#include "libtorch/call_queue.h"
#include "libtorch/collectives.h"
#include "libtorch/peers.h"
#include "libtorch/stop_state.h"
#include "shardwise/base/export.h"

namespace shardwise::libtorch::detail {

/// The calls that all ranks of a group make together, one at a time. The steps of a call:
///
///     1. The ranks exchange the headers of their calls. A header contains the rank's StopWord, and
///        the call's tensor if it is small.
///     2. If a rank wants to stop for a new reason, the ranks exchange the texts of their reasons.
///     3. If a rank gives up, the call throws on every other rank.
///     4. If the headers are not all of the same call, every rank throws an error that names them.
///     5. If not all data fits into the headers, the ranks run a collective.
///
/// A group of one rank has no Collectives and communicates nothing.
///
/// After a failed call every later call fails at once. Giving up (step 3) is not a failure.
class SHARDWISE_EXPORT AgreedCalls {
 public:
  using ReduceOp = ProcessGroup::ReduceOp;
  /// Numbers of header exchanges (step 1), and of collectives (step 5), that this rank has run.
  struct Counts {
    std::uint64_t exchanges = 0;
    std::uint64_t collectives = 0;
  };

  /// @param peers        the ranks of the group; empty for an adopted group, until introduce()
  ///   finds them.
  /// @param collectives  nullptr for a group of one rank.
  AgreedCalls(Peers peers, std::unique_ptr<Collectives> collectives,
              std::shared_ptr<StopState> stop);

  [[nodiscard]] const RankEnvironment& environment() const noexcept { return peers_.environment; }
  [[nodiscard]] const Peers& peers() const noexcept { return peers_; }
  [[nodiscard]] bool is_alone() const noexcept { return collectives_ == nullptr; }
  [[nodiscard]] Counts counts() const noexcept { return counts_; }
  /// State shared with the group's guard; nullptr without a guard.
  [[nodiscard]] const std::shared_ptr<StopState>& stop() const noexcept { return stop_; }
  /// From now on, the headers of calls contain the StopWord of `stop`. Call it on all ranks or on
  /// none.
  void set_stop(std::shared_ptr<StopState> stop) { stop_ = std::move(stop); }
  /// A queue that runs calls on its own thread, while the program's thread makes no calls. The
  /// thread ends with the group.
  [[nodiscard]] CallQueue& queue() noexcept { return queue_; }
  /// Returns false after a call has failed.
  [[nodiscard]] bool is_usable();

  /// Reduces `tensor` over the ranks.
  /// @param name   name of the call, for errors.
  /// @param count  a number that is summed over the ranks. It is sent in the headers, so it needs
  ///   no further exchange.
  /// @return  the sum of the counts.
  /// REQUIRES: require_reducible().
  std::int64_t reduce(const char* name, const torch::Tensor& tensor, ReduceOp op,
                      std::int64_t count = 0);
  /// Sums gradients like reduce() with kSum.
  /// @param ends_step  true if the step has no gradients after this call.
  std::int64_t add_gradients(const char* name, const torch::Tensor& tensor, std::int64_t count,
                             bool ends_step = true);
  void broadcast(const torch::Tensor& tensor, int root);
  void barrier();
  /// Returns the text of each rank, by rank.
  std::vector<std::string> gather(const char* action, const char* name, const std::string& own);
  /// Describes how the ranks' records differ. Returns nullopt if all are equal.
  std::optional<std::string> find_difference(const Record& own);
  /// Throws Mismatch, on every rank, if the ranks' records differ.
  void require_same(const Record& own);

  // The next functions are for ranks that stop together. Without a guard, call only
  // throw_if_stopping().

  /// StopGuard::run() calls this at its end.
  void end_run();
  /// Takes part in the call in which the other ranks wait, and makes that call throw on all of
  /// them. After that, every call throws until the StopState leaves its phase kGivenUp or kTorn.
  void give_up();
  /// For long loops without calls: throws Cancelled on all ranks if a rank wants to stop at once.
  /// Does nothing without a guard.
  void throw_if_stopping(const char* name);

  /// For an adopted group: exchanges the hosts and processes of its ranks, and tests whether their
  /// PeerProbes reach each other. If they do, errors can name a lost rank.
  /// Cost: six exchanges.
  void introduce();

 private:
  using Headers = std::vector<CallHeader>;  // one per rank

  /// @param action      what fails, for errors: "cannot ...".
  /// @param collective  runs in step 5.
  void call(const char* action, CallHeader own,
            const std::function<void(const Headers&)>& collective = nullptr);
  template <class Work>
  std::invoke_result_t<Work> run(const char* action, Work&& work);
  [[nodiscard]] Headers exchange(const CallHeader& own);
  void hear(const Headers& headers, const StopWord& own);
  [[noreturn]] void throw_given_up() const;
  void require_same_call(const char* action, const Headers& headers) const;

  /// Runs `work` on `tensor`, or on a contiguous copy on a device that the group accepts, and
  /// copies the result back. A tensor that fits into the header is copied to the CPU.
  template <class Work>
  void on_plain_tensor(const torch::Tensor& tensor, Work&& work);
  void reduce_all(const torch::Tensor& tensor, ReduceOp op);
  /// Returns the ranks' tensors, on the CPU. Type and shape must be the same on all ranks.
  [[nodiscard]] std::vector<torch::Tensor> gather_tensors(const torch::Tensor& input);
  /// Returns the ranks' bytes, each padded with zeros to `size`.
  [[nodiscard]] std::vector<std::string> gather_bytes(const std::string& own, std::int64_t size);
  [[nodiscard]] std::vector<std::vector<std::string>> introduce(
      const std::vector<std::string>& own);

  Peers peers_;
  const std::unique_ptr<Collectives> collectives_;
  std::shared_ptr<StopState> stop_;
  Counts counts_;
  LongMutex mutex_;  // a collective runs under this lock
  bool broken_ SHARDWISE_GUARDED_BY(mutex_) = false;
  std::uint64_t num_calls_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::string last_call_ = "none";  // the last call that all ranks made
  std::uint64_t num_steps_ = 0;     // number of steps whose gradients were averaged
  CallQueue queue_;  // declared last, so destroyed first: its thread uses the other members
};

}  // namespace shardwise::libtorch::detail
