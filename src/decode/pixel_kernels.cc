#include "decode/pixel_kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

// Exclude vectors of unknown length (SVE, RVV), because the loops work in blocks of 16 bytes.
// Machines with SVE also have NEON.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
// This file is included again for each instruction set.
#define HWY_TARGET_INCLUDE "decode/pixel_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_TARGET <= HWY_AVX3  // AVX3 or better, because better targets have lower numbers
#include "decode/dot_kernels-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace shardwise::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

void resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t /*in_width*/,
                   std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                   std::size_t out_stride, AcrossScratch& /*scratch*/) {
  for (std::size_t y = 0; y < num_rows; ++y) {
    for (std::size_t x = 0; x < taps.num_outputs; ++x) {
      const std::uint8_t* from = in + y * in_stride + 3 * taps.first[x];
      const std::uint32_t* weights = taps.low_high.data() + x * taps.pairs() * 2;
      std::int32_t sums[3] = {kHalf, kHalf, kHalf};
      for (std::size_t tap = 0; tap < taps.num_taps; ++tap, from += 3) {
        const std::uint32_t* pair = weights + tap / 2 * 2;
        const std::int32_t weight = joined_weight(pair[0], pair[1], tap % 2 != 0);
        if (weight == 0) continue;  // such a tap may be after the row's end
        for (int c = 0; c < 3; ++c) sums[c] += from[c] * weight;
      }
      for (int c = 0; c < 3; ++c) out[y * out_stride + 3 * x + c] = to_byte(sums[c]);
    }
  }
}

void blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size, std::uint8_t* out) {
  for (std::size_t i = 0; i < size; ++i) {
    std::int32_t sum = kHalf;
    for (std::size_t p = 0; p < num_pairs; ++p) {
      for (int k = 0; k < 2; ++k) {
        sum += pairs[p].rows[k][i] * joined_weight(pairs[p].low, pairs[p].high, k != 0);
      }
    }
    out[i] = to_byte(sum);
  }
}

void split_row(const std::uint8_t* rgb, std::size_t num_pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue) {
  for (std::size_t i = 0; i < num_pixels; ++i) {
    red[i] = rgb[3 * i];
    green[i] = rgb[3 * i + 1];
    blue[i] = rgb[3 * i + 2];
  }
}

#else

// Use vectors of at most 32 bytes. After multiplying 64-byte vectors, an Ice Lake CPU runs more
// slowly for a while, which would delay decoding the next image (docs/figures.md).
using Bytes = hn::CappedTag<std::uint8_t, 32>;
using Shorts = hn::Repartition<std::int16_t, Bytes>;
using Words = hn::Repartition<std::int32_t, Bytes>;
using ByteVector = hn::Vec<Bytes>;
using ShortVector = hn::Vec<Shorts>;
using WordVector = hn::Vec<Words>;

constexpr std::size_t kVectorBytes = hn::MaxLanes(Bytes());
constexpr std::size_t kBlocks = kVectorBytes / 16;
constexpr std::size_t kVectors = 2;  // number of vectors of rows per step
constexpr std::size_t kRows = kBlocks * kVectors;
static_assert(kRowGroup % kRows == 0);

/// Adds the products of the 16-bit halves of each word.
HWY_INLINE WordVector add_products(WordVector sum, ShortVector a, ShortVector b) {
  const Words words;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
  WordVector unused = hn::Zero(words);
  return hn::ReorderWidenMulAccumulate(words, a, b, sum, unused);
#else
  const WordVector x = hn::BitCast(words, a);
  const WordVector y = hn::BitCast(words, b);
  const WordVector lower_x = hn::ShiftRight<16>(hn::ShiftLeft<16>(x));
  const WordVector lower_y = hn::ShiftRight<16>(hn::ShiftLeft<16>(y));
  sum = hn::Add(sum, hn::Mul(lower_x, lower_y));
  return hn::Add(sum, hn::Mul(hn::ShiftRight<16>(x), hn::ShiftRight<16>(y)));
#endif
}

HWY_INLINE ShortVector both(std::uint32_t halves) {
  return hn::BitCast(Shorts(), hn::Set(hn::Repartition<std::uint32_t, Bytes>(), halves));
}

/// A weighted sum. For rounding, it starts at half of the last bit that is kept.
struct Sum {
  WordVector low;
  WordVector high;

  HWY_INLINE Sum() : low(hn::Set(Words(), kHalf)), high(hn::Zero(Words())) {}

  HWY_INLINE void add(ShortVector pixels, ShortVector low_weights, ShortVector high_weights) {
    low = add_products(low, pixels, low_weights);
    high = add_products(high, pixels, high_weights);
  }
  HWY_INLINE WordVector value() const {
    return hn::ShiftRight<kWeightBits>(hn::Add(low, hn::ShiftLeft<16>(high)));
  }
};

/// Interleaves bytes in each block of 16: `even` at even positions, `odd` at odd positions.
HWY_INLINE ByteVector to_bytes(ShortVector even, ShortVector odd) {
  const Shorts shorts;
  const auto zero = hn::Zero(shorts);
  const auto most = hn::Set(shorts, 255);
  even = hn::Min(hn::Max(even, zero), most);
  odd = hn::Min(hn::Max(odd, zero), most);
  return hn::BitCast(Bytes(), hn::Or(even, hn::ShiftLeft<8>(odd)));
}

/// Loads 16 bytes from each row into one block per row.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const std::uint8_t* const* rows, std::size_t offset) {
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::LoadU(d, rows[0] + offset);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, rows + hn::MaxLanes(D()) / 32, offset),
                       load_blocks(half, rows, offset));
  }
}

template <class D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> blocks, std::uint8_t* const* rows,
                             std::size_t offset) {
  if constexpr (hn::MaxLanes(D()) == 16) {
    hn::StoreU(blocks, d, rows[0] + offset);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, blocks), rows, offset);
    store_blocks(half, hn::UpperHalf(half, blocks), rows + hn::MaxLanes(D()) / 32, offset);
  }
}

constexpr std::uint8_t kNone = 0x80;
/// Shuffles for five RGB pixels in 16 bytes. They select pixels 0 and 1, pixels 2 and 3, and pixel
/// 4 alone. The result is R R G G B B - -, with 16 bits each.
alignas(16) constexpr std::uint8_t kPairs[3][16] = {
    {0, kNone, 3, kNone, 1, kNone, 4, kNone, 2, kNone, 5, kNone, kNone, kNone, kNone, kNone},
    {6, kNone, 9, kNone, 7, kNone, 10, kNone, 8, kNone, 11, kNone, kNone, kNone, kNone, kNone},
    {12, kNone, kNone, kNone, 13, kNone, kNone, kNone, 14, kNone, kNone, kNone, kNone, kNone, kNone,
     kNone}};
/// Shuffle that compacts four pixels R G B - to R G B R G B ... The first two pixels are at even
/// positions, the others at odd positions.
alignas(16) constexpr std::uint8_t kCompact[16] = {0, 2, 4,  8,  10,    12,    1,     3,
                                                   5, 9, 11, 13, kNone, kNone, kNone, kNone};

/// How the taps of an output pixel are read: `doubles` reads of 16 bytes with two pairs each, then
/// one to three pairs from the last 16 bytes.
struct Reads {
  explicit Reads(std::size_t num_taps)
      : doubles(num_taps > 5 ? (num_taps - 5 + 3) / 4 : 0),
        last_pairs((num_taps - 4 * doubles + 1) / 2) {}
  [[nodiscard]] std::size_t span() const { return 12 * doubles + 16; }

  std::size_t doubles;
  std::size_t last_pairs;
};

/// Pointers to rows of an image. If only a part of each row is present, `begin` is its offset.
struct RowSet {
  const std::uint8_t* rows[kRows];
  std::size_t begin = 0;
};

template <std::size_t kLastPairs>
struct Across {
  const RowTaps& taps;
  std::size_t doubles;
  ByteVector masks[3];

  explicit Across(const RowTaps& all, const Reads& reads)
      : taps(all),
        doubles(reads.doubles),
        masks{hn::LoadDup128(Bytes(), kPairs[0]), hn::LoadDup128(Bytes(), kPairs[1]),
              hn::LoadDup128(Bytes(), kPairs[2])} {}

  template <std::size_t kCount>
  HWY_INLINE void add(const RowSet& from, std::size_t offset, const std::uint32_t* weights,
                      Sum* sums) const {
    ByteVector bytes[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      bytes[v] = load_blocks(Bytes(), from.rows + v * kBlocks, offset);
    }
    for (std::size_t pair = 0; pair < kCount; ++pair) {
      const ShortVector low = both(weights[2 * pair]);
      const ShortVector high = both(weights[2 * pair + 1]);
      for (std::size_t v = 0; v < kVectors; ++v) {
        const auto pixels = hn::TableLookupBytesOr0(bytes[v], masks[pair]);
        sums[v].add(hn::BitCast(Shorts(), pixels), low, high);
      }
    }
  }

  HWY_INLINE void output(const RowSet& from, std::size_t x, WordVector* values) const {
    std::size_t offset = taps.first[x] * 3 - from.begin;
    const std::uint32_t* weights = taps.low_high.data() + x * taps.pairs() * 2;
    Sum sums[kVectors];
    for (std::size_t i = 0; i < doubles; ++i, offset += 12, weights += 4) {
      add<2>(from, offset, weights, sums);
    }
    add<kLastPairs>(from, offset, weights, sums);
    for (std::size_t v = 0; v < kVectors; ++v) values[v] = sums[v].value();
  }

  /// Computes four output pixels of each row.
  HWY_INLINE void group(const RowSet& from, std::size_t x, std::uint8_t* const* out) const {
    WordVector values[4][kVectors];
    for (std::size_t i = 0; i < 4; ++i) output(from, x + i, values[i]);
    const auto compact = hn::LoadDup128(Bytes(), kCompact);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto even = hn::ReorderDemote2To(Shorts(), values[0][v], values[1][v]);
      const auto odd = hn::ReorderDemote2To(Shorts(), values[2][v], values[3][v]);
      store_blocks(Bytes(), hn::TableLookupBytesOr0(to_bytes(even, odd), compact),
                   out + v * kBlocks, 3 * x);
    }
  }

  /// @param inside  if the taps of a group begin at or before this pixel, they may be read from
  ///   `whole`.
  HWY_INLINE void rows(const RowSet& whole, const RowSet& edge, std::size_t inside,
                       std::uint8_t* const* out) const {
    for (std::size_t x = 0; x < taps.num_outputs; x += 4) {
      const bool is_inside = std::max(taps.first[x], taps.first[x + 3]) <= inside;
      group(is_inside ? whole : edge, x, out);
    }
  }
};

/// A copy of the right end of some rows, padded so that reads may extend past the end.
class Edge {
 public:
  Edge(const RowTaps& taps, std::size_t span, std::size_t row_bytes,
       std::vector<std::uint8_t>& bytes)
      : bytes_(bytes), row_bytes_(row_bytes) {
    is_needed_ = row_bytes < span;
    inside_ = is_needed_ ? 0 : (row_bytes - span) / 3;
    begin_ = row_bytes;
    for (std::size_t x = 0; x < taps.num_outputs; x += 4) {
      const auto [least, most] = std::minmax(taps.first[x], taps.first[x + 3]);
      if (is_needed_ || most > inside_) begin_ = std::min(begin_, least * 3);
    }
    stride_ = row_bytes - begin_ + span;
    bytes_.assign(stride_ * kRows, 0);
  }

  [[nodiscard]] std::size_t inside() const { return inside_; }
  [[nodiscard]] bool is_everywhere() const { return is_needed_; }

  RowSet of(const RowSet& whole) {
    RowSet set;
    set.begin = begin_;
    for (std::size_t r = 0; r < kRows; ++r) {
      std::uint8_t* copy = bytes_.data() + r * stride_;
      std::memcpy(copy, whole.rows[r] + begin_, row_bytes_ - begin_);
      set.rows[r] = copy;
    }
    return set;
  }

 private:
  std::vector<std::uint8_t>& bytes_;
  std::size_t row_bytes_;
  bool is_needed_;
  std::size_t inside_;
  std::size_t begin_;
  std::size_t stride_;
};

template <std::size_t kLastPairs>
void resize_across_of(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                      std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                      std::size_t out_stride, AcrossScratch& scratch) {
  const Reads reads(taps.num_taps);
  const Across<kLastPairs> across(taps, reads);
  scratch.has_plan = false;
  Edge edge(taps, reads.span(), in_width * 3, scratch.bytes);
  for (std::size_t y = 0; y < num_rows; y += kRows) {
    RowSet whole;
    std::uint8_t* to[kRows];
    for (std::size_t r = 0; r < kRows; ++r) {
      whole.rows[r] = in + std::min(y + r, num_rows - 1) * in_stride;
      to[r] = out + (y + r) * out_stride;
    }
    const RowSet end = edge.of(whole);
    across.rows(edge.is_everywhere() ? end : whole, end, edge.inside(), to);
  }
}

void resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                   std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                   std::size_t out_stride, AcrossScratch& scratch) {
#if HWY_TARGET <= HWY_AVX3  // AVX3 or better, because better targets have lower numbers
  if (has_byte_dots() &&
      dot_resize_across(in, in_stride, in_width, num_rows, taps, out, out_stride, scratch)) {
    return;
  }
#endif
  constexpr decltype(&resize_across_of<1>) kByLastPairs[] = {
      resize_across_of<1>, resize_across_of<2>, resize_across_of<3>};
  kByLastPairs[Reads(taps.num_taps).last_pairs - 1](in, in_stride, in_width, num_rows, taps, out,
                                                    out_stride, scratch);
}

/// Shuffle that sorts the results of to_bytes() for the lower and upper eight bytes of a block.
alignas(16) constexpr std::uint8_t kInOrder[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                   1, 3, 5, 7, 9, 11, 13, 15};

HWY_INLINE ShortVector lower_as_shorts(ByteVector v) {
  return hn::BitCast(Shorts(), hn::InterleaveLower(Bytes(), v, hn::Zero(Bytes())));
}

HWY_INLINE ShortVector upper_as_shorts(ByteVector v) {
  return hn::BitCast(Shorts(), hn::InterleaveUpper(Bytes(), v, hn::Zero(Bytes())));
}

HWY_INLINE void blend_vector(const RowPair* pairs, std::size_t num_pairs, std::size_t at,
                             std::uint8_t* out) {
  const Bytes bytes;
  const Shorts shorts;
  Sum sums[4];
  for (std::size_t i = 0; i < num_pairs; ++i) {
    const RowPair& pair = pairs[i];
    const auto first = hn::LoadU(bytes, pair.rows[0] + at);
    const auto second = hn::LoadU(bytes, pair.rows[1] + at);
    const auto below = hn::InterleaveLower(bytes, first, second);
    const auto above = hn::InterleaveUpper(bytes, first, second);
    const ShortVector low = both(pair.low);
    const ShortVector high = both(pair.high);
    sums[0].add(lower_as_shorts(below), low, high);
    sums[1].add(upper_as_shorts(below), low, high);
    sums[2].add(lower_as_shorts(above), low, high);
    sums[3].add(upper_as_shorts(above), low, high);
  }
  const auto below = hn::ReorderDemote2To(shorts, sums[0].value(), sums[1].value());
  const auto above = hn::ReorderDemote2To(shorts, sums[2].value(), sums[3].value());
  const auto order = hn::LoadDup128(bytes, kInOrder);
  hn::StoreU(hn::TableLookupBytes(to_bytes(below, above), order), bytes, out + at);
}

void blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size, std::uint8_t* out) {
#if HWY_TARGET <= HWY_AVX3  // AVX3 or better, because better targets have lower numbers
  if (has_byte_dots() && dot_blend_rows(pairs, num_pairs, size, out)) return;
#endif
  std::size_t at = 0;
  for (; at + kVectorBytes <= size; at += kVectorBytes) blend_vector(pairs, num_pairs, at, out);
  if (at < size) {
    blend_vector(pairs, num_pairs, size < kVectorBytes ? 0 : size - kVectorBytes, out);
  }
}

HWY_INLINE void split_vector(const std::uint8_t* rgb, std::size_t at, std::uint8_t* red,
                             std::uint8_t* green, std::uint8_t* blue) {
  const Bytes bytes;
  ByteVector r;
  ByteVector g;
  ByteVector b;
  hn::LoadInterleaved3(bytes, rgb + 3 * at, r, g, b);
  hn::StoreU(r, bytes, red + at);
  hn::StoreU(g, bytes, green + at);
  hn::StoreU(b, bytes, blue + at);
}

void split_row(const std::uint8_t* rgb, std::size_t num_pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue) {
  std::size_t at = 0;
  for (; at + kVectorBytes <= num_pixels; at += kVectorBytes) {
    split_vector(rgb, at, red, green, blue);
  }
  if (at == num_pixels) return;
  if (num_pixels >= kVectorBytes) {
    return split_vector(rgb, num_pixels - kVectorBytes, red, green, blue);
  }
  for (; at < num_pixels; ++at) {
    red[at] = rgb[3 * at];
    green[at] = rgb[3 * at + 1];
    blue[at] = rgb[3 * at + 2];
  }
}

#endif  // HWY_SCALAR

using Floats = hn::CappedTag<float, 8>;  // 32 bytes, like Bytes
using FloatVector = hn::Vec<Floats>;

/// Returns the hue in sixths of the full circle, from -1 to 5.
HWY_INLINE FloatVector hue_of(FloatVector red, FloatVector green, FloatVector blue,
                              FloatVector most, FloatVector range) {
  const Floats d;
  const auto from_red = hn::Div(hn::Sub(green, blue), range);
  const auto from_green = hn::Add(hn::Set(d, 2.0F), hn::Div(hn::Sub(blue, red), range));
  const auto from_blue = hn::Add(hn::Set(d, 4.0F), hn::Div(hn::Sub(red, green), range));
  return hn::IfThenElse(hn::Eq(most, red), from_red,
                        hn::IfThenElse(hn::Eq(most, green), from_green, from_blue));
}

HWY_INLINE FloatVector in_byte_range(FloatVector fraction) {
  const Floats d;
  const auto value = hn::Mul(fraction, hn::Set(d, 255.999F));
  return hn::Min(hn::Max(value, hn::Zero(d)), hn::Set(d, 255.0F));
}

HWY_INLINE void turn_hue_of_vector(float* red, float* green, float* blue, float turns) {
  const Floats d;
  const auto one = hn::Set(d, 1.0F);
  const auto six = hn::Set(d, 6.0F);
  const auto r = hn::Load(d, red);
  const auto g = hn::Load(d, green);
  const auto b = hn::Load(d, blue);
  const auto most = hn::Max(r, hn::Max(g, b));
  const auto difference = hn::Sub(most, hn::Min(r, hn::Min(g, b)));
  const auto is_gray = hn::Eq(difference, hn::Zero(d));
  const auto range = hn::IfThenElse(is_gray, one, difference);
  const auto hue = hn::Add(hn::Div(hue_of(r, g, b, most, range), six), hn::Set(d, turns));
  const auto turned = hn::Mul(hn::Sub(hue, hn::Floor(hue)), six);
  const auto floored = hn::Floor(turned);
  const auto fraction = hn::Sub(turned, floored);
  const auto sector = hn::IfThenElse(hn::Eq(floored, six), hn::Zero(d), floored);
  const auto saturation = hn::Div(range, hn::IfThenElse(is_gray, one, most));
  const auto value = hn::Div(most, hn::Set(d, 255.0F));
  const auto low = hn::Mul(value, hn::Sub(one, saturation));
  const auto falling = hn::Mul(value, hn::Sub(one, hn::Mul(saturation, fraction)));
  const auto rising = hn::Mul(value, hn::Sub(one, hn::Mul(saturation, hn::Sub(one, fraction))));
  const auto is_0 = hn::Eq(sector, hn::Zero(d));
  const auto is_1 = hn::Eq(sector, one);
  const auto is_2 = hn::Eq(sector, hn::Set(d, 2.0F));
  const auto is_3 = hn::Eq(sector, hn::Set(d, 3.0F));
  const auto is_4 = hn::Eq(sector, hn::Set(d, 4.0F));
  const auto is_5 = hn::Eq(sector, hn::Set(d, 5.0F));
  const auto new_red = hn::IfThenElse(
      is_1, falling, hn::IfThenElse(hn::Or(is_2, is_3), low, hn::IfThenElse(is_4, rising, value)));
  const auto new_green = hn::IfThenElse(
      is_0, rising, hn::IfThenElse(is_3, falling, hn::IfThenElse(hn::Or(is_4, is_5), low, value)));
  const auto new_blue = hn::IfThenElse(
      hn::Or(is_0, is_1), low, hn::IfThenElse(is_2, rising, hn::IfThenElse(is_5, falling, value)));
  hn::Store(hn::IfThenElse(is_gray, r, in_byte_range(new_red)), d, red);
  hn::Store(hn::IfThenElse(is_gray, g, in_byte_range(new_green)), d, green);
  hn::Store(hn::IfThenElse(is_gray, b, in_byte_range(new_blue)), d, blue);
}

void turn_hues(HueBlock& block, float turns) {
  for (std::size_t i = 0; i < HueBlock::kPixels; i += hn::Lanes(Floats())) {
    turn_hue_of_vector(block.red + i, block.green + i, block.blue + i, turns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shardwise::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardwise::detail {

std::atomic<bool>& byte_dots_are_used() noexcept {
  static std::atomic<bool> used{true};
  return used;
}

HWY_EXPORT(resize_across);
HWY_EXPORT(blend_rows);
HWY_EXPORT(split_row);
HWY_EXPORT(turn_hues);

void resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                   std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                   std::size_t out_stride, AcrossScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(resize_across)
  (in, in_stride, in_width, num_rows, taps, out, out_stride, scratch);
}

void blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(blend_rows)(pairs, num_pairs, size, out);
}

void split_row(const std::uint8_t* rgb, std::size_t num_pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue) {
  HWY_DYNAMIC_DISPATCH(split_row)(rgb, num_pixels, red, green, blue);
}

void turn_hues(HueBlock& block, float turns) { HWY_DYNAMIC_DISPATCH(turn_hues)(block, turns); }

}  // namespace shardwise::detail
#endif  // HWY_ONCE
