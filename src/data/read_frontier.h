#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <utility>

#include "base/fork.h"

namespace shardwise::detail {

/// Tracks how far several threads have read a sequence of items. The sequence is divided into
/// parts, and each part is read from its begin to its end. All items before the frontier have been
/// read.
///
///     begun and done   begun, being read   not begun
///     |###############|####...|######|#####|.........|
///                          ^ the frontier
///
/// Threads: internally synchronised. Call begin() for the parts in their order.
class ReadFrontier {
 public:
  /// @param moved  called with the frontier after it may have moved, on the thread that moved it.
  ///   Concurrent calls may arrive out of order.
  explicit ReadFrontier(std::function<void(std::uint64_t frontier)> moved)
      : moved_(std::move(moved)) {}

  /// A part that is being read. Destroying it ends the part, even after an error. Movable.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept : of_(std::exchange(other.of_, nullptr)), at_(other.at_) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(at_, other.at_);
      return *this;
    }
    ~Part() {
      if (of_ != nullptr) of_->end(at_);
    }
    /// Reports that all items before `place` have been read.
    void reach(std::uint64_t place) {
      if (of_ != nullptr) of_->reach(*at_, place);
    }

   private:
    friend class ReadFrontier;
    Part(ReadFrontier* of, std::list<std::uint64_t>::iterator at) : of_(of), at_(at) {}
    ReadFrontier* of_ = nullptr;
    std::list<std::uint64_t>::iterator at_{};
  };

  /// Begins a part with the items [first, last), which must follow the items of all earlier parts.
  [[nodiscard]] Part begin(std::uint64_t first, std::uint64_t last) {
    const Lock lock(mutex_);
    behind_ = last;
    return {this, parts_.insert(parts_.end(), first)};
  }

 private:
  void reach(std::uint64_t& at, std::uint64_t place) {
    tell([&]() SHARDWISE_REQUIRES(mutex_) { at = place; });
  }
  void end(std::list<std::uint64_t>::iterator at) {
    tell([&]() SHARDWISE_REQUIRES(mutex_) { parts_.erase(at); });
  }
  template <class Change>
  void tell(const Change& change) {
    std::uint64_t frontier = 0;
    {
      const Lock lock(mutex_);
      change();
      // Parts are in order, so the first unfinished part determines the frontier.
      frontier = parts_.empty() ? behind_ : parts_.front();
    }
    moved_(frontier);
  }

  const std::function<void(std::uint64_t)> moved_;
  Mutex mutex_;
  // Next item to read in each unfinished part.
  std::list<std::uint64_t> parts_ SHARDWISE_GUARDED_BY(mutex_);
  std::uint64_t behind_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // end of the part that began last
};

}  // namespace shardwise::detail
