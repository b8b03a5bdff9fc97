#pragma once

#include <cstdint>
#include <deque>

#include "base/fork.h"

namespace shardwise::detail {

/// How far one rank is with batches by length, whose samples come from anywhere in a window: the
/// slot in which the window begins that it reads from.
///
/// Threads: internally synchronised.
class WindowProgress {
 public:
  /// @param slot  of the first batch's window.
  explicit WindowProgress(std::uint64_t slot) : slot_(slot) {}

  /// A batch of so many rows was planned, and this rank's next one is of the window that begins in
  /// `slot`. Called in the order of batches.
  void plan(std::uint64_t num_rows, std::uint64_t slot) {
    const Lock lock(mutex_);
    rows_planned_ += num_rows;
    const std::uint64_t last = ends_.empty() ? slot_ : ends_.back().slot;
    if (slot > last) ends_.push_back({rows_planned_, slot});
  }

  /// The slot before which all has been read, once the first `num_rows` planned rows have. Calls
  /// may overtake each other.
  std::uint64_t slot_after(std::uint64_t num_rows) {
    const Lock lock(mutex_);
    for (; !ends_.empty() && ends_.front().rows <= num_rows; ends_.pop_front()) {
      slot_ = ends_.front().slot;
    }
    return slot_;
  }

 private:
  /// With so many rows this rank is done with the windows before the one of `slot`.
  struct End {
    std::uint64_t rows;
    std::uint64_t slot;
  };

  Mutex mutex_;
  std::uint64_t rows_planned_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t slot_ SHARDWISE_GUARDED_BY(mutex_);
  std::deque<End> ends_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
