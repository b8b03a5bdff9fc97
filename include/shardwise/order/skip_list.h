#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/base/export.h"

namespace shardwise {

/// The samples that a run leaves out on purpose, and ranges of positions of one epoch, as the steps
/// around a loss spike.
///
/// No gap remains: the positions after it move forward, so the ranks' shares still differ by at
/// most one, and every other sample still comes exactly once. Positions are numbered as if nothing
/// were left out.
///
/// An entry for a sample holds from a point of the run on: `from`, (0, 0) unless said
/// otherwise. A run that resumes with new entries takes them from the point where it resumed, and
/// keeps that point in its tokens. So samples that were delivered before stay delivered, and the
/// proof of the epoch takes both into account. docs/formats/order.md specifies it (What is left
/// out, version 1).
///
/// Threads: one thread while it is filled; then immutable. Cost: O(log entries) an entry.
class SHARDWISE_EXPORT SkipList {
 public:
  static constexpr unsigned kVersion = 1;
  /// Bytes of a reason that are kept.
  static constexpr std::size_t kMaxReason = 200;

  /// A point in a run: a position of an epoch, counted over all ranks.
  struct Point {
    std::uint64_t epoch = 0;
    std::uint64_t position = 0;

    friend auto operator<=>(const Point&, const Point&) = default;
  };

  struct Entry {
    Point from;          ///< the sample is left out at this point and after it
    std::string reason;  ///< one line of text for people; may be empty

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Samples = std::map<std::uint64_t, Entry>;
  /// (epoch, first position) -> position behind the last; disjoint, and not adjacent.
  using Ranges = std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>;

  /// Leaves out `sample`. Of two entries for one sample the earlier `from` holds.
  void add_sample(std::uint64_t sample, std::string_view reason, Point from);
  void add_sample(std::uint64_t sample, std::string_view reason = {}) {
    add_sample(sample, reason, Point());
  }
  /// Leaves out positions [begin, end) of `epoch`. Errors: InvalidArgument if begin > end.
  void add_positions(std::uint64_t epoch, std::uint64_t begin, std::uint64_t end);
  /// Leaves out steps [first, last) of `epoch`, as counted by a run of `world_size` ranks with
  /// `batch_size` samples each that left nothing out in that epoch before.
  void add_steps(std::uint64_t epoch, std::uint64_t first, std::uint64_t last,
                 std::uint64_t world_size, std::uint64_t batch_size);

  /// Adds all entries of `other`.
  void merge(const SkipList& other);
  /// Adds the entries of `other` that this list does not have, from `point` on: what a run that
  /// resumes at `point` leaves out in addition.
  void merge_from(const SkipList& other, Point point);

  [[nodiscard]] bool empty() const noexcept { return samples_.empty() && ranges_.empty(); }
  [[nodiscard]] const Samples& samples() const noexcept { return samples_; }
  [[nodiscard]] const Ranges& ranges() const noexcept { return ranges_; }

  friend bool operator==(const SkipList&, const SkipList&) = default;

 private:
  Samples samples_;
  Ranges ranges_;
};

}  // namespace shardwise
