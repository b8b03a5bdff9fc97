// Resizing kernels for machines that can add up products of bytes in groups of four (AVX-512 with
// VBMI and VNNI). This file has no include guard, because pixel_kernels.cc includes it each time
// that it is compiled for AVX-512 or better. The kernels of that file call these if has_byte_dots()
// returns true.
//
// A weight is split into three signed bytes: low + 256 * mid + 65536 * high. One instruction adds
// the products of four pixels with one kind of byte. At the end the three sums are combined in
// 32-bit integers. The result is bit for bit that of all other kernels.
//
// Vectors have 32 bytes, as in pixel_kernels.cc.

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "decode/pixel_kernels.h"

// Highway's targets for machines with VBMI and VNNI require more CPU features than these kernels
// need.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vbmi,avx512vnni")
namespace shardwise::detail {
namespace HWY_NAMESPACE {

/// True if this machine supports these kernels and byte_dots_are_used() is true.
inline bool has_byte_dots() noexcept {
  static const bool has =
      __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
  return has && byte_dots_are_used().load(std::memory_order_relaxed);
}

HWY_INLINE __m256i load_bytes(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

/// Four weights, each split into bytes. The first weight is in the lowest byte of each word.
struct DotWeights {
  std::uint32_t low = 0;
  std::uint32_t mid = 0;
  std::uint32_t high = 0;

  /// REQUIRES: |weight| < 2^23 - 2^16. A weight of 1.0 is stored as 2^22.
  HWY_INLINE void set(std::size_t place, std::int32_t weight) {
    const auto first = static_cast<std::int8_t>(weight & 0xFF);
    const std::int32_t rest = (weight - first) >> 8;
    const auto second = static_cast<std::int8_t>(rest & 0xFF);
    const std::int32_t third = (rest - second) >> 8;
    const auto shifted = [place](std::int32_t byte) {
      return (static_cast<std::uint32_t>(byte) & 0xFFU) << (8 * place);
    };
    low |= shifted(first);
    mid |= shifted(second);
    high |= shifted(third);
  }
};

/// Eight weighted sums. For rounding, each starts at half of the last bit that is kept.
struct DotSum {
  __m256i low;
  __m256i mid;
  __m256i high;

  HWY_INLINE DotSum()
      : low(_mm256_set1_epi32(kHalf)), mid(_mm256_setzero_si256()), high(_mm256_setzero_si256()) {}
  HWY_INLINE void add(__m256i pixels, __m256i low_weights, __m256i mid_weights,
                      __m256i high_weights) {
    low = _mm256_dpbusd_epi32(low, pixels, low_weights);
    mid = _mm256_dpbusd_epi32(mid, pixels, mid_weights);
    high = _mm256_dpbusd_epi32(high, pixels, high_weights);
  }
  HWY_INLINE __m256i value() const {
    const __m256i upper = _mm256_add_epi32(mid, _mm256_slli_epi32(high, 8));
    return _mm256_add_epi32(low, _mm256_slli_epi32(upper, 8));
  }
};

/// Returns the values of two sums as 16-bit numbers: first all of `first`, then all of `second`.
HWY_INLINE __m256i dot_values(const DotSum& first, const DotSum& second) {
  const __m256i upper_halves =
      _mm256_setr_epi16(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm256_srai_epi16(_mm256_permutex2var_epi16(first.value(), upper_halves, second.value()),
                           kWeightBits - 16);
}

/// Number of rows that are computed together.
constexpr std::size_t kDotRows = 4;
/// Number of rows that are computed group by group, so that their input stays in the CPU cache.
constexpr std::size_t kDotBlock = 32;
static_assert(kRowGroup % kDotRows == 0);
/// Maximum number of steps whose weights stay in registers from row to row.
constexpr std::size_t kMaxKept = 3;

/// The contribution of four taps to eight bytes of the result, one byte per lane. It consists of
/// the pixels' positions among 32 bytes of the row, and of their weights.
struct DotStep {
  std::uint32_t places[8];
  std::uint32_t low[8];
  std::uint32_t mid[8];
  std::uint32_t high[8];
  std::size_t begin[2];  ///< row offsets of the lower and the upper 16 bytes

  void set_lane(std::size_t lane, std::size_t place, const DotWeights& weights) {
    // In RGB, the same channel of neighbouring pixels is three bytes apart.
    places[lane] = static_cast<std::uint32_t>(place) * 0x01010101U + 0x09060300U;
    low[lane] = weights.low;
    mid[lane] = weights.mid;
    high[lane] = weights.high;
  }
};

/// Four taps of an output pixel.
struct DotTaps {
  DotWeights weights;
  std::size_t first = 0;  ///< first input pixel
  std::size_t count = 0;  ///< number of taps up to the last nonzero weight
};

/// The horizontal resize as a list of steps. Result bytes are computed in groups. If the inputs of
/// eight neighbouring result bytes are within 32 bytes of the row, a group computes these eight
/// bytes. Otherwise it computes two pixels from 16 bytes each, and two lanes are unused.
class DotPlan {
 public:
  /// Uses the plan that is cached in `scratch`, or creates it there.
  DotPlan(const RowTaps& taps, std::size_t in_width, AcrossScratch& scratch)
      : row_bytes_(in_width * 3),
        out_bytes_(taps.num_outputs * 3),
        num_steps_((taps.num_taps + 3) / 4) {
    const std::size_t most_groups = out_bytes_ / kPairBytes + 1;
    scratch.bytes.resize(num_steps_ *
                         (most_groups * sizeof(DotStep) + taps.num_outputs * sizeof(DotTaps)));
    steps_ = reinterpret_cast<DotStep*>(scratch.bytes.data());
    taps_ = reinterpret_cast<DotTaps*>(steps_ + most_groups * num_steps_);
    is_close_ = scratch.is_close;
    if (scratch.has_plan) return;
    for (std::size_t x = 0; x < taps.num_outputs; ++x) fill_taps(taps, x);
    is_close_ = row_bytes_ >= kCloseBytes && fill_close();
    if (!is_close_) fill_pairs();
    scratch.is_close = is_close_;
    scratch.has_plan = true;
  }

  /// True if a row of this width is long enough to be read 16 bytes at a time.
  static bool fits(std::size_t in_width) { return in_width * 3 >= kHalfBytes; }

  [[nodiscard]] bool is_close() const { return is_close_; }
  [[nodiscard]] std::size_t num_steps() const { return num_steps_; }
  [[nodiscard]] std::size_t num_groups() const {
    const std::size_t bytes = is_close_ ? kLanes : kPairBytes;
    return (out_bytes_ + bytes - 1) / bytes;
  }
  [[nodiscard]] const DotStep* steps(std::size_t group) const {
    return steps_ + group * num_steps_;
  }
  /// Returns the offset of a group's bytes in the result. The last group may overlap the one
  /// before.
  [[nodiscard]] std::size_t output(std::size_t group) const {
    return is_close_ ? std::min(group * kLanes, out_bytes_ - kLanes) : group * kPairBytes;
  }

 private:
  static constexpr std::size_t kLanes = 8;
  static constexpr std::size_t kPairBytes = 6;
  static constexpr std::size_t kCloseBytes = 32;
  static constexpr std::size_t kHalfBytes = 16;

  void fill_taps(const RowTaps& taps, std::size_t x) {
    const std::uint32_t* pair = taps.low_high.data() + x * taps.pairs() * 2;
    for (std::size_t step = 0; step < num_steps_; ++step) {
      DotTaps four;
      four.first = taps.first[x] + 4 * step;
      const std::size_t most = std::min<std::size_t>(4, taps.num_taps - 4 * step);
      for (std::size_t k = 0; k < most; ++k) {
        const std::uint32_t* both = pair + (4 * step + k) / 2 * 2;
        const std::int32_t weight = joined_weight(both[0], both[1], k % 2 != 0);
        if (weight == 0) continue;
        four.weights.set(k, weight);
        four.count = k + 1;
      }
      taps_[x * num_steps_ + step] = four;
    }
  }

  bool fill_close() {
    is_close_ = true;
    for (std::size_t group = 0; group < num_groups(); ++group) {
      for (std::size_t step = 0; step < num_steps_; ++step) {
        if (!fill_close(output(group), step, steps_[group * num_steps_ + step])) return false;
      }
    }
    return true;
  }

  bool fill_close(std::size_t out, std::size_t number, DotStep& step) {
    std::size_t begin = row_bytes_ - kCloseBytes;
    std::size_t end = 0;
    for (std::size_t lane = 0, x = out / 3, c = out % 3; lane < kLanes; ++lane) {
      const DotTaps& four = taps_[x * num_steps_ + number];
      if (four.count > 0) {
        begin = std::min(begin, four.first * 3 + c);
        end = std::max(end, (four.first + four.count - 1) * 3 + c + 1);
      }
      if (++c == 3) c = 0, ++x;
    }
    if (end > begin + kCloseBytes) return false;
    step.begin[0] = begin;
    for (std::size_t lane = 0, x = out / 3, c = out % 3; lane < kLanes; ++lane) {
      const DotTaps& four = taps_[x * num_steps_ + number];
      step.set_lane(lane, four.first * 3 + c - begin, four.weights);
      if (++c == 3) c = 0, ++x;
    }
    return true;
  }

  void fill_pairs() {
    for (std::size_t group = 0; group < num_groups(); ++group) {
      for (std::size_t number = 0; number < num_steps_; ++number) {
        DotStep& step = steps_[group * num_steps_ + number];
        for (std::size_t half = 0; half < 2; ++half) {
          const DotTaps& four = taps_[(group * 2 + half) * num_steps_ + number];
          step.begin[half] = std::min(four.first * 3, row_bytes_ - kHalfBytes);
          const std::size_t place = half * kHalfBytes + four.first * 3 - step.begin[half];
          for (std::size_t c = 0; c < 3; ++c) {
            step.set_lane(half * 3 + c, place + c, four.weights);
          }
        }
        for (std::size_t lane = kPairBytes; lane < kLanes; ++lane) step.set_lane(lane, 0, {});
      }
    }
  }

  std::size_t row_bytes_;
  std::size_t out_bytes_;
  std::size_t num_steps_;
  bool is_close_ = false;
  DotStep* steps_;
  DotTaps* taps_;
};

/// Stores eight bytes to each of four rows.
HWY_INLINE void store_dots(const DotSum& first, const DotSum& second, const DotSum& third,
                           const DotSum& fourth, std::uint8_t* out, std::size_t out_stride) {
  const __m256i bytes = _mm256_packus_epi16(dot_values(first, second), dot_values(third, fourth));
  const __m128d even = _mm_castsi128_pd(_mm256_castsi256_si128(bytes));
  const __m128d odd = _mm_castsi128_pd(_mm256_extracti128_si256(bytes, 1));
  // Storing each half as a double takes only one instruction.
  const auto store = [&](std::size_t y, double half) {
    std::memcpy(out + y * out_stride, &half, sizeof half);
  };
  store(0, even[0]);
  store(1, odd[0]);
  store(2, even[1]);
  store(3, odd[1]);
}

/// Loads the 32 bytes of a row that a step needs.
template <bool kIsClose>
HWY_INLINE __m256i dot_bytes(const std::uint8_t* row, std::size_t lower, std::size_t upper) {
  if constexpr (kIsClose) return load_bytes(row + lower);
  const auto half = [row](std::size_t begin) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + begin));
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(half(lower)), half(upper), 1);
}

/// Computes a group's bytes for `num_rows` rows, a multiple of four.
/// @param kKept  number of steps whose weights stay in registers: min(num_steps, kMaxKept).
template <bool kIsClose, std::size_t kKept>
void dot_make_group(const std::uint8_t* in, std::size_t in_stride, std::size_t num_rows,
                    const DotStep* steps, std::size_t num_steps, std::uint8_t* out,
                    std::size_t out_stride) {
  __m256i places[kKept];
  __m256i low[kKept];
  __m256i mid[kKept];
  __m256i high[kKept];
  std::size_t lower[kKept];
  std::size_t upper[kKept];
  HWY_UNROLL(3)
  for (std::size_t i = 0; i < kKept; ++i) {
    places[i] = load_bytes(steps[i].places);
    low[i] = load_bytes(steps[i].low);
    mid[i] = load_bytes(steps[i].mid);
    high[i] = load_bytes(steps[i].high);
    lower[i] = steps[i].begin[0];
    upper[i] = steps[i].begin[1];
  }
  const auto sum_of = [&](const std::uint8_t* row) {
    DotSum sum;
    HWY_UNROLL(3)
    for (std::size_t i = 0; i < kKept; ++i) {
      const __m256i bytes = dot_bytes<kIsClose>(row, lower[i], upper[i]);
      sum.add(_mm256_permutexvar_epi8(places[i], bytes), low[i], mid[i], high[i]);
    }
    if constexpr (kKept == kMaxKept) {
      for (std::size_t i = kKept; i < num_steps; ++i) {
        const DotStep& step = steps[i];
        const __m256i bytes = dot_bytes<kIsClose>(row, step.begin[0], step.begin[1]);
        sum.add(_mm256_permutexvar_epi8(load_bytes(step.places), bytes), load_bytes(step.low),
                load_bytes(step.mid), load_bytes(step.high));
      }
    }
    return sum;
  };
  for (std::size_t y = 0; y < num_rows; y += kDotRows) {
    store_dots(sum_of(in), sum_of(in + in_stride), sum_of(in + 2 * in_stride),
               sum_of(in + 3 * in_stride), out, out_stride);
    in += kDotRows * in_stride;
    out += kDotRows * out_stride;
  }
}

/// Computes all groups' bytes for `num_rows` rows, a multiple of four.
template <bool kIsClose, std::size_t kKept>
void dot_resize_block(const std::uint8_t* in, std::size_t in_stride, std::size_t num_rows,
                      const DotPlan& plan, std::uint8_t* out, std::size_t out_stride) {
  const std::size_t num_groups = plan.num_groups();
  for (std::size_t group = 0; group < num_groups; ++group) {
    dot_make_group<kIsClose, kKept>(in, in_stride, num_rows, plan.steps(group), plan.num_steps(),
                                    out + plan.output(group), out_stride);
  }
}

template <bool kIsClose, std::size_t kKept>
void dot_resize_rows(const std::uint8_t* in, std::size_t in_stride, std::size_t num_rows,
                     const DotPlan& plan, std::uint8_t* out, std::size_t out_stride) {
  const auto resize = [&](std::size_t y, std::size_t stride, std::size_t count) {
    dot_resize_block<kIsClose, kKept>(in + y * in_stride, stride, count, plan, out + y * out_stride,
                                      out_stride);
  };
  if (num_rows < kDotRows) {
    // Compute each row four times. The extra copies are overwritten by later rows, or are written
    // after the last row.
    for (std::size_t y = 0; y < num_rows; ++y) resize(y, 0, kDotRows);
    return;
  }
  const std::size_t whole = num_rows / kDotRows * kDotRows;
  for (std::size_t y = 0; y < whole; y += kDotBlock) {
    resize(y, in_stride, std::min(kDotBlock, whole - y));
  }
  // Computes some rows again.
  if (whole < num_rows) resize(num_rows - kDotRows, in_stride, kDotRows);
}

/// Implements resize_across(). Returns false if the rows are too short for these kernels.
inline bool dot_resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                              std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                              std::size_t out_stride, AcrossScratch& scratch) {
  if (!DotPlan::fits(in_width)) return false;
  const DotPlan plan(taps, in_width, scratch);
  constexpr decltype(&dot_resize_rows<true, 1>) kClose[kMaxKept] = {
      dot_resize_rows<true, 1>, dot_resize_rows<true, 2>, dot_resize_rows<true, 3>};
  constexpr decltype(&dot_resize_rows<true, 1>) kPairs[kMaxKept] = {
      dot_resize_rows<false, 1>, dot_resize_rows<false, 2>, dot_resize_rows<false, 3>};
  const std::size_t kept = std::min(plan.num_steps(), kMaxKept);
  (plan.is_close() ? kClose : kPairs)[kept - 1](in, in_stride, num_rows, plan, out, out_stride);
  return true;
}

/// Four neighbouring rows and their weights.
struct RowQuad {
  const std::uint8_t* rows[4];
  DotWeights weights;
};

constexpr std::size_t kMaxRowQuads = 8;

/// The weights of a RowQuad, repeated in every lane.
struct DotFactors {
  __m256i low;
  __m256i mid;
  __m256i high;

  HWY_INLINE explicit DotFactors(const DotWeights& weights)
      : low(in_every_lane(weights.low)),
        mid(in_every_lane(weights.mid)),
        high(in_every_lane(weights.high)) {}

 private:
  static HWY_INLINE __m256i in_every_lane(std::uint32_t bytes) {
    return _mm256_set1_epi32(static_cast<std::int32_t>(bytes));
  }
};

/// The sums of 32 columns. Their order is such that packing them twice gives the columns in order.
struct ColumnSums {
  DotSum first;
  DotSum second;
  DotSum third;
  DotSum fourth;

  // The implicit constructor would lack these functions' instruction sets.
  HWY_INLINE ColumnSums() {}
  HWY_INLINE void add(const RowQuad& quad, std::size_t at) {
    const DotFactors factors(quad.weights);
    const auto row = [&](std::size_t k) { return load_bytes(quad.rows[k] + at); };
    const auto add_to = [&](DotSum& sum, __m256i pixels) {
      sum.add(pixels, factors.low, factors.mid, factors.high);
    };
    const __m256i below_first = _mm256_unpacklo_epi8(row(0), row(1));
    const __m256i above_first = _mm256_unpackhi_epi8(row(0), row(1));
    const __m256i below_second = _mm256_unpacklo_epi8(row(2), row(3));
    const __m256i above_second = _mm256_unpackhi_epi8(row(2), row(3));
    add_to(first, _mm256_unpacklo_epi16(below_first, below_second));
    add_to(second, _mm256_unpackhi_epi16(below_first, below_second));
    add_to(third, _mm256_unpacklo_epi16(above_first, above_second));
    add_to(fourth, _mm256_unpackhi_epi16(above_first, above_second));
  }
  HWY_INLINE __m256i bytes() const {
    const auto value = [](const DotSum& sum) {
      return _mm256_srai_epi32(sum.value(), kWeightBits);
    };
    return _mm256_packus_epi16(_mm256_packs_epi32(value(first), value(second)),
                               _mm256_packs_epi32(value(third), value(fourth)));
  }
};

/// @param kKept  number of quads that are added without a loop: min(num_quads, kMaxKept).
template <std::size_t kKept>
void dot_blend_quads(const RowQuad* quads, std::size_t num_quads, std::size_t size,
                     std::uint8_t* out) {
  constexpr std::size_t kBytes = sizeof(__m256i);
  const std::size_t last = size < kBytes ? 0 : size - kBytes;
  for (std::size_t i = 0; i < size; i += kBytes) {
    const std::size_t at = std::min(i, last);
    ColumnSums sums;
    HWY_UNROLL(3)
    for (std::size_t q = 0; q < kKept; ++q) sums.add(quads[q], at);
    if constexpr (kKept == kMaxKept) {
      for (std::size_t q = kKept; q < num_quads; ++q) sums.add(quads[q], at);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), sums.bytes());
  }
}

/// Implements blend_rows() for at most 32 rows. Returns false if there are more.
inline bool dot_blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size,
                           std::uint8_t* out) {
  const std::size_t num_quads = (num_pairs + 1) / 2;
  if (num_quads > kMaxRowQuads) return false;
  RowQuad quads[kMaxRowQuads];
  for (std::size_t i = 0; i < 2 * num_quads; ++i) {
    const RowPair& pair = pairs[std::min(i, num_pairs - 1)];
    RowQuad& quad = quads[i / 2];
    for (std::size_t k = 0; k < 2; ++k) {
      const std::size_t place = i % 2 * 2 + k;
      quad.rows[place] = pair.rows[k];
      // The last quad may have fewer than four rows; its remaining weights stay 0.
      if (i < num_pairs) quad.weights.set(place, joined_weight(pair.low, pair.high, k != 0));
    }
  }
  constexpr decltype(&dot_blend_quads<1>) kByQuads[kMaxKept] = {
      dot_blend_quads<1>, dot_blend_quads<2>, dot_blend_quads<3>};
  kByQuads[std::min(num_quads, kMaxKept) - 1](quads, num_quads, size, out);
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace shardwise::detail
HWY_POP_ATTRIBUTES
