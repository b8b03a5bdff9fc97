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

/// The store through which c10d connects its groups while the ranks meet. Unlike in a TCPStore, a
/// wait ends at the deadline of the rendezvous, at a cancel, or when a rank is lost. Connecting
/// needs only set, get, check and wait; other calls throw.
///
/// Threads: one thread connects; another may call look() and close().
class RendezvousStore final : public c10d::Store {
 public:
  explicit RendezvousStore(shardwise::detail::Rendezvous& meeting) : meeting_(&meeting) {}

  /// Calls Rendezvous::look(). Does nothing while a call of the other thread runs, which checks the
  /// same. After an error every call throws, so that the other thread ends.
  void look();
  /// From now on every call throws, since the rendezvous is over.
  /// REQUIRES: no call is running.
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
  /// Called by LibTorch 2.9 or later.
  c10::intrusive_ptr<c10d::Store> clone();  // NOLINT(modernize-use-override): none in 1.13

 private:
  class Use;

  LongMutex mutex_;  // calls, look() and close() exclude each other
  bool in_use_ SHARDWISE_GUARDED_BY(mutex_) = false;
  shardwise::detail::Rendezvous* meeting_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::libtorch::detail

#endif
