#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"

// The loops over pixels, compiled for every instruction set that Highway supports. The first call
// of a function selects the machine's best one. For machines that add products of bytes, resizing
// has separate kernels (dot_kernels-inl.h). All kernels compute in integers, or in floats with
// every operation rounded, so they give the same bytes.

namespace shardwise::detail {

/// Fractional bits of a resize's weights.
constexpr int kWeightBits = 22;
/// Rounds to nearest: half of the last bit that is kept.
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

/// Joins one of the two weights whose halves share the words `low` and `high`.
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

/// Inputs of each pixel of a resized row: `num_taps` neighbouring pixels of the input row, and
/// their weights. A weight is split into two 16-bit halves, high * 65536 + low. The halves of two
/// neighbouring taps share a word, the first tap's in the lower bits.
struct RowTaps {
  std::size_t num_outputs =
      0;                     ///< a multiple of kOutputGroup; those beyond the row repeat its last
  std::size_t num_taps = 0;  ///< taps of every output; unneeded ones have the weight 0
  std::vector<std::size_t> first;       ///< first input pixel by output; ascending or descending
  std::vector<std::uint32_t> low_high;  ///< by output and pair of taps: the low word, the high word

  static constexpr std::size_t kOutputGroup = 4;
  [[nodiscard]] std::size_t pairs() const noexcept { return (num_taps + 1) / 2; }
};

/// Two neighbouring rows and their weights, split like those of RowTaps. An odd last row comes
/// twice, the second time with the weight 0.
struct RowPair {
  const std::uint8_t* rows[2];
  std::uint32_t low;
  std::uint32_t high;
};

/// True (the default) to use the kernels of dot_kernels-inl.h on machines that support them. Tests
/// clear it.
SHARDWISE_EXPORT std::atomic<bool>& byte_dots_are_used() noexcept;

/// Scratch memory of resize_across(), which caches its plan of the taps.
struct AcrossScratch {
  std::vector<std::uint8_t> bytes;
  bool has_plan = false;  ///< clear it when the taps or the rows' width change
  bool is_close = false;  ///< a property of the plan
};

/// Rows that are resized together.
constexpr std::size_t kRowGroup = 8;
/// Resizes `num_rows` rows of RGB pixels horizontally. Row y begins at in + y * in_stride, and has
/// `in_width` pixels; nothing after them is read.
/// Writes rows of taps.num_outputs pixels and four more bytes. The number of rows written is
/// rounded up to a multiple of kRowGroup.
void resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                   std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                   std::size_t out_stride, AcrossScratch& scratch);

/// Computes the weighted sum of rows of `size` bytes. Rows shorter than 64 bytes must be readable,
/// and `out` writable, up to that length.
void blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size, std::uint8_t* out);

/// Splits interleaved RGB into three planes.
void split_row(const std::uint8_t* rgb, std::size_t num_pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue);

/// A block of pixels with values from 0 to 255.
struct HueBlock {
  static constexpr std::size_t kPixels = 64;
  alignas(64) float red[kPixels];
  alignas(64) float green[kPixels];
  alignas(64) float blue[kPixels];
};

/// Rotates each pixel's hue by `turns` of the circle, as docs/formats/transforms.md specifies. The
/// results still have fractions.
void turn_hues(HueBlock& block, float turns);

}  // namespace shardwise::detail
