#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/assert.h"

namespace shardwise {

template <class Shard>
class ShardPool;
}  // namespace shardwise

namespace shardwise::detail {

/// Counts the holders of an opened shard. Lives until its pool and the last holder are gone.
struct ShardPin {
  static constexpr std::uint64_t kHolder = 1;
  static constexpr std::uint64_t kClosing = std::uint64_t{1} << 61;  ///< the last holder closes it
  static constexpr std::uint64_t kOpen = std::uint64_t{1} << 62;     ///< there is a shard to hold
  static constexpr std::uint64_t kPooled = std::uint64_t{1} << 63;   ///< the pool exists
  static constexpr std::uint64_t kIdle = kPooled | kOpen;            ///< without holders

  /// @param close_this  closes the shard if the caller is its only holder, and returns true; the
  ///   caller still holds it. Null for a pin that is never kClosing.
  explicit ShardPin(void (*destroy_this)(ShardPin*) noexcept,
                    bool (*close_this)(ShardPin*) noexcept = nullptr)
      : destroy(destroy_this), close(close_this) {}

  /// Adds a holder; returns false if no shard is open.
  [[nodiscard]] bool try_hold() noexcept {
    if ((state.fetch_add(kHolder, std::memory_order_acquire) & kOpen) != 0) return true;
    state.fetch_sub(kHolder, std::memory_order_relaxed);  // the caller keeps the pool alive
    return false;
  }
  /// REQUIRES: the caller holds it.
  void hold_again() noexcept {
    [[maybe_unused]] const std::uint64_t before =
        state.fetch_add(kHolder, std::memory_order_relaxed);
    SHARDWISE_ASSERT_HOT((before & ~(kIdle | kClosing)) != 0);
  }
  void let_go() noexcept {
    if ((state.load(std::memory_order_relaxed) & kClosing) != 0) return let_go_or_close();
    const std::uint64_t before = state.fetch_sub(kHolder, std::memory_order_acq_rel);
    if ((before & ~kClosing) == (kOpen | kHolder)) destroy(this);
  }
  /// Called by the pool's destructor.
  void leave_pool() noexcept {
    const std::uint64_t before = state.fetch_sub(kPooled, std::memory_order_acq_rel);
    if ((before & ~(kIdle | kClosing)) == 0) destroy(this);
  }

  std::atomic<std::uint64_t> state{kPooled};
  void (*const destroy)(ShardPin*) noexcept;
  bool (*const close)(ShardPin*) noexcept;

 private:
  /// Closes the shard before it drops the last hold: afterwards this object may be gone.
  void let_go_or_close() noexcept {
    for (std::uint64_t now = state.load(std::memory_order_relaxed);;) {
      if (now == (kIdle | kClosing | kHolder)) {
        if (close(this)) break;
        now = state.load(std::memory_order_relaxed);
      } else if (state.compare_exchange_weak(now, now - kHolder, std::memory_order_acq_rel)) {
        if ((now & ~kClosing) == (kOpen | kHolder)) destroy(this);
        return;
      }
    }
    if (state.fetch_sub(kHolder, std::memory_order_acq_rel) == kHolder) destroy(this);
  }
};

/// Shared ownership of a shard that a ShardPool opened. The shard stays open while a handle exists,
/// even after the pool's destruction. Used like a shared_ptr, with the same thread-safety. Getting
/// one costs half as much: the pool finds the shard and counts the holder in one step.
template <class Shard>
class ShardHandle {
 public:
  ShardHandle() = default;
  ~ShardHandle() {
    if (pin_ != nullptr) pin_->let_go();
  }
  ShardHandle(const ShardHandle& other) noexcept : pin_(other.pin_), shard_(other.shard_) {
    if (pin_ != nullptr) pin_->hold_again();
  }
  ShardHandle(ShardHandle&& other) noexcept
      : pin_(std::exchange(other.pin_, nullptr)), shard_(std::exchange(other.shard_, nullptr)) {}
  ShardHandle& operator=(ShardHandle other) noexcept {
    std::swap(pin_, other.pin_);
    std::swap(shard_, other.shard_);
    return *this;
  }

  /// A handle for a shard outside any pool; its only holder.
  static ShardHandle of_one(std::unique_ptr<const Shard> shard) {
    struct Lone : ShardPin {
      explicit Lone(std::unique_ptr<const Shard> of)
          : ShardPin([](ShardPin* pin) noexcept { delete static_cast<Lone*>(pin); }),
            shard(std::move(of)) {
        state = kOpen | kHolder;
      }
      const std::unique_ptr<const Shard> shard;
    };
    auto lone = std::make_unique<Lone>(std::move(shard));
    const Shard* const held = lone->shard.get();
    return {lone.release(), held};
  }

  const Shard& operator*() const noexcept { return *shard_; }
  const Shard* operator->() const noexcept { return shard_; }
  const Shard* get() const noexcept { return shard_; }
  /// Transfers this handle's hold to the caller, who must call let_go().
  ShardPin* release() noexcept {
    shard_ = nullptr;
    return std::exchange(pin_, nullptr);
  }
  /// A handle without a hold. It must be released, not destroyed, and this handle must outlive it.
  [[nodiscard]] ShardPin* pin() const noexcept { return pin_; }
  [[nodiscard]] ShardHandle borrow() const noexcept { return {pin_, shard_}; }
  explicit operator bool() const noexcept { return shard_ != nullptr; }
  friend bool operator==(const ShardHandle& a, const ShardHandle& b) noexcept {
    return a.shard_ == b.shard_;
  }

 private:
  friend class shardwise::ShardPool<Shard>;
  /// Takes over one hold of `pin`.
  ShardHandle(ShardPin* pin, const Shard* shard) noexcept : pin_(pin), shard_(shard) {}

  ShardPin* pin_ = nullptr;
  const Shard* shard_ = nullptr;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ShardHandle;
}  // namespace shardwise
