#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"

// The loops over pixels, compiled for every instruction set that Highway knows; the machine's best
// is chosen when a function is first called. Resizing has kernels of its own (dot_kernels-inl.h)
// for machines that add products of bytes. All compute in integers, or in floats whose every
// operation is rounded, so each gives the same bytes.

namespace shardwise::detail {

/// Weights of a resize have this many fractional bits.
constexpr int kWeightBits = 22;
/// Half of the last place that is kept.
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

/// One of the two weights that share the words `low` and `high`.
constexpr std::int32_t joined_weight(std::uint32_t low, std::uint32_t high, bool second) noexcept {
  const int shift = second ? 16 : 0;
  const auto low_half = static_cast<std::int16_t>(low >> shift & 0xFFFFU);
  const auto high_half = static_cast<std::int16_t>(high >> shift & 0xFFFFU);
  return high_half * 65536 + low_half;
}

constexpr std::uint8_t to_byte(std::int32_t sum) noexcept {
  const std::int32_t value = sum >> kWeightBits;
  return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

/// What each pixel of a row is made of: `num_taps` neighbouring pixels of the input row, with their
/// weights. A weight is split: high * 65536 + low, both of 16 bits; two neighbours' halves share a
/// word, the first one's below.
struct RowTaps {
  std::size_t num_outputs =
      0;                     ///< a multiple of kOutputGroup; those beyond the row repeat its last
  std::size_t num_taps = 0;  ///< of every output; those that it does not need weigh 0
  std::vector<std::size_t> first;       ///< by output; ascending or descending
  std::vector<std::uint32_t> low_high;  ///< by output and pair of taps: the low and the high word

  static constexpr std::size_t kOutputGroup = 4;
  [[nodiscard]] std::size_t pairs() const noexcept { return (num_taps + 1) / 2; }
};

/// Two neighbouring rows (or the last one twice, and a weight of 0), and their weights as above.
struct RowPair {
  const std::uint8_t* rows[2];
  std::uint32_t low;
  std::uint32_t high;
};

/// Whether the kernels of dot_kernels-inl.h are used where a machine has their instructions; tests
/// do without them, too.
SHARDWISE_EXPORT std::atomic<bool>& byte_dots_are_used() noexcept;

/// Memory of resize_across(), which keeps there what it computes of the taps.
struct AcrossScratch {
  std::vector<std::uint8_t> bytes;
  bool has_plan = false;  ///< to be cleared when the taps or the rows' width change
  bool is_close = false;  ///< of the plan
};

/// Rows are resized so many at a time.
constexpr std::size_t kRowGroup = 8;
/// Resizes `num_rows` rows of RGB pixels across. Row y lies at in + y * in_stride and has
/// `in_width` pixels; nothing beyond them is read. Writes rows of taps.num_outputs pixels and four
/// bytes more, and as many rows as make a multiple of kRowGroup.
void resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                   std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                   std::size_t out_stride, AcrossScratch& scratch);

/// The weighted sum of rows of `size` bytes. Rows shorter than 64 bytes must be readable, and `out`
/// writable, up to that length.
void blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size, std::uint8_t* out);

/// Interleaved RGB to three planes.
void split_row(const std::uint8_t* rgb, std::size_t num_pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue);

/// Some pixels, with values from 0 to 255.
struct HueBlock {
  static constexpr std::size_t kPixels = 64;
  alignas(64) float red[kPixels];
  alignas(64) float green[kPixels];
  alignas(64) float blue[kPixels];
};

/// Turns each pixel's hue by `turns` of the circle, as docs/formats/transforms.md has it. What
/// follows the point is not yet dropped.
void turn_hues(HueBlock& block, float turns);

}  // namespace shardwise::detail
