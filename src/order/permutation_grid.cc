#include "order/permutation_grid.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/assert.h"

namespace shardwise::detail {

namespace {

/// Bit i is set if value i of a block is not yet below the size, so that the rounds must be applied
/// again.
using Unfinished = std::uint64_t;

template <unsigned kRounds>
void apply_portable(const Grid& grid, std::span<std::uint64_t> values) noexcept {
  for (std::uint64_t& value : values) value = grid.image<kRounds>(value);
}

#if defined(__x86_64__)

/// Applies all rounds to blocks of `values`. Blocks hide the latency of multiplications. Values
/// that are then not below the size (a few percent in a small grid) are collected until they fill a
/// block. A single value would cost about as much as a small block. Values at the end that fill no
/// block are collected in the same way. A large block is at most twice as large as a small block.
template <unsigned kRounds, typename Path>
void apply_in_blocks(const Grid& grid, std::span<std::uint64_t> values) noexcept {
  constexpr std::size_t kLarge = Path::kLargeBlock;
  constexpr std::size_t kSmall = Path::kSmallBlock;
  constexpr std::size_t kFewValues = 3;  // up to this many values are computed faster one by one
  std::array<std::uint64_t*, kLarge + kSmall> waiting;
  std::size_t num_waiting = 0;
  const auto do_waiting = [&] {
    std::array<std::uint64_t, kSmall> gathered{};
    const std::size_t count = std::min(num_waiting, kSmall);
    std::uint64_t** const first = &waiting[num_waiting - count];
    for (std::size_t i = 0; i < count; ++i) gathered[i] = *first[i];
    Unfinished unfinished = Path::template block<kRounds, kSmall>(grid, gathered.data());
    for (std::size_t i = 0; i < count; ++i) *first[i] = gathered[i];
    num_waiting -= count;
    for (unfinished &= (Unfinished{1} << count) - 1; unfinished != 0; unfinished &= unfinished - 1)
      waiting[num_waiting++] = first[__builtin_ctzll(unfinished)];
  };

  const auto do_block = [&](std::uint64_t* block, Unfinished unfinished) {
    for (; unfinished != 0; unfinished &= unfinished - 1)
      waiting[num_waiting++] = block + __builtin_ctzll(unfinished);
    while (num_waiting >= kSmall) do_waiting();  // NOLINT(bugprone-infinite-loop): it changes it
  };

  std::uint64_t* next = values.data();
  std::uint64_t* const end = next + values.size();
  for (; end - next >= std::ptrdiff_t{kLarge}; next += kLarge)
    do_block(next, Path::template block<kRounds, kLarge>(grid, next));
  if (end - next >= std::ptrdiff_t{kSmall}) {
    do_block(next, Path::template block<kRounds, kSmall>(grid, next));
    next += kSmall;
  }
  for (; next != end; ++next) waiting[num_waiting++] = next;
  while (num_waiting > kFewValues) do_waiting();  // NOLINT(bugprone-infinite-loop): it changes it
  for (; num_waiting > 0; --num_waiting) {
    std::uint64_t& value = *waiting[num_waiting - 1];
    value = grid.image<kRounds>(value);
  }
}

/// Computes half = (half + f(round_key, other, range)) mod range for two values. Both halves are
/// below 2^31, so a 64-bit lane whose difference is negative has a high word of all ones.
inline __m128i half_round(__m128i half, __m128i other, __m128i round_key, __m128i range) noexcept {
  const __m128i m1 = _mm_set1_epi64x(static_cast<long long>(kGridMultiplier1));
  const __m128i m2 = _mm_set1_epi64x(static_cast<long long>(kGridMultiplier2));
  __m128i y = _mm_add_epi64(_mm_mul_epu32(_mm_xor_si128(other, round_key), m1), round_key);
  y = _mm_mul_epu32(_mm_xor_si128(y, _mm_srli_epi64(y, 32)), m2);
  y = _mm_srli_epi64(_mm_mul_epu32(y, range), 32);
  const __m128i difference = _mm_sub_epi64(_mm_add_epi64(half, y), range);
  const __m128i negative = _mm_shuffle_epi32(difference, _MM_SHUFFLE(3, 3, 1, 1));
  return _mm_add_epi64(difference, _mm_and_si128(negative, range));
}

struct Sse2 {
  static constexpr std::size_t kLargeBlock = 16;
  static constexpr std::size_t kSmallBlock = 16;

  /// Replaces each of kValues values by the number of its cell after the rounds.
  template <unsigned kRounds, std::size_t kValues>
  static Unfinished block(const Grid& grid, std::uint64_t* values) noexcept {
    constexpr std::size_t kVectors = kValues / 2;
    alignas(16) std::array<std::uint64_t, kValues> rows;
    alignas(16) std::array<std::uint64_t, kValues> columns;
    for (std::size_t j = 0; j < kValues; ++j) {
      const Cell x = grid.cell(values[j]);
      rows[j] = x.row;
      columns[j] = x.column;
    }
    __m128i l[kVectors];
    __m128i r[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      l[v] = _mm_load_si128(reinterpret_cast<const __m128i*>(&rows[2 * v]));
      r[v] = _mm_load_si128(reinterpret_cast<const __m128i*>(&columns[2 * v]));
    }
    const __m128i row_range = _mm_set1_epi64x(static_cast<long long>(grid.rows));
    const __m128i column_range = _mm_set1_epi64x(static_cast<long long>(grid.columns));
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
    // Computes the number of each cell, and the sign of (size - 1 - number). Both terms are below
    // 2^63.
    const __m128i last = _mm_set1_epi64x(static_cast<long long>(grid.size - 1));
    Unfinished unfinished = 0;
    for (std::size_t v = 0; v < kVectors; ++v) {
      const __m128i number = _mm_add_epi64(_mm_mul_epu32(l[v], column_range), r[v]);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(&values[2 * v]), number);
      const int too_large = _mm_movemask_pd(_mm_castsi128_pd(_mm_sub_epi64(last, number)));
      unfinished |= static_cast<Unfinished>(too_large) << (2 * v);
    }
    return unfinished;
  }
};

#define SHARDWISE_AVX2 __attribute__((target("avx2")))

/// half_round() for four values. The sum of the halves is below 2^32. Therefore the sum minus
/// `range` (mod 2^32) exceeds the sum if and only if the difference is negative.
SHARDWISE_AVX2 inline __m256i half_round(__m256i half, __m256i other, __m256i round_key,
                                         __m256i range) noexcept {
  const __m256i m1 = _mm256_set1_epi64x(static_cast<long long>(kGridMultiplier1));
  const __m256i m2 = _mm256_set1_epi64x(static_cast<long long>(kGridMultiplier2));
  __m256i y = _mm256_add_epi64(_mm256_mul_epu32(_mm256_xor_si256(other, round_key), m1), round_key);
  y = _mm256_mul_epu32(_mm256_xor_si256(y, _mm256_srli_epi64(y, 32)), m2);
  y = _mm256_srli_epi64(_mm256_mul_epu32(y, range), 32);
  const __m256i sum = _mm256_add_epi32(half, y);
  return _mm256_min_epu32(sum, _mm256_sub_epi32(sum, range));
}

/// Computes the cells of four numbers below 2^63 by division in floating point.
///
/// A quotient is below 2^32, and the error of its estimate is less than 2^-18, for any rounding of
/// the operations. The code adds 2^-10 to the estimate, so its floor is the quotient or one more.
/// If it is one more, the remainder is negative, but not below -columns >= -2^31. The code corrects
/// quotient and remainder exactly.
SHARDWISE_AVX2 inline void cells(__m256i i, __m256i columns, __m256d inverse, __m256i& l,
                                 __m256i& r) noexcept {
  const __m256d two_52 = _mm256_set1_pd(0x1p52);
  const __m256d two_84 = _mm256_set1_pd(0x1p84);
  // Puts each half of a number, which is below 2^32, into the low bits of a double with fixed
  // exponent: 2^52 + low, 2^84 + high.
  const __m256i low = _mm256_blend_epi32(i, _mm256_castpd_si256(two_52), 0xaa);
  const __m256i high = _mm256_or_si256(_mm256_srli_epi64(i, 32), _mm256_castpd_si256(two_84));
  const __m256d number =
      _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), _mm256_set1_pd(0x1p84 + 0x1p52)),
                    _mm256_castsi256_pd(low));
  const __m256d estimate =
      _mm256_floor_pd(_mm256_add_pd(_mm256_mul_pd(number, inverse), _mm256_set1_pd(0x1p-10)));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i quotient =
      _mm256_blend_epi32(_mm256_castpd_si256(_mm256_add_pd(estimate, two_52)), zero, 0xaa);
  const __m256i remainder = _mm256_sub_epi64(i, _mm256_mul_epu32(quotient, columns));
  // A negative remainder has the high word -1, and a low word of at least 2^31.
  l = _mm256_add_epi32(quotient, _mm256_srli_epi64(remainder, 32));
  r = _mm256_min_epu32(remainder, _mm256_add_epi32(remainder, columns));
  r = _mm256_blend_epi32(r, zero, 0xaa);
}

struct Avx2 {
  static constexpr std::size_t kLargeBlock = 32;
  static constexpr std::size_t kSmallBlock = 16;

  template <unsigned kRounds, std::size_t kValues>
  SHARDWISE_AVX2 static Unfinished block(const Grid& grid, std::uint64_t* values) noexcept {
    constexpr std::size_t kVectors = kValues / 4;
    const __m256i row_range = _mm256_set1_epi64x(static_cast<long long>(grid.rows));
    const __m256i column_range = _mm256_set1_epi64x(static_cast<long long>(grid.columns));
    const __m256d inverse = _mm256_set1_pd(1.0 / static_cast<double>(grid.columns));
    __m256i l[kVectors];
    __m256i r[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&values[4 * v]));
      cells(i, column_range, inverse, l[v], r[v]);
    }
    std::uint64_t round_key = grid.k0;
    for (unsigned t = 0; t < kRounds; t += 2) {
      const __m256i even_key = _mm256_set1_epi64x(static_cast<long long>(round_key));
      for (std::size_t v = 0; v < kVectors; ++v) l[v] = half_round(l[v], r[v], even_key, row_range);
      const std::uint64_t next_key = round_key + grid.k1;
      const __m256i odd_key = _mm256_set1_epi64x(static_cast<long long>(next_key));
      for (std::size_t v = 0; v < kVectors; ++v)
        r[v] = half_round(r[v], l[v], odd_key, column_range);
      round_key += 2 * grid.k1;
    }
    const __m256i last = _mm256_set1_epi64x(static_cast<long long>(grid.size - 1));
    Unfinished unfinished = 0;
    for (std::size_t v = 0; v < kVectors; ++v) {
      const __m256i number = _mm256_add_epi64(_mm256_mul_epu32(l[v], column_range), r[v]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(&values[4 * v]), number);
      const int too_large = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_sub_epi64(last, number)));
      unfinished |= static_cast<Unfinished>(too_large) << (4 * v);
    }
    return unfinished;
  }
};

#undef SHARDWISE_AVX2

#endif

template <unsigned kRounds>
void apply_rounds(BulkPath path, const Grid& grid, std::span<std::uint64_t> values) noexcept {
#if defined(__x86_64__)
  if (path == BulkPath::kAvx2) {
    apply_in_blocks<kRounds, Avx2>(grid, values);
    return;
  }
  if (path == BulkPath::kSse2) {
    apply_in_blocks<kRounds, Sse2>(grid, values);
    return;
  }
#else
  static_cast<void>(path);
#endif
  apply_portable<kRounds>(grid, values);
}

BulkPath find_fastest_bulk_path() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();  // needed if called before main()
  return __builtin_cpu_supports("avx2") ? BulkPath::kAvx2 : BulkPath::kSse2;
#else
  return BulkPath::kPortable;
#endif
}

}  // namespace

BulkPath fastest_bulk_path() noexcept {
  static const BulkPath path = find_fastest_bulk_path();
  return path;
}

bool is_supported(BulkPath path) noexcept { return path <= fastest_bulk_path(); }

void apply_grid(BulkPath path, const Grid& grid, unsigned rounds,
                std::span<std::uint64_t> values) noexcept {
  SHARDWISE_ASSERT_HOT(is_supported(path));
  SHARDWISE_ASSERT_HOT(std::ranges::all_of(values, [&](auto v) { return v < grid.size; }));
  if (rounds == 8) {
    apply_rounds<8>(path, grid, values);
  } else {
    apply_rounds<12>(path, grid, values);
  }
}

}  // namespace shardwise::detail
