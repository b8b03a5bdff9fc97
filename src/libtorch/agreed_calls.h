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

/// The calls that all ranks of a group make together, one after the other:
///
///     1. The ranks exchange the headers of their calls. Each header carries its rank's word about
///        stopping, and a small tensor.
///     2. If a rank wants to stop for a new reason, the ranks exchange the texts of their reasons.
///     3. If a rank gives up, all ranks leave the call by an exception.
///     4. If the headers are not of the same call, every rank throws an error that names the calls.
///     5. The collective, if what the call needs was not in the headers.
///
/// A group of one rank has no Collectives: it makes no exchange and no collective.
///
/// After a call that failed, except by 3, every later call fails at once.
class SHARDWISE_EXPORT AgreedCalls {
 public:
  using ReduceOp = ProcessGroup::ReduceOp;
  /// Calls of this process so far: exchanges, and collectives with which more went along.
  struct Counts {
    std::uint64_t exchanges = 0;
    std::uint64_t collectives = 0;
  };

  /// @param peers        of a group that is adopted without ranks: introduce() finds them.
  /// @param collectives  nullptr: one rank.
  AgreedCalls(Peers peers, std::unique_ptr<Collectives> collectives,
              std::shared_ptr<StopState> stop);

  [[nodiscard]] const RankEnvironment& environment() const noexcept { return peers_.environment; }
  [[nodiscard]] const Peers& peers() const noexcept { return peers_; }
  [[nodiscard]] bool is_alone() const noexcept { return collectives_ == nullptr; }
  [[nodiscard]] Counts counts() const noexcept { return counts_; }
  /// What the group's guard shares; nullptr: it has none.
  [[nodiscard]] const std::shared_ptr<StopState>& stop() const noexcept { return stop_; }
  /// From now on the calls carry its word. All ranks have one, or none.
  void set_stop(std::shared_ptr<StopState> stop) { stop_ = std::move(stop); }
  /// For calls that a thread makes while the program's thread makes none. They end with the group.
  [[nodiscard]] CallQueue& queue() noexcept { return queue_; }
  /// False after a call that failed.
  [[nodiscard]] bool is_usable();

  /// @param name   of the call, for errors.
  /// @param count  is added over the ranks on the way: it needs no collective of its own.
  /// @return  the sum of the counts.
  /// REQUIRES: require_reducible().
  std::int64_t reduce(const char* name, const torch::Tensor& tensor, ReduceOp op,
                      std::int64_t count = 0);
  /// As reduce() with kSum, of gradients.
  /// @param ends_step  with it the gradients of a step are whole.
  std::int64_t add_gradients(const char* name, const torch::Tensor& tensor, std::int64_t count,
                             bool ends_step = true);
  void broadcast(const torch::Tensor& tensor, int root);
  void barrier();
  /// The text of each rank, by rank.
  std::vector<std::string> gather(const char* action, const char* name, const std::string& own);
  /// What the ranks' records do not agree on; nothing if they are alike.
  std::optional<std::string> find_difference(const Record& own);
  /// Errors: Mismatch, on every rank.
  void require_same(const Record& own);

  // For ranks that stop together; with a guard only, except throw_if_stopping().

  /// At the end of StopGuard::run().
  void end_run();
  /// Instead of the call that the other ranks are at, which all ranks give up. No call can be made
  /// after it until the state is reopened.
  void give_up();
  /// In a long loop without calls: throws Cancelled, on all ranks, if one is to stop at once.
  /// Nothing without a guard.
  void throw_if_stopping(const char* name);

  /// For an adopted group: finds the hosts and processes of its ranks, and whether they can be
  /// asked who is lost. Six exchanges.
  void introduce();

 private:
  using Headers = std::vector<CallHeader>;  // by rank

  /// @param action      what cannot be done, for errors.
  /// @param collective  step 5.
  void call(const char* action, CallHeader own,
            const std::function<void(const Headers&)>& collective = nullptr);
  template <class Work>
  std::invoke_result_t<Work> run(const char* action, Work&& work);
  [[nodiscard]] Headers exchange(const CallHeader& own);
  void hear(const Headers& headers, const StopWord& own);
  [[noreturn]] void throw_given_up() const;
  void require_same_call(const char* action, const Headers& headers) const;

  /// Runs `work` on a tensor that the group can take; on the CPU, if it goes with the header.
  template <class Work>
  void on_plain_tensor(const torch::Tensor& tensor, Work&& work);
  void reduce_all(const torch::Tensor& tensor, ReduceOp op);
  /// Of each rank a tensor like `input`, on the CPU.
  [[nodiscard]] std::vector<torch::Tensor> gather_tensors(const torch::Tensor& input);
  /// Of each rank `size` bytes, with zeros at the end.
  [[nodiscard]] std::vector<std::string> gather_bytes(const std::string& own, std::int64_t size);
  [[nodiscard]] std::vector<std::vector<std::string>> introduce(
      const std::vector<std::string>& own);

  Peers peers_;
  const std::unique_ptr<Collectives> collectives_;
  std::shared_ptr<StopState> stop_;
  Counts counts_;
  LongMutex mutex_;  // held for as long as a collective takes
  bool broken_ SHARDWISE_GUARDED_BY(mutex_) = false;
  std::uint64_t num_calls_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::string last_call_ = "none";  // that all ranks made
  std::uint64_t num_steps_ = 0;     // gradients that were averaged
  CallQueue queue_;                 // the last member: its thread uses the others
};

}  // namespace shardwise::libtorch::detail
