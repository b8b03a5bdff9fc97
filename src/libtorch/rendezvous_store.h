#pragma once

#ifdef SHARDWISE_HAVE_GLOO

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/fork.h"
#include "libtorch/rendezvous/rendezvous.h"

namespace shardwise::libtorch::detail {

/// What c10d connects its groups through, while the ranks meet. In place of a TCPStore: a wait in
/// it ends at the meeting's deadline, at a cancel, and when a rank is lost. It has what connecting
/// needs, set, get, check and wait; the rest is an error.
///
/// Threads: one that connects, and beside it one that calls look() and close().
class RendezvousStore final : public c10d::Store {
 public:
  explicit RendezvousStore(shardwise::detail::Rendezvous& meeting) : meeting_(&meeting) {}

  /// As Rendezvous::look(), unless a call of the other thread is under way, which looks by itself.
  /// After an error every call is one, so that the other thread comes to its end.
  void look();
  /// From now on every call is an error: the ranks have parted.
  /// REQUIRES: no call is under way.
  void close() noexcept;

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
  class Use;

  LongMutex mutex_;  // of look() and close() against the beginning of a call
  bool in_use_ SHARDWISE_GUARDED_BY(mutex_) = false;
  shardwise::detail::Rendezvous* meeting_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::libtorch::detail

#endif
