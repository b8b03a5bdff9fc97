#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/fork.h"
#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Limits the number of concurrent transfers per host.
///
/// Threads: internally synchronised.
/// Processes: each process counts separately; a forked child begins at 0.
class HostGate {
 public:
  /// @param max  maximum number of transfers per host; 0 means no limit.
  explicit HostGate(int max) : max_(max) {}

  /// The right to run one transfer with a host. It ends when this object is destroyed.
  class [[nodiscard]] Turn {
   public:
    Turn(HostGate& gate, const std::string& origin) : gate_(gate), origin_(origin) {}
    ~Turn() { gate_.leave(*this); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend class HostGate;
    HostGate& gate_;
    const std::string origin_;
    const std::uint64_t generation_ = process_generation();
  };

  /// Waits until the host has fewer transfers than the maximum. Errors: Cancelled.
  /// @param origin  scheme://host[:port].
  Turn enter(const std::string& origin, const Fetcher::Request& request);

 private:
  void leave(const Turn& turn) noexcept;

  const int max_;
  Mutex mutex_;
  Condition left_;
  PerProcess<std::map<std::string, int>> open_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise
