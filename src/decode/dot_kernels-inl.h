#pragma once

// Resizing on machines that add products of bytes four at a time (AVX-512 with VBMI and VNNI).
// Included by pixel_kernels.cc when it is compiled for AVX-512, whose kernels call these where
// has_byte_dots() says so.
//
// A weight is split into three signed bytes, low + 256 * mid + 65536 * high, so that one
// instruction adds four pixels' products with one of them; the three sums are joined at the end, in
// integers of 32 bits, and give the bits that all other kernels give.

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "decode/pixel_kernels.h"

// Highway's own target for such machines says "avxvnni", which some of them have not.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vbmi,avx512vnni")
namespace shardwise::detail {
namespace HWY_NAMESPACE {

/// Whether this machine has what these kernels need.
inline bool has_byte_dots() noexcept {
  static const bool has =
      __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
  return has && byte_dots_are_used().load(std::memory_order_relaxed);
}

/// Four weights by their bytes, the first one's lowest.
struct DotWeights {
  std::uint32_t low = 0;
  std::uint32_t mid = 0;
  std::uint32_t high = 0;

  /// REQUIRES: |weight| < 2^23 - 2^16: a weight is 2^22 where it is 1.
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

/// Sixteen weighted sums, with half of the last place that is kept.
struct DotSum {
  __m512i low;
  __m512i mid;
  __m512i high;

  HWY_INLINE DotSum()
      : low(_mm512_set1_epi32(kHalf)), mid(_mm512_setzero_si512()), high(_mm512_setzero_si512()) {}
  HWY_INLINE void add(__m512i pixels, __m512i low_weights, __m512i mid_weights,
                      __m512i high_weights) {
    low = _mm512_dpbusd_epi32(low, pixels, low_weights);
    mid = _mm512_dpbusd_epi32(mid, pixels, mid_weights);
    high = _mm512_dpbusd_epi32(high, pixels, high_weights);
  }
  HWY_INLINE __m512i value() const {
    const __m512i upper = _mm512_add_epi32(mid, _mm512_slli_epi32(high, 8));
    return _mm512_srai_epi32(_mm512_add_epi32(low, _mm512_slli_epi32(upper, 8)), kWeightBits);
  }
};

/// Outputs that are made together, of which each channel takes a lane: one is left over.
constexpr std::size_t kDotOutputs = 5;
/// Times four: the taps of an output at most.
constexpr std::size_t kMostDotQuads = 3;
/// Rows between which the weights of a group stay in registers; their input stays in the cache.
constexpr std::size_t kDotRows = 16;

/// Five outputs of each row, from 64 bytes of it: where their pixels lie in those, and weights.
template <std::size_t kQuads>
struct DotGroup {
  std::uint32_t places[kQuads][16];
  std::uint32_t low[kQuads][16];
  std::uint32_t mid[kQuads][16];
  std::uint32_t high[kQuads][16];

  void set(const RowTaps& taps, std::size_t x, std::size_t begin) {
    std::memset(this, 0, sizeof *this);
    for (std::size_t i = 0; i < kDotOutputs; ++i) {
      const std::uint32_t* weights = taps.low_high.data() + (x + i) * taps.pairs() * 2;
      const std::size_t first = (taps.first[x + i] - begin) * 3;
      for (std::size_t quad = 0; quad < kQuads; ++quad) {
        DotWeights bytes;
        std::uint32_t place = 0;
        for (std::size_t k = 0; k < 4; ++k) {
          const std::size_t tap = 4 * quad + k;
          if (tap >= taps.num_taps) break;
          const std::uint32_t* pair = weights + tap / 2 * 2;
          bytes.set(k, joined_weight(pair[0], pair[1], tap % 2 != 0));
          place |= static_cast<std::uint32_t>(first + 3 * tap) << (8 * k);
        }
        for (std::uint32_t channel = 0; channel < 3; ++channel) {
          const std::size_t lane = 3 * i + channel;
          places[quad][lane] = place + channel * 0x01010101U;
          low[quad][lane] = bytes.low;
          mid[quad][lane] = bytes.mid;
          high[quad][lane] = bytes.high;
        }
      }
    }
  }

  void make(const std::uint8_t* in, std::size_t in_stride, __mmask64 inside, std::size_t num_rows,
            std::uint8_t* out, std::size_t out_stride) const {
    const __m512i zero = _mm512_setzero_si512();
    for (std::size_t y = 0; y < num_rows; ++y, in += in_stride, out += out_stride) {
      const __m512i bytes = _mm512_maskz_loadu_epi8(inside, in);
      DotSum sum;
      for (std::size_t quad = 0; quad < kQuads; ++quad) {
        const __m512i pixels = _mm512_permutexvar_epi8(_mm512_loadu_si512(places[quad]), bytes);
        sum.add(pixels, _mm512_loadu_si512(low[quad]), _mm512_loadu_si512(mid[quad]),
                _mm512_loadu_si512(high[quad]));
      }
      const __m512i values = _mm512_max_epi32(sum.value(), zero);
      _mm_mask_storeu_epi8(out, 0x7FFF, _mm512_cvtusepi32_epi8(values));
    }
  }
};

/// The leftmost pixel that a group of outputs needs.
inline std::size_t dot_begin(const RowTaps& taps, std::size_t x) {
  return std::min(taps.first[x], taps.first[x + kDotOutputs - 1]);
}

inline std::size_t num_dot_groups(const RowTaps& taps) {
  return (taps.num_outputs + kDotOutputs - 1) / kDotOutputs;
}

/// The first output of a group; the last one begins before the end of its neighbour.
inline std::size_t dot_output(const RowTaps& taps, std::size_t group) {
  return std::min(group * kDotOutputs, taps.num_outputs - kDotOutputs);
}

template <std::size_t kQuads>
void dot_resize_rows(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                     std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                     std::size_t out_stride, std::vector<std::uint8_t>& scratch) {
  using Group = DotGroup<kQuads>;
  const std::size_t num_groups = num_dot_groups(taps);
  scratch.resize((num_groups + 1) * sizeof(Group));
  auto* const groups =
      reinterpret_cast<Group*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  for (std::size_t i = 0; i < num_groups; ++i) {
    const std::size_t x = dot_output(taps, i);
    new (groups + i) Group;
    groups[i].set(taps, x, dot_begin(taps, x));
  }
  for (std::size_t y = 0; y < num_rows; y += kDotRows) {
    const std::size_t count = std::min(kDotRows, num_rows - y);
    for (std::size_t i = 0; i < num_groups; ++i) {
      const std::size_t x = dot_output(taps, i);
      const std::size_t begin = dot_begin(taps, x);
      const std::size_t bytes = (in_width - begin) * 3;
      const __mmask64 inside = bytes >= 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1;
      groups[i].make(in + y * in_stride + begin * 3, in_stride, inside, count,
                     out + y * out_stride + 3 * x, out_stride);
    }
  }
}

/// resize_across(), where five outputs' pixels lie within 64 bytes; false if they do not.
inline bool dot_resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                              std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                              std::size_t out_stride, std::vector<std::uint8_t>& scratch) {
  if (taps.num_outputs < kDotOutputs || taps.num_taps > 4 * kMostDotQuads) {
    return false;
  }
  for (std::size_t i = 0; i < num_dot_groups(taps); ++i) {
    const std::size_t x = dot_output(taps, i);
    const std::size_t end = std::max(taps.first[x], taps.first[x + kDotOutputs - 1]);
    if ((end + taps.num_taps - dot_begin(taps, x)) * 3 > 64) return false;
  }
  constexpr decltype(&dot_resize_rows<1>) kByQuads[kMostDotQuads] = {
      dot_resize_rows<1>, dot_resize_rows<2>, dot_resize_rows<3>};
  kByQuads[(taps.num_taps - 1) / 4](in, in_stride, in_width, num_rows, taps, out, out_stride,
                                    scratch);
  return true;
}

/// Four neighbouring rows and their weights.
struct RowQuad {
  const std::uint8_t* rows[4];
  DotWeights weights;
};

constexpr std::size_t kMostRowQuads = 8;

HWY_INLINE void dot_blend_vector(const RowQuad* quads, std::size_t num_quads, std::size_t at,
                                 std::uint8_t* out) {
  DotSum sums[4];
  for (std::size_t i = 0; i < num_quads; ++i) {
    const RowQuad& quad = quads[i];
    const auto row = [&](std::size_t k) { return _mm512_loadu_si512(quad.rows[k] + at); };
    const auto word = [](std::uint32_t bytes) {
      return _mm512_set1_epi32(static_cast<std::int32_t>(bytes));
    };
    const __m512i below_first = _mm512_unpacklo_epi8(row(0), row(1));
    const __m512i above_first = _mm512_unpackhi_epi8(row(0), row(1));
    const __m512i below_second = _mm512_unpacklo_epi8(row(2), row(3));
    const __m512i above_second = _mm512_unpackhi_epi8(row(2), row(3));
    const __m512i low = word(quad.weights.low);
    const __m512i mid = word(quad.weights.mid);
    const __m512i high = word(quad.weights.high);
    sums[0].add(_mm512_unpacklo_epi16(below_first, below_second), low, mid, high);
    sums[1].add(_mm512_unpackhi_epi16(below_first, below_second), low, mid, high);
    sums[2].add(_mm512_unpacklo_epi16(above_first, above_second), low, mid, high);
    sums[3].add(_mm512_unpackhi_epi16(above_first, above_second), low, mid, high);
  }
  const __m512i below = _mm512_packs_epi32(sums[0].value(), sums[1].value());
  const __m512i above = _mm512_packs_epi32(sums[2].value(), sums[3].value());
  _mm512_storeu_si512(out + at, _mm512_packus_epi16(below, above));
}

/// blend_rows() of up to 32 rows; false if there are more.
inline bool dot_blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size,
                           std::uint8_t* out) {
  const std::size_t num_quads = (num_pairs + 1) / 2;
  if (num_quads > kMostRowQuads) return false;
  RowQuad quads[kMostRowQuads];
  for (std::size_t i = 0; i < 2 * num_quads; ++i) {
    const RowPair& pair = pairs[std::min(i, num_pairs - 1)];
    RowQuad& quad = quads[i / 2];
    for (std::size_t k = 0; k < 2; ++k) {
      const std::size_t place = i % 2 * 2 + k;
      quad.rows[place] = pair.rows[k];
      // Where there is no pair left the last one weighs nothing.
      if (i < num_pairs) quad.weights.set(place, joined_weight(pair.low, pair.high, k != 0));
    }
  }
  std::size_t at = 0;
  for (; at + 64 <= size; at += 64) dot_blend_vector(quads, num_quads, at, out);
  if (at < size) dot_blend_vector(quads, num_quads, size < 64 ? 0 : size - 64, out);
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace shardwise::detail
HWY_POP_ATTRIBUTES
