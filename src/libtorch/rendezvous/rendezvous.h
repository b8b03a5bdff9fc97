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

/// The ranks of a run meet before a library that blocks is called. All ranks have come, their
/// records are alike, and each knows the addresses of all; then they exchange values, and part.
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
///      |<---------------------------- kAllDone --|  all ranks are done; nobody needs rank 0 now
///
/// Instead of any of these the hub sends kFailed, with the reason, when a rank ends, leaves
/// (kLeave) or gives up. No call waits beyond the deadline, except that the system's resolver may
/// take longer to look up the name of rank 0's host.
///
/// c10d's TCPStore does not do: check() never returns at a server that is no store of its version
/// (LibTorch 1.13 at the store of torchrun 2.13), no wait can be cancelled, and two jobs at one
/// port share their keys.
///
/// Threads: one. Not for use across fork().
/// Errors: kDistributed, naming ranks, hosts and processes; Cancelled. Unusable after an error.
class SHARDWISE_EXPORT Rendezvous {
 public:
  struct Options {
    RankEnvironment ranks;
    MeetingPoint point;
    std::uint32_t round = 0;  ///< one more for each meeting of the job; the same on all ranks
    std::chrono::milliseconds timeout{300'000};
    CancelToken cancel{};
    /// Is told who is waited for, once that takes `notice_after`, and now and then again; and when
    /// a rank that is interrupted stays, to tell the others.
    std::function<void(const std::string& text)> notice{};
    std::chrono::milliseconds notice_after{5'000};
    Record record{};  ///< what all ranks must have alike
  };
  /// Returns once all ranks have come.
  /// REQUIRES: ranks.world_size > 1.
  explicit Rendezvous(Options options);
  /// Without finish(): leaves, which the other ranks hear of.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Of each rank.
  [[nodiscard]] const std::vector<RankInfo>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] const std::string& own_address() const noexcept;
  /// Until the deadline.
  [[nodiscard]] std::chrono::milliseconds time_left() const;

  void set(const std::string& key, const std::string& value);
  [[nodiscard]] bool has(const std::string& key);
  /// Waits until a rank has set it.
  [[nodiscard]] std::string get(const std::string& key);
  void finish();
  /// While something else connects the ranks: throws what has ended the meeting, or is to end it
  /// now. Does not wait.
  void look();

  /// Ends the meeting for all other ranks with this error.
  void leave(const std::string& what, const std::string& where, const std::string& remedy);
  /// Throws what the other ranks, or rank 0's hub, say within `most`: why a connection was lost.
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
  std::string key_;  // of rank 0's hub
  std::unique_ptr<RendezvousHub> hub_;
  Socket socket_;
  MessageBuffer input_;
  std::string output_;
  std::string far_address_;  // of rank 0, if MASTER_ADDR is not an address of its host
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
  std::optional<Clock::time_point> cancelled_;  // since when that is known
  bool said_last_try_ = false;
  std::string noticed_;
};

/// Among the ranks of the same host: which one `rank` is, and how many they are.
SHARDWISE_EXPORT std::pair<int, int> local_rank_of(const std::vector<RankInfo>& ranks, int rank);

}  // namespace shardwise::detail

namespace shardwise {
using detail::RankInfo;
using detail::Rendezvous;
}  // namespace shardwise
