#pragma once

#ifdef SHARDWISE_HAVE_GLOO

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/meeting.h"

namespace shardwise::libtorch::detail {

/// What c10d connects its groups through, while the ranks meet. In place of a TCPStore: a wait in
/// it ends at the meeting's deadline, at a cancel, and when a rank is lost. It has what connecting
/// needs, set, get, check and wait; the rest is an error.
class MeetingStore final : public c10d::Store {
 public:
  explicit MeetingStore(shardwise::detail::Meeting& meeting) : meeting_(&meeting) {}

  /// From now on every call is an error: the ranks have parted.
  void close() noexcept { meeting_ = nullptr; }

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  /// Of LibTorch from 2.9 on.
  c10::intrusive_ptr<c10d::Store> clone();  // NOLINT(modernize-use-override): none in 1.13

 private:
  shardwise::detail::Meeting& meeting();

  shardwise::detail::Meeting* meeting_;
};

}  // namespace shardwise::libtorch::detail

#endif
