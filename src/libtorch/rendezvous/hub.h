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

/// The rendezvous server of the ranks of one job: a thread of rank 0 that listens at a port. It
/// records which ranks have connected, and sends the missing ranks' numbers to the others. It
/// checks that the ranks' records are equal, and forwards the values that ranks set. If a rank ends
/// or leaves, it informs all others.
///
/// Connections from elsewhere (another job, a port scanner) are answered or dropped, without
/// further effect.
class SHARDWISE_EXPORT RendezvousHub {
 public:
  struct Options {
    std::string job;
    std::uint32_t round = 0;
    int world_size = 1;
    /// Rank 0 sends it in its hello. A second process that claims to be rank 0 cannot know it.
    std::string key;
    std::string host;  ///< host of rank 0
    /// How long the destructor waits for late ranks, to inform them why the rendezvous failed. It
    /// does not wait beyond `deadline`.
    std::chrono::milliseconds linger{5'000};
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    /// The hub closes a connection that has not named its rank within this time.
    std::chrono::milliseconds hello_timeout{10'000};
  };

  /// @param listener  a listening non-blocking socket.
  RendezvousHub(Socket listener, const Options& options);
  /// Sends pending messages, for 2 s at most, and ends the thread. If the rendezvous failed before
  /// all ranks connected, waits for late ranks and informs them: see Options::linger.
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
  /// Returns true if every rank knows of the failure.
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

  // Used by the thread only.
  std::list<Guest> guests_;
  std::vector<Guest*> ranks_;  // by rank; nullptr: not connected yet
  int num_here_ = 0;
  int num_done_ = 0;
  bool all_came_ = false;
  bool over_ = false;           // all ranks are done, or the rendezvous failed
  std::string failure_;         // the kFailed message
  std::vector<bool> informed_;  // by rank: knows of the failure or caused it
  Clock::time_point accept_again_{};
  Clock::time_point next_note_{};
};

/// Listens at `port`: at `address` if it is a numeric loopback address, else at every address of
/// this machine. On failure returns a closed socket and sets errno.
SHARDWISE_EXPORT Socket listen_at(const std::string& address, std::uint16_t port);

}  // namespace shardwise::detail
