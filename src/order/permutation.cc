#include "shardwise/order/permutation.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cmath>
#include <string>
#include <utility>

#include "order/arithmetic.h"
#include "shardwise/base/error.h"

namespace shardwise {

namespace {

using order_detail::divide;
using order_detail::mix64;

struct Cell {
  std::uint64_t row;
  std::uint64_t column;
};

std::uint64_t ceil_sqrt(std::uint64_t n) noexcept {
  // n <= 2^62, so the floating-point root is off by at most one and its square does not wrap.
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

constexpr std::uint64_t kMultiplier1 = 0x9e3779b1U;
constexpr std::uint64_t kMultiplier2 = 0x85ebca77U;
constexpr std::uint64_t kLow32 = 0xffffffffU;

inline std::uint64_t round_function(std::uint64_t x, std::uint64_t round_key,
                                    std::uint64_t range) noexcept {
  std::uint64_t y = ((x ^ round_key) & kLow32) * kMultiplier1 + round_key;
  y = ((y ^ (y >> 32)) & kLow32) * kMultiplier2;
  return ((y & kLow32) * range) >> 32;
}

inline std::uint64_t add_mod(std::uint64_t x, std::uint64_t y, std::uint64_t m) noexcept {
  const std::uint64_t sum = x + y;
  const std::uint64_t wrapped = sum - m;
  return sum >= m ? wrapped : sum;
}

inline std::uint64_t subtract_mod(std::uint64_t x, std::uint64_t y, std::uint64_t m) noexcept {
  return x >= y ? x - y : x + m - y;
}

/// The grid of one permutation with its two key words, in registers.
struct Grid {
  std::uint64_t size;
  std::uint64_t rows;
  std::uint64_t columns;
  std::uint64_t columns_reciprocal;
  std::uint64_t k0;
  std::uint64_t k1;

  Cell cell(std::uint64_t i) const noexcept {
    const auto [row, column] = divide(i, columns, columns_reciprocal);
    return {row, column};
  }
  std::uint64_t number(Cell x) const noexcept { return x.row * columns + x.column; }

  void row_round(Cell& x, std::uint64_t round_key) const noexcept {
    x.row = add_mod(x.row, round_function(x.column, round_key, rows), rows);
  }
  void column_round(Cell& x, std::uint64_t round_key) const noexcept {
    x.column = add_mod(x.column, round_function(x.row, round_key, columns), columns);
  }

  template <unsigned kRounds>
  void forward(Cell& x) const noexcept {
    std::uint64_t round_key = k0;
    for (unsigned t = 0; t < kRounds; t += 2) {
      row_round(x, round_key);
      column_round(x, round_key + k1);
      round_key += 2 * k1;
    }
  }

  template <unsigned kRounds>
  void backward(Cell& x) const noexcept {
    std::uint64_t round_key = k0 + (kRounds - 1) * k1;
    for (unsigned t = 0; t < kRounds; t += 2) {
      x.column = subtract_mod(x.column, round_function(x.row, round_key, columns), columns);
      round_key -= k1;
      x.row = subtract_mod(x.row, round_function(x.column, round_key, rows), rows);
      round_key -= k1;
    }
  }

  template <unsigned kRounds>
  std::uint64_t walk(Cell x) const noexcept {
    std::uint64_t v = number(x);
    while (v >= size) {
      forward<kRounds>(x);
      v = number(x);
    }
    return v;
  }

  template <unsigned kRounds>
  std::uint64_t image(std::uint64_t i) const noexcept {
    Cell x = cell(i);
    forward<kRounds>(x);
    return walk<kRounds>(x);
  }

  template <unsigned kRounds>
  std::uint64_t preimage(std::uint64_t v) const noexcept {
    Cell x = cell(v);
    do {
      backward<kRounds>(x);
    } while (number(x) >= size);
    return number(x);
  }
};

[[noreturn]] void throw_out_of_range(std::uint64_t value, std::uint64_t size) {
  throw OutOfRange("no number " + std::to_string(value) + " in a permutation", {},
                   "numbers are in [0, " + std::to_string(size) + ")");
}

}  // namespace

PermutationDomain::PermutationDomain(std::uint64_t n) : size(n) {
  if (n > kMaxSamples) {
    throw InvalidArgument("cannot permute " + std::to_string(n) + " numbers", {},
                          "at most 2^62 are possible");
  }
  if (n <= 64) return;
  rows = ceil_sqrt(n);
  columns = order_detail::ceil_div(n, rows);
  columns_reciprocal = order_detail::reciprocal_of(columns);
  rounds = n < 512 ? 12 : 8;
}

Permutation::Permutation(const PermutationDomain& domain, Hash128 key) noexcept
    : domain_(domain), k0_(key.low), k1_(key.high | 1) {
  if (domain_.rounds == 0) fill_table();
}

void Permutation::fill_table() noexcept {
  const auto n = static_cast<unsigned>(domain_.size);
  for (unsigned i = 0; i < n; ++i) table_[i] = static_cast<std::uint8_t>(i);
  std::uint64_t word = 0;
  std::uint64_t word_key = k0_;
  for (unsigned i = n; i-- > 1;) {
    const unsigned count = n - 1 - i;
    if (count % 2 == 0) {
      word = mix64(word_key);
      word_key += k1_;
    } else {
      word >>= 32;
    }
    const std::uint64_t j = ((word & 0xffffffffU) * (i + 1)) >> 32;
    std::swap(table_[i], table_[j]);
  }
}

std::uint64_t Permutation::operator()(std::uint64_t i) const noexcept {
  if (domain_.rounds == 0) return table_[i];
  const Grid grid{domain_.size, domain_.rows, domain_.columns, domain_.columns_reciprocal,
                  k0_,          k1_};
  return domain_.rounds == 8 ? grid.image<8>(i) : grid.image<12>(i);
}

std::uint64_t Permutation::at(std::uint64_t i) const {
  if (i >= size()) throw_out_of_range(i, size());
  return (*this)(i);
}

std::uint64_t Permutation::inverse(std::uint64_t v) const {
  if (v >= size()) throw_out_of_range(v, size());
  if (domain_.rounds == 0) {
    std::uint64_t i = 0;
    while (table_[i] != v) ++i;
    return i;
  }
  const Grid grid{domain_.size, domain_.rows, domain_.columns, domain_.columns_reciprocal,
                  k0_,          k1_};
  return domain_.rounds == 8 ? grid.preimage<8>(v) : grid.preimage<12>(v);
}

void Permutation::apply(std::span<std::uint64_t> values) const noexcept {
  if (domain_.rounds == 0) {
    for (std::uint64_t& value : values) value = table_[value];
  } else if (domain_.rounds == 8) {
    apply_grid<8>(values);
  } else {
    apply_grid<12>(values);
  }
}

#if defined(__SSE2__)

namespace {

/// Half a round on two values: half = (half + f(round_key, other, range)) mod range. Both halves
/// are below 2^31, so a 64-bit lane whose difference is negative has a high word of all ones.
inline __m128i half_round(__m128i half, __m128i other, __m128i round_key, __m128i range) noexcept {
  const __m128i m1 = _mm_set1_epi64x(static_cast<long long>(kMultiplier1));
  const __m128i m2 = _mm_set1_epi64x(static_cast<long long>(kMultiplier2));
  __m128i y = _mm_add_epi64(_mm_mul_epu32(_mm_xor_si128(other, round_key), m1), round_key);
  y = _mm_mul_epu32(_mm_xor_si128(y, _mm_srli_epi64(y, 32)), m2);
  y = _mm_srli_epi64(_mm_mul_epu32(y, range), 32);
  const __m128i difference = _mm_sub_epi64(_mm_add_epi64(half, y), range);
  const __m128i negative = _mm_shuffle_epi32(difference, _MM_SHUFFLE(3, 3, 1, 1));
  return _mm_add_epi64(difference, _mm_and_si128(negative, range));
}

}  // namespace

template <unsigned kRounds>
void Permutation::apply_grid(std::span<std::uint64_t> values) const noexcept {
  constexpr std::size_t kVectors = 8;  // in flight, to hide the latency of the multiplications
  constexpr std::size_t kBlock = 2 * kVectors;
  const Grid grid{domain_.size, domain_.rows, domain_.columns, domain_.columns_reciprocal,
                  k0_,          k1_};
  const __m128i row_range = _mm_set1_epi64x(static_cast<long long>(grid.rows));
  const __m128i column_range = _mm_set1_epi64x(static_cast<long long>(grid.columns));
  std::size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    alignas(16) std::array<std::uint64_t, kBlock> rows;
    alignas(16) std::array<std::uint64_t, kBlock> columns;
    for (std::size_t j = 0; j < kBlock; ++j) {
      const Cell x = grid.cell(values[i + j]);
      rows[j] = x.row;
      columns[j] = x.column;
    }
    __m128i l[kVectors];
    __m128i r[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      l[v] = _mm_load_si128(reinterpret_cast<const __m128i*>(&rows[2 * v]));
      r[v] = _mm_load_si128(reinterpret_cast<const __m128i*>(&columns[2 * v]));
    }
    std::uint64_t round_key = grid.k0;
    for (unsigned t = 0; t < kRounds; t += 2) {
      const __m128i even_key = _mm_set1_epi64x(static_cast<long long>(round_key));
      for (std::size_t v = 0; v < kVectors; ++v) l[v] = half_round(l[v], r[v], even_key, row_range);
      const std::uint64_t next_key = round_key + grid.k1;
      const __m128i odd_key = _mm_set1_epi64x(static_cast<long long>(next_key));
      for (std::size_t v = 0; v < kVectors; ++v)
        r[v] = half_round(r[v], l[v], odd_key, column_range);
      round_key += 2 * grid.k1;
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      _mm_store_si128(reinterpret_cast<__m128i*>(&rows[2 * v]), l[v]);
      _mm_store_si128(reinterpret_cast<__m128i*>(&columns[2 * v]), r[v]);
    }
    for (std::size_t j = 0; j < kBlock; ++j) {
      values[i + j] = grid.walk<kRounds>({rows[j], columns[j]});
    }
  }
  for (; i < values.size(); ++i) values[i] = grid.image<kRounds>(values[i]);
}

#else

template <unsigned kRounds>
void Permutation::apply_grid(std::span<std::uint64_t> values) const noexcept {
  const Grid grid{domain_.size, domain_.rows, domain_.columns, domain_.columns_reciprocal,
                  k0_,          k1_};
  for (std::uint64_t& value : values) value = grid.image<kRounds>(value);
}

#endif

}  // namespace shardwise
