#include "order/wids_walk.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

/// Implements Matsumoto and Nishimura's init_by_array as a seed sequence, which writes the whole
/// state at once.
class InitByArray {
 public:
  using result_type = std::uint32_t;

  explicit InitByArray(uint128 seed) {
    do {
      key_.push_back(static_cast<std::uint32_t>(seed));
      seed >>= 32;
    } while (seed != 0);
  }

  template <class Iterator>
  void generate(Iterator first, Iterator last) {
    const auto size = static_cast<std::size_t>(last - first);
    std::vector<std::uint32_t> state(size);
    state[0] = 19650218;
    for (std::size_t i = 1; i < size; ++i) {
      state[i] = 1812433253U * mixed(state[i - 1]) + static_cast<std::uint32_t>(i);
    }
    std::size_t i = 1;
    const auto advance = [&] {
      if (++i < size) return;
      state[0] = state[size - 1];
      i = 1;
    };
    std::size_t j = 0;
    for (std::size_t k = std::max(size, key_.size()); k > 0; --k) {
      state[i] =
          (state[i] ^ (mixed(state[i - 1]) * 1664525U)) + key_[j] + static_cast<std::uint32_t>(j);
      advance();
      j = (j + 1) % key_.size();
    }
    for (std::size_t k = size - 1; k > 0; --k) {
      state[i] = (state[i] ^ (mixed(state[i - 1]) * 1566083941U)) - static_cast<std::uint32_t>(i);
      advance();
    }
    state[0] = 0x80000000U;
    std::copy(state.begin(), state.end(), first);
  }

 private:
  static std::uint32_t mixed(std::uint32_t x) { return x ^ (x >> 30); }
  std::vector<std::uint32_t> key_;
};

/// A seed sequence that returns given words as the state.
struct Words {
  using result_type = std::uint32_t;

  template <class Iterator>
  void generate(Iterator first, Iterator last) {
    std::copy_n(words.begin(), last - first, first);
  }

  std::span<const std::uint32_t> words;
};

}  // namespace

PythonRandom::PythonRandom(uint128 seed) {
  InitByArray sequence(seed);
  engine_.seed(sequence);
}

PythonRandom::PythonRandom(std::span<const std::uint32_t> state) {
  constexpr std::size_t kNumWords = std::mt19937::state_size;
  if (state.size() != kNumWords + 1 || state.back() != kNumWords) {
    throw InvalidArgument("not the state of a random.Random that was just seeded", {},
                          "give random.Random(seed).getstate()[1]");
  }
  Words sequence{state};
  engine_.seed(sequence);
}

void PythonRandom::shuffle(std::vector<std::uint64_t>& values) {
  for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
}

/// Implements _randbelow(n): draws numbers of as many bits as n has, until one is below n.
std::uint64_t PythonRandom::below(std::uint64_t n) {
  const auto num_bits = static_cast<unsigned>(std::bit_width(n));
  std::uint64_t value = bits(num_bits);
  while (value >= n) value = bits(num_bits);
  return value;
}

/// Implements getrandbits(num_bits) for 1 to 64 bits: words from the low end, the last word
/// truncated.
std::uint64_t PythonRandom::bits(unsigned num_bits) {
  if (num_bits <= 32) return std::uint64_t{engine_()} >> (32 - num_bits);
  const std::uint64_t low = engine_();
  return low | (std::uint64_t{engine_()} >> (64 - num_bits)) << 32;
}

WidsWalk::WidsWalk(PythonRandom random_state, std::vector<Range> all_ranges, bool shuffles_ranges,
                   bool shuffles_numbers)
    : random(random_state),
      ranges(std::move(all_ranges)),
      shuffles_samples(shuffles_numbers),
      places(ranges.size()) {
  std::iota(places.begin(), places.end(), std::uint64_t{0});
  if (shuffles_ranges) random.shuffle(places);
}

bool WidsWalk::advance() {
  if (next_place == places.size()) return false;
  first += samples.size();
  const Range range = ranges[places[next_place++]];
  samples.resize(range.end - range.begin);
  std::iota(samples.begin(), samples.end(), range.begin);
  if (shuffles_samples) random.shuffle(samples);
  return true;
}

}  // namespace shardwise::detail
