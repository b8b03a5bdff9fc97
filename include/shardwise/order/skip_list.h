#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/base/export.h"

namespace shardwise {

/// Lists the samples that a run leaves out on purpose, and the ranges of positions that it leaves
/// out in single epochs, e.g. the steps around a loss spike.
///
/// Skipped samples leave no gap: later samples take their place. The numbers of samples of two
/// ranks still differ by at most one, and every other sample is still delivered exactly once.
/// Positions are numbered as if no sample were left out.
///
/// An entry for a sample applies from a point of the run, `from`, by default the run's beginning
/// (0, 0). If a run resumes with new entries, they apply from the point of resumption, which later
/// tokens store. The proof of the epoch accounts for deliveries of the sample before that point.
/// docs/formats/order.md specifies it ("What is left out", version 1).
///
/// Threads: one thread while it is filled; then immutable.
/// Cost: O(log entries) per entry.
class SHARDWISE_EXPORT SkipList {
 public:
  static constexpr unsigned kVersion = 1;
  /// The largest number of bytes of a reason; longer reasons are cut.
  static constexpr std::size_t kMaxReason = 200;

  /// A point in a run: a position of an epoch, counted over all ranks.
  struct Point {
    std::uint64_t epoch = 0;
    std::uint64_t position = 0;

    friend auto operator<=>(const Point&, const Point&) = default;
  };

  struct Entry {
    Point from;          ///< the sample is left out from this point on
    std::string reason;  ///< one line of text for people; may be empty

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Samples = std::map<std::uint64_t, Entry>;
  /// (epoch, first position) -> position after the last. Ranges are disjoint and not adjacent.
  using Ranges = std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>;

  /// Leaves out `sample`. If it already has an entry, the one with the earlier `from` is kept.
  void add_sample(std::uint64_t sample, std::string_view reason, Point from);
  void add_sample(std::uint64_t sample, std::string_view reason = {}) {
    add_sample(sample, reason, Point());
  }
  /// Leaves out positions [begin, end) of `epoch`. Errors: InvalidArgument if begin > end.
  void add_positions(std::uint64_t epoch, std::uint64_t begin, std::uint64_t end);
  /// Leaves out steps [first, last) of `epoch`. Steps are those of a run of `world_size` ranks with
  /// `batch_size` samples each, in which no earlier sample of that epoch was left out.
  void add_steps(std::uint64_t epoch, std::uint64_t first, std::uint64_t last,
                 std::uint64_t world_size, std::uint64_t batch_size);

  /// Adds all entries of `other`.
  void merge(const SkipList& other);
  /// Adds the entries of `other` that this list lacks. They apply from `point`, the point at which
  /// a run resumes with them.
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
