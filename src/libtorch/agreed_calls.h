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

/// The calls that all ranks of a group make together, one at a time. Steps of a call:
///
///     1. The ranks exchange the headers of their calls. A header carries its rank's StopWord, and
///        a small tensor.
///     2. If a rank wants to stop for a new reason, the ranks exchange the texts of their reasons.
///     3. If a rank gives up, every other rank leaves the call by an exception.
///     4. If the headers are not of the same call, every rank throws an error that names the calls.
///     5. The collective, if the headers could not carry all of its data.
///
/// A group of one rank has no Collectives and communicates nothing.
///
/// A failed call makes every later call fail at once. Step 3 is not such a failure.
class SHARDWISE_EXPORT AgreedCalls {
 public:
  using ReduceOp = ProcessGroup::ReduceOp;
  /// Calls that this rank has made: header exchanges, and collectives that followed them.
  struct Counts {
    std::uint64_t exchanges = 0;
    std::uint64_t collectives = 0;
  };

  /// @param peers        without ranks for an adopted group; introduce() finds them.
  /// @param collectives  nullptr for one rank.
  AgreedCalls(Peers peers, std::unique_ptr<Collectives> collectives,
              std::shared_ptr<StopState> stop);

  [[nodiscard]] const RankEnvironment& environment() const noexcept { return peers_.environment; }
  [[nodiscard]] const Peers& peers() const noexcept { return peers_; }
  [[nodiscard]] bool is_alone() const noexcept { return collectives_ == nullptr; }
  [[nodiscard]] Counts counts() const noexcept { return counts_; }
  /// State shared with the group's guard; nullptr without a guard.
  [[nodiscard]] const std::shared_ptr<StopState>& stop() const noexcept { return stop_; }
  /// Makes later calls carry the word of `stop`. Set it on all ranks, or on no rank.
  void set_stop(std::shared_ptr<StopState> stop) { stop_ = std::move(stop); }
  /// Runs calls on a thread while the program's thread makes no calls. Ends with the group.
  [[nodiscard]] CallQueue& queue() noexcept { return queue_; }
  /// Returns false after a failed call.
  [[nodiscard]] bool is_usable();

  /// @param name   name of the call, for errors.
  /// @param count  is summed over the ranks in the headers, at no extra cost.
  /// @return  the sum of the counts.
  /// REQUIRES: require_reducible().
  std::int64_t reduce(const char* name, const torch::Tensor& tensor, ReduceOp op,
                      std::int64_t count = 0);
  /// Sums gradients, as reduce() with kSum does.
  /// @param ends_step  true if this call completes the gradients of a step.
  std::int64_t add_gradients(const char* name, const torch::Tensor& tensor, std::int64_t count,
                             bool ends_step = true);
  void broadcast(const torch::Tensor& tensor, int root);
  void barrier();
  /// Returns the text of each rank, by rank.
  std::vector<std::string> gather(const char* action, const char* name, const std::string& own);
  /// Describes how the ranks' records differ; returns nullopt if they are alike.
  std::optional<std::string> find_difference(const Record& own);
  /// Errors: Mismatch, on every rank.
  void require_same(const Record& own);

  // For ranks that stop together. Without a guard, only throw_if_stopping() may be called.

  /// Called at the end of StopGuard::run().
  void end_run();
  /// Joins the call that the other ranks are at, and makes all ranks give it up. No call can be
  /// made until the state is reopened.
  void give_up();
  /// For long loops without calls: throws Cancelled on all ranks if one of them is to stop at once.
  /// Does nothing without a guard.
  void throw_if_stopping(const char* name);

  /// For an adopted group: finds the hosts and processes of its ranks, and whether ranks can ask
  /// each other who is lost.
  /// Cost: six exchanges.
  void introduce();

 private:
  using Headers = std::vector<CallHeader>;  // by rank

  /// @param action      what failed, for errors: "cannot ...".
  /// @param collective  step 5.
  void call(const char* action, CallHeader own,
            const std::function<void(const Headers&)>& collective = nullptr);
  template <class Work>
  std::invoke_result_t<Work> run(const char* action, Work&& work);
  [[nodiscard]] Headers exchange(const CallHeader& own);
  void hear(const Headers& headers, const StopWord& own);
  [[noreturn]] void throw_given_up() const;
  void require_same_call(const char* action, const Headers& headers) const;

  /// Runs `work` on `tensor`, or on a copy that the group accepts. A tensor that fits the header is
  /// copied to the CPU.
  template <class Work>
  void on_plain_tensor(const torch::Tensor& tensor, Work&& work);
  void reduce_all(const torch::Tensor& tensor, ReduceOp op);
  /// Returns each rank's tensor, on the CPU. All ranks pass tensors of the same type and shape.
  [[nodiscard]] std::vector<torch::Tensor> gather_tensors(const torch::Tensor& input);
  /// Returns each rank's bytes, padded with zeros to `size`.
  [[nodiscard]] std::vector<std::string> gather_bytes(const std::string& own, std::int64_t size);
  [[nodiscard]] std::vector<std::vector<std::string>> introduce(
      const std::vector<std::string>& own);

  Peers peers_;
  const std::unique_ptr<Collectives> collectives_;
  std::shared_ptr<StopState> stop_;
  Counts counts_;
  LongMutex mutex_;  // held during a collective
  bool broken_ SHARDWISE_GUARDED_BY(mutex_) = false;
  std::uint64_t num_calls_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::string last_call_ = "none";  // that all ranks have made
  std::uint64_t num_steps_ = 0;     // steps whose gradients were averaged
  CallQueue queue_;                 // the last member: its thread uses the others
};

}  // namespace shardwise::libtorch::detail
