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

/// Counts the pins of an open shard. It exists until the pool and the last pin are gone.
struct ShardPin {
  static constexpr std::uint64_t kPin = 1;
  /// Dropping the last pin closes the shard.
  static constexpr std::uint64_t kClosing = std::uint64_t{1} << 61;
  /// There is an open shard to pin.
  static constexpr std::uint64_t kOpen = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kPooled = std::uint64_t{1} << 63;  ///< the pool exists
  static constexpr std::uint64_t kIdle = kPooled | kOpen;           ///< open, without pins

  /// @param close_this  closes the shard and returns true, if the caller has the only pin; the
  ///   caller keeps the pin. Null if the shard never has kClosing set.
  explicit ShardPin(void (*destroy_this)(ShardPin*) noexcept,
                    bool (*close_this)(ShardPin*) noexcept = nullptr)
      : destroy(destroy_this), close(close_this) {}

  /// Adds a pin. Returns false if the shard is not open.
  [[nodiscard]] bool try_pin() noexcept {
    if ((state.fetch_add(kPin, std::memory_order_acquire) & kOpen) != 0) return true;
    // This object need not be destroyed here, because the caller keeps the pool alive.
    state.fetch_sub(kPin, std::memory_order_relaxed);
    return false;
  }
  /// Adds a pin. REQUIRES: the caller has a pin.
  void pin_again() noexcept {
    [[maybe_unused]] const std::uint64_t before = state.fetch_add(kPin, std::memory_order_relaxed);
    SHARDWISE_ASSERT_HOT((before & ~(kIdle | kClosing)) != 0);
  }
  void unpin() noexcept {
    if ((state.load(std::memory_order_relaxed) & kClosing) != 0) return unpin_or_close();
    const std::uint64_t before = state.fetch_sub(kPin, std::memory_order_acq_rel);
    if ((before & ~kClosing) == (kOpen | kPin)) destroy(this);
  }
  /// True if the shard is open and has pins.
  [[nodiscard]] bool is_pinned() const noexcept {
    const std::uint64_t now = state.load(std::memory_order_relaxed);
    return (now & kOpen) != 0 && (now & ~kClosing) != kIdle;
  }
  /// Called by the pool's destructor. Returns true if there are no pins; the caller then destroys
  /// this object.
  [[nodiscard]] bool leave_pool() noexcept {
    const std::uint64_t before = state.fetch_sub(kPooled, std::memory_order_acq_rel);
    return (before & ~(kIdle | kClosing)) == 0;
  }

  std::atomic<std::uint64_t> state{kPooled};
  void (*const destroy)(ShardPin*) noexcept;
  bool (*const close)(ShardPin*) noexcept;

 private:
  /// Drops the last pin. Closes the shard first, because this object may be gone afterwards.
  void unpin_or_close() noexcept {
    for (std::uint64_t now = state.load(std::memory_order_relaxed);;) {
      if (now == (kIdle | kClosing | kPin)) {
        if (close(this)) break;
        now = state.load(std::memory_order_relaxed);
      } else if (state.compare_exchange_weak(now, now - kPin, std::memory_order_acq_rel)) {
        if ((now & ~kClosing) == (kOpen | kPin)) destroy(this);
        return;
      }
    }
    if (state.fetch_sub(kPin, std::memory_order_acq_rel) == kPin) destroy(this);
  }
};

/// Shared ownership of a shard that a ShardPool opened. The shard stays open while a handle exists,
/// even after the pool is destroyed. Usage and thread-safety are those of shared_ptr. Getting a
/// handle costs half as much as copying a shared_ptr, because the pool finds the shard and counts
/// the pin in one step.
template <class Shard>
class ShardHandle {
 public:
  ShardHandle() = default;
  ~ShardHandle() {
    if (pin_ != nullptr) pin_->unpin();
  }
  ShardHandle(const ShardHandle& other) noexcept : pin_(other.pin_), shard_(other.shard_) {
    if (pin_ != nullptr) pin_->pin_again();
  }
  ShardHandle(ShardHandle&& other) noexcept
      : pin_(std::exchange(other.pin_, nullptr)), shard_(std::exchange(other.shard_, nullptr)) {}
  ShardHandle& operator=(ShardHandle other) noexcept {
    std::swap(pin_, other.pin_);
    std::swap(shard_, other.shard_);
    return *this;
  }

  /// Makes a handle for a shard without a pool. The handle has the shard's only pin.
  static ShardHandle of_one(std::unique_ptr<const Shard> shard) {
    struct Lone : ShardPin {
      explicit Lone(std::unique_ptr<const Shard> of)
          : ShardPin([](ShardPin* pin) noexcept { delete static_cast<Lone*>(pin); }),
            shard(std::move(of)) {
        state = kOpen | kPin;
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
  /// Transfers this handle's pin to the caller, who must call unpin() on it.
  ShardPin* release() noexcept {
    shard_ = nullptr;
    return std::exchange(pin_, nullptr);
  }
  [[nodiscard]] ShardPin* pin() const noexcept { return pin_; }
  explicit operator bool() const noexcept { return shard_ != nullptr; }
  friend bool operator==(const ShardHandle& a, const ShardHandle& b) noexcept {
    return a.shard_ == b.shard_;
  }

 private:
  friend class shardwise::ShardPool<Shard>;
  /// Takes over one pin of `pin`.
  ShardHandle(ShardPin* pin, const Shard* shard) noexcept : pin_(pin), shard_(shard) {}

  ShardPin* pin_ = nullptr;
  const Shard* shard_ = nullptr;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ShardHandle;
}  // namespace shardwise
