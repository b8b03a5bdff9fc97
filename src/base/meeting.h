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
#include "base/meeting_hub.h"
#include "base/meeting_wire.h"
#include "base/rank_environment.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// How the ranks of a run meet, before a library that blocks is called: every rank is there, all go
/// by the same, and each knows the addresses of all. Then they may exchange what they need to
/// connect, and part.
///
///   1. Rank 0 listens (MeetingHub) at the first port of the MeetingPoint that is free. Every rank,
///      rank 0 too, looks for it there, and says to which job it belongs, and to which meeting of
///      that job. What else listens there does not answer so, and is left alone.
///   2. Once all have come, and their records are alike, each gets the places of all.
///   3. They set() and get() values.
///   4. finish() returns once every rank has called it: nobody needs rank 0 any more.
///
/// No call waits longer than until the deadline, whatever the other side does or does not (looking
/// up the name of rank 0's machine takes what the system's resolver takes). A rank that ends,
/// leaves or gives up ends the meeting for all, with its name.
///
/// Threads: one. Not for use across fork().
/// Errors: kDistributed, naming ranks, hosts and processes; Cancelled. It is of no use after one.
class SHARDWISE_EXPORT Meeting {
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
  struct Place {
    std::string host;
    std::string address;  ///< in numbers, as rank 0 is reached from there
    std::uint32_t process = 0;
  };

  /// Returns once all ranks have come.
  /// REQUIRES: ranks.world_size > 1.
  explicit Meeting(Options options);
  /// Without finish(): leaves, which the other ranks hear of.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Of each rank.
  [[nodiscard]] const std::vector<Place>& places() const noexcept { return places_; }
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
  std::unique_ptr<MeetingHub> hub_;
  Socket socket_;
  MessageBuffer input_;
  std::string output_;
  std::string address_;
  std::vector<Place> places_;
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
SHARDWISE_EXPORT std::pair<int, int> local_rank_of(const std::vector<Meeting::Place>& places,
                                                   int rank);

}  // namespace shardwise::detail

namespace shardwise {
using detail::Meeting;
}  // namespace shardwise
