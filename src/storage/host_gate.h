#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/fork.h"
#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Largest number of concurrent transfers with a host, of all threads, if the options set no limit.
inline constexpr int kMaxTransfersPerHost = 64;

/// Limits the number of concurrent transfers per host, and pauses all transfers with a host that
/// refuses requests because it gets too many (e.g. HTTP 429).
///
/// After a refusal, no request is sent until the pause is over. Then one request is sent, and each
/// answer allows one more at a time. The number of requests that a host refuses therefore does not
/// depend on the number of threads. The pauses of a host grow until it answers a request.
///
///     transfers   #### |refused|  pause  | # | ## | #### | ...
///
/// Threads: internally synchronised.
/// Processes: each process counts separately; a forked child begins at 0.
class HostGate {
 public:
  using Clock = std::chrono::steady_clock;

  HostGate() = default;
  HostGate(const HostGate&) = delete;
  HostGate& operator=(const HostGate&) = delete;
  /// The gate for all fetches of this process.
  static HostGate& of_process();

  /// The right to run one transfer with a host. It ends when this object is destroyed.
  class Turn {
   public:
    ~Turn() { gate_.leave(*this); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    /// Reports that the host refused the request because it gets too many requests.
    /// @param pause      time that the host asks for; 0 if it names none.
    /// @param base, max  limits of the growing pauses, see Fetchers::Options::retry_base_delay.
    void refused(std::chrono::seconds pause, std::chrono::milliseconds base,
                 std::chrono::milliseconds max) const;
    /// Reports that the host answered the request.
    void accepted() const;

   private:
    friend class HostGate;
    Turn(HostGate& gate, const std::string& origin) : gate_(gate), origin_(origin) {}
    HostGate& gate_;
    const std::string origin_;
    const std::uint64_t generation_ = process_generation();
    const Clock::time_point begin_ = Clock::now();
  };

  /// Waits until the host has fewer transfers than the maximum, and is not paused.
  /// @param origin     scheme://host[:port].
  /// @param max        maximum number of transfers with the host; 0 means no limit.
  /// @param max_pause  the longest time to wait because the host refuses requests.
  /// Errors: Cancelled.
  [[nodiscard]] std::unique_ptr<Turn> enter(const std::string& origin, int max,
                                            const Fetcher::Request& request,
                                            std::chrono::milliseconds max_pause);
  /// Does what enter() does, but returns null instead of waiting.
  [[nodiscard]] std::unique_ptr<Turn> try_enter(const std::string& origin, int max);

 private:
  struct Host {
    int num_open = 0;         // current transfers
    int num_refusals = 0;     // consecutive pauses; 0 means that the host is not slowed down
    int max_open = 0;         // limit while the host is slowed down
    Clock::time_point since;  // time of the last refusal
    Clock::time_point until;  // end of the pause
  };
  std::unique_ptr<Turn> admit(const std::string& origin, Host& host);
  void leave(const Turn& turn) noexcept;

  Mutex mutex_;
  Condition left_;
  PerProcess<std::map<std::string, Host>> hosts_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise
