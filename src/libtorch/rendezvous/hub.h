#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "base/fork.h"
#include "libtorch/rendezvous/wire.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Where the ranks of one start of a job meet: a thread of rank 0 that listens at a port. It knows
/// who has come, tells the others who is missing, holds what all must have alike against each
/// other, and passes on what they tell each other. If one of them ends, or leaves, all others hear
/// of it.
///
/// Connections of others (another job, a scanner of ports) are answered or dropped, and change
/// nothing.
class SHARDWISE_EXPORT RendezvousHub {
 public:
  struct Options {
    std::string job;
    std::uint32_t round = 0;
    int world_size = 1;
    /// What rank 0, whose hub it is, says in its hello: a second process of that rank does not know
    /// it.
    std::string key;
    std::string host;  ///< of rank 0
    /// How long the destructor waits for ranks that have not come, to tell them what ended the
    /// meeting, and until when at the latest.
    std::chrono::milliseconds linger{5'000};
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    /// A connection that does not say which rank it is is closed after this.
    std::chrono::milliseconds hello_timeout{10'000};
  };

  /// @param listener  a socket that listens, not blocking.
  RendezvousHub(Socket listener, const Options& options);
  /// Sees what was said delivered, for 2 s at most, and ends the thread. If the meeting ended
  /// before all had come, those who come meanwhile hear why: see Options::linger.
  ~RendezvousHub();
  RendezvousHub(const RendezvousHub&) = delete;
  RendezvousHub& operator=(const RendezvousHub&) = delete;

 private:
  struct Guest;
  using Clock = std::chrono::steady_clock;

  void serve();
  void accept_all();
  void receive(Guest& guest);
  void handle(Guest& guest, const std::string& message);
  void welcome(Guest& guest, MessageReader& hello);
  void refuse(Guest& guest, Refusal why, const std::string& text);
  void begin_connecting();
  void give_far_addresses();
  void tell_who_is_missing();
  void fail(const std::string& what, const std::string& where, const std::string& remedy,
            const Guest* but = nullptr);
  void send_to_all(const std::string& message, const Guest* but = nullptr);
  void drop_ended();
  /// True once nobody is left who would wait for rank 0 in vain.
  [[nodiscard]] bool all_know() const;
  std::string name_of(const Guest& guest) const;
  std::vector<int> missing_ranks() const;
  std::string name_all(const std::vector<int>& missing) const;

  const Options options_;
  Socket listener_;
  Socket wake_read_;
  Socket wake_write_;
  std::atomic<bool> stops_{false};
  WorkerThreads thread_;

  // Of the thread.
  std::list<Guest> guests_;
  std::vector<Guest*> ranks_;  // by rank; nullptr: has not come
  int num_here_ = 0;
  int num_done_ = 0;
  bool all_came_ = false;
  bool over_ = false;           // all are done, or it failed
  std::string failure_;         // what it failed with, as a message
  std::vector<bool> informed_;  // by rank: was told of the failure, or is its cause
  Clock::time_point accept_again_{};
  Clock::time_point next_note_{};
};

/// Listens at `port` of `address` if that is a loopback address, and else of every address of this
/// machine. Not open, with errno set, if that cannot be.
SHARDWISE_EXPORT Socket listen_at(const std::string& address, std::uint16_t port);

}  // namespace shardwise::detail
