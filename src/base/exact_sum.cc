#include "base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace shardwise::detail {
namespace {

constexpr int kWordBits = 32;
constexpr std::int64_t kWord = std::int64_t{1} << kWordBits;
constexpr std::size_t kNumDigits = ExactSum::kNumWords - 3;
constexpr std::size_t kNan = kNumDigits;
constexpr std::size_t kPositive = kNumDigits + 1;
constexpr std::size_t kNegative = kNumDigits + 2;
constexpr int kMantissaBits = 52;
/// Exponent of the lowest bit that a double can have.
constexpr int kLowestExponent = -1074;
/// Largest number of additions, of up to 33 bits each, before a word's carry must be propagated.
constexpr std::uint32_t kMaxAdditions = 1U << 29;

bool bit_of(const ExactSum::Words& words, int bit) {
  return ((words[static_cast<std::size_t>(bit / kWordBits)] >> (bit % kWordBits)) & 1) != 0;
}

/// Returns the highest set bit, or -1. REQUIRES: all words are in [0, 2^32).
int highest_bit(const ExactSum::Words& words) {
  for (std::size_t i = kNumDigits; i-- > 0;) {
    if (words[i] == 0) continue;
    return static_cast<int>(i) * kWordBits + 63 -
           std::countl_zero(static_cast<std::uint64_t>(words[i]));
  }
  return -1;
}

/// Rounds the sum. REQUIRES: all words are in [0, 2^32).
double rounded(const ExactSum::Words& words) {
  const int highest = highest_bit(words);
  const int lowest = std::max(0, highest - kMantissaBits);  // lowest bit in the mantissa
  std::uint64_t mantissa = 0;
  for (int bit = highest; bit >= lowest; --bit)
    mantissa = 2 * mantissa + (bit_of(words, bit) ? 1 : 0);
  if (lowest > 0 && bit_of(words, lowest - 1)) {
    bool is_more_than_half = false;
    for (int bit = lowest - 2; bit >= 0 && !is_more_than_half; --bit) {
      is_more_than_half = bit_of(words, bit);
    }
    if (is_more_than_half || mantissa % 2 == 1) ++mantissa;
  }
  return std::ldexp(static_cast<double>(mantissa), lowest + kLowestExponent);
}

}  // namespace

void ExactSum::add(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(bits >> kMantissaBits & 0x7FF);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << kMantissaBits) - 1);
  const bool is_negative = (bits >> 63) != 0;
  if (exponent == 0x7FF) {
    ++words_[mantissa != 0 ? kNan : (is_negative ? kNegative : kPositive)];
    return;
  }
  if (exponent != 0) mantissa |= std::uint64_t{1} << kMantissaBits;
  const int place = std::max(exponent, 1) - 1;  // position of the value's lowest bit in the sum
  const auto word = static_cast<std::size_t>(place / kWordBits);
  const int shift = place % kWordBits;
  const std::uint64_t low = (mantissa & (kWord - 1)) << shift;
  const std::uint64_t high = (mantissa >> kWordBits) << shift;
  const std::int64_t sign = is_negative ? -1 : 1;
  words_[word] += sign * static_cast<std::int64_t>(low & (kWord - 1));
  words_[word + 1] += sign * static_cast<std::int64_t>((low >> kWordBits) + (high & (kWord - 1)));
  words_[word + 2] += sign * static_cast<std::int64_t>(high >> kWordBits);
  if (++since_carry_ == kMaxAdditions) carry();
}

void ExactSum::carry() noexcept {
  for (std::size_t i = 0; i + 1 < kNumDigits; ++i) {
    const std::int64_t over = words_[i] >> kWordBits;  // rounded down
    words_[i] -= over * kWord;
    words_[i + 1] += over;
  }
  since_carry_ = 0;
}

ExactSum::Words ExactSum::words() const noexcept {
  ExactSum carried = *this;
  carried.carry();
  return carried.words_;
}

void ExactSum::set_words(const Words& words) noexcept {
  words_ = words;
  carry();
}

double ExactSum::value() const noexcept {
  if (words_[kNan] != 0 || (words_[kPositive] != 0 && words_[kNegative] != 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (words_[kPositive] != 0) return std::numeric_limits<double>::infinity();
  if (words_[kNegative] != 0) return -std::numeric_limits<double>::infinity();
  ExactSum sum = *this;
  sum.carry();
  const bool is_negative = sum.words_[kNumDigits - 1] < 0;  // all other words are >= 0
  if (is_negative) {
    for (std::int64_t& word : sum.words_) word = -word;
    sum.carry();
  }
  const double magnitude = rounded(sum.words_);
  return is_negative ? -magnitude : magnitude;
}

}  // namespace shardwise::detail
