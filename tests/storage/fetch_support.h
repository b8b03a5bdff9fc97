#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"

namespace shardwise::test {

/// Collects the fetched bytes in a string.
class StringSink : public Fetcher::Sink {
 public:
  explicit StringSink(bool restarts = true) : restarts_(restarts) {}
  void write(std::string_view more) override { bytes += more; }
  bool restart() override {
    if (!restarts_) return false;
    ++num_restarts;
    bytes.clear();
    return true;
  }

  std::string bytes;
  int num_restarts = 0;

 private:
  bool restarts_;
};

/// Returns options with short delays between attempts. They set no minimum speed, because transfers
/// may be slow on a busy machine.
inline Fetchers::Options quick_options() {
  Fetchers::Options options;
  options.connect_timeout = std::chrono::seconds(60);
  options.low_speed_time = std::chrono::seconds(60);
  options.max_retries = 2;
  options.retry_base_delay = std::chrono::milliseconds(1);
  options.retry_max_delay = std::chrono::milliseconds(5);
  return options;
}

/// Returns `size` bytes without repetitions. The same arguments give the same bytes.
inline std::string some_bytes(std::size_t size, std::uint32_t seed = 1) {
  std::string bytes(size, '\0');
  std::uint32_t state = seed;
  for (char& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

/// Compares texts that are too long to print.
inline ::testing::AssertionResult same(std::string_view a, std::string_view b) {
  if (a == b) return ::testing::AssertionSuccess();
  const auto [first, second] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return ::testing::AssertionFailure() << a.size() << " and " << b.size()
                                       << " bytes, which differ from byte " << first - a.begin();
}

}  // namespace shardwise::test
