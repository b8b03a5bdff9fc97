#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "base/rank_environment.h"
#include "libtorch/rendezvous/hub.h"
#include "libtorch/rendezvous/wire.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Brings the ranks of a run together before they call a library that blocks. Afterwards all ranks
/// are known to run, their records are equal, and each rank knows the addresses of all. The ranks
/// can then exchange values, and leave together.
///
///     rank                                      hub: a thread of rank 0
///      |---- connect --------------------------->|  at each port of the MeetingPoint, until one
///      |<---------------------------- greeting --|  answers as a hub does
///      |---- greeting, kHello ------------------>|  job, round, rank, host, address, record
///      |<---------------------------- kWelcome --|  or kRefused: another job or round; the rank
///      |                                         |  is here already
///      |<---------------------------- kWaiting --|  now and then: who is missing
///      |<----------------------------- kRoster --|  all have come: host, address, process of each
///      |---- kSet ------------------------------>|  a value; the hub sends it to all ranks
///      |---- kDone ----------------------------->|
///      |<---------------------------- kAllDone --|  all ranks are done, and rank 0 may end
///
/// If a rank ends, leaves (kLeave) or gives up, the hub sends kFailed with the reason instead. No
/// call takes longer than the deadline, except that the system's resolver may need longer to look
/// up the name of rank 0's host.
///
/// c10d's TCPStore cannot replace this class. Its check() never returns if the server has another
/// version (LibTorch 1.13 with the store of torchrun 2.13). Its waits cannot be cancelled. Two jobs
/// that use the same port share their keys.
///
/// Threads: one. Not for use across fork().
/// Errors: kDistributed, with ranks, hosts and processes; Cancelled. Unusable after an error.
class SHARDWISE_EXPORT Rendezvous {
 public:
  struct Options {
    RankEnvironment ranks;
    MeetingPoint point;
    std::uint32_t round = 0;  ///< number of the job's earlier rendezvous; the same on all ranks
    std::chrono::milliseconds timeout{300'000};
    CancelToken cancel{};
    /// Called with the names of the missing ranks, first after `notice_after` and then repeatedly.
    /// Called with another text while an interrupted rank tries to inform the others.
    std::function<void(const std::string& text)> notice{};
    std::chrono::milliseconds notice_after{5'000};
    Record record{};  ///< must be the same on all ranks
  };
  /// Connects to rank 0, and returns once all ranks are connected.
  /// REQUIRES: ranks.world_size > 1.
  explicit Rendezvous(Options options);
  /// Without finish(), leaves the rendezvous, which then fails on all other ranks.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// The ranks' locations, by rank.
  [[nodiscard]] const std::vector<RankInfo>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] const std::string& own_address() const noexcept;
  /// Returns the time until the deadline; at least 1 ms.
  [[nodiscard]] std::chrono::milliseconds time_left() const;

  void set(const std::string& key, const std::string& value);
  [[nodiscard]] bool has(const std::string& key);
  /// Waits until a rank has set the key. Returns its value.
  [[nodiscard]] std::string get(const std::string& key);
  void finish();
  /// Throws if the rendezvous has failed, is cancelled or has exceeded its deadline. Does not wait.
  /// Call it repeatedly while other code connects the ranks.
  void look();

  /// Ends the rendezvous with this error on all other ranks.
  void leave(const std::string& what, const std::string& where, const std::string& remedy);
  /// Waits up to `most` for an error from the hub, and throws it. Such an error says why a
  /// connection was lost.
  void throw_if_over(std::chrono::milliseconds most);

 private:
  using Clock = std::chrono::steady_clock;
  struct Search;

  void open_hub();
  void check_address();
  [[nodiscard]] std::string loopback_hint() const;
  void find_hub();
  [[nodiscard]] bool try_join(std::uint16_t port, Search& search);
  [[nodiscard]] bool hear_welcome(std::uint16_t port, Search& search);
  void send_hello();
  void wait_for(const std::function<bool()>& condition);
  void throw_if_due();
  void pump(std::chrono::milliseconds most);
  void handle(const std::string& message);
  void check_time(const std::string& waiting_for);
  void take_notice(const std::string& text);
  [[noreturn]] void leave_interrupted();
  [[noreturn]] void throw_late();
  std::string own_name() const;

  Options options_;
  const Clock::time_point start_;
  const Clock::time_point deadline_;
  const std::string host_;
  std::string key_;  // proves to the hub that this is its own rank 0
  std::unique_ptr<RendezvousHub> hub_;
  Socket socket_;
  MessageBuffer input_;
  std::string output_;
  std::string far_address_;  // address of rank 0, if MASTER_ADDR is not an address of its host
  std::string address_;
  std::vector<RankInfo> ranks_;
  std::map<std::string, std::string> values_;
  bool welcome_ = false;
  bool all_done_ = false;
  bool over_ = false;
  std::optional<std::pair<Refusal, std::string>> refusal_;

  bool all_came_ = false;
  std::uint32_t num_missing_ = 0;
  std::string missing_ = "rank 0";
  Clock::time_point heard_;
  Clock::time_point next_notice_;
  Clock::time_point last_notice_{};
  std::optional<Clock::time_point> cancelled_;  // when the cancel was noticed
  bool said_last_try_ = false;
  std::string noticed_;
};

/// Returns the index of `rank` among the ranks of its host, and the number of ranks there.
SHARDWISE_EXPORT std::pair<int, int> local_rank_of(const std::vector<RankInfo>& ranks, int rank);

}  // namespace shardwise::detail

namespace shardwise {
using detail::RankInfo;
using detail::Rendezvous;
}  // namespace shardwise
