#pragma once

#include <chrono>
#include <cstdint>

#include "base/fork.h"
#include "storage/http_exchange.h"

namespace shardwise {

/// Measures how fast a store answers.
/// Threads: internally synchronised.
class HostSpeed {
 public:
  /// Adds a successful exchange to the averages.
  void add(const HttpResult& result) {
    constexpr std::uint64_t kEnough = std::uint64_t{32} << 10;  // bytes needed to measure a rate
    const double body = std::chrono::duration<double>(result.body_time).count();
    const Lock lock(mutex_);
    average(latency_s_, std::chrono::duration<double>(result.latency).count());
    if (result.body_bytes >= kEnough && body > 0) {
      average(bytes_per_s_, static_cast<double>(result.body_bytes) / body);
    }
  }
  /// Returns the number of bytes that the store sends over one connection during one latency; 0 if
  /// it is unknown. The latency is the time from a request to the first byte of its response.
  [[nodiscard]] std::uint64_t bytes_in_flight() {
    const Lock lock(mutex_);
    return static_cast<std::uint64_t>(latency_s_ * bytes_per_s_);
  }

 private:
  static void average(double& mean, double value) {
    mean = mean == 0 ? value : mean + (value - mean) / 8;
  }

  Mutex mutex_;
  double latency_s_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // 0 means unknown
  double bytes_per_s_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

}  // namespace shardwise
