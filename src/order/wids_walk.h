#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "order/arithmetic.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The part of CPython's random.Random that wids uses.
class SHARDWISE_EXPORT PythonRandom {
 public:
  explicit PythonRandom(uint128 seed);
  /// Makes a freshly seeded generator from the words of getstate()[1]. The last word is the
  /// position in the other words.
  /// Errors: InvalidArgument unless the words are such a state.
  explicit PythonRandom(std::span<const std::uint32_t> state);

  /// random.shuffle(values).
  void shuffle(std::vector<std::uint64_t>& values);

 private:
  std::uint64_t below(std::uint64_t n);
  std::uint64_t bits(unsigned num_bits);

  std::mt19937 engine_;
};

/// The state of wids' iterate_ranges() within one of its ranges. iterate_ranges() iterates over the
/// ranges, and over the numbers in each range, shuffled or not.
/// Memory: 24 bytes per range, plus the numbers of one range.
struct WidsWalk {
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };

  SHARDWISE_EXPORT WidsWalk(PythonRandom random_state, std::vector<Range> all_ranges,
                            bool shuffles_ranges, bool shuffles_numbers);
  /// Advances to the next range; returns false if there is no next range.
  SHARDWISE_EXPORT bool advance();

  PythonRandom random;
  std::vector<Range> ranges;
  bool shuffles_samples;
  std::vector<std::uint64_t> places;  ///< the numbers of the ranges, in the order in which they are
                                      ///< read
  std::size_t next_place = 0;
  std::uint64_t first = 0;             ///< number of samples in the earlier ranges
  std::vector<std::uint64_t> samples;  ///< the samples of the current range, in order
};

}  // namespace shardwise::detail
