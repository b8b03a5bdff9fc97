#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"

// The inner loops over pixels, compiled for every instruction set that Highway supports. The first
// call of a function selects the best set that the machine has. Resizing has separate kernels for
// machines that can add up products of bytes (dot_kernels-inl.h). All kernels compute in integers,
// or in floats with every operation rounded, so all of them give the same bytes.

namespace shardwise::detail {

/// Number of fractional bits in the weights of a resize.
constexpr int kWeightBits = 22;
/// Added for rounding to nearest: half of the last bit that is kept.
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

/// Combines the halves of a weight. `low` and `high` each have halves of two weights; `second`
/// selects the second weight.
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

/// The taps of each pixel of a resized row: `num_taps` neighbouring pixels of the input row, with
/// their weights. A weight is split into two 16-bit halves, high * 65536 + low. The halves of two
/// neighbouring taps share a word, with the first tap's half in the lower bits.
struct RowTaps {
  /// A multiple of kOutputGroup; outputs after the row's end repeat its last pixel.
  std::size_t num_outputs = 0;
  std::size_t num_taps = 0;  ///< taps per output; unneeded taps have the weight 0
  /// First input pixel of each output; ascending or descending.
  std::vector<std::size_t> first;
  /// For each output and pair of taps: the low word, then the high word.
  std::vector<std::uint32_t> low_high;

  static constexpr std::size_t kOutputGroup = 4;
  [[nodiscard]] std::size_t pairs() const noexcept { return (num_taps + 1) / 2; }
};

/// Two neighbouring rows and their weights, which are split as in RowTaps. If the number of rows is
/// odd, the last pair has the same row twice, the second time with the weight 0.
struct RowPair {
  const std::uint8_t* rows[2];
  std::uint32_t low;
  std::uint32_t high;
};

/// Whether machines that support the kernels of dot_kernels-inl.h use them; true by default. Tests
/// set it to false.
SHARDWISE_EXPORT std::atomic<bool>& byte_dots_are_used() noexcept;

/// Scratch memory for resize_across(). It also caches the plan that is derived from the taps.
struct AcrossScratch {
  std::vector<std::uint8_t> bytes;
  bool has_plan = false;  ///< set to false when the taps or the rows' width change
  bool is_close = false;  ///< belongs to the cached plan
};

/// Number of rows that are resized together.
constexpr std::size_t kRowGroup = 8;
/// Resizes `num_rows` rows of RGB pixels horizontally. Row y begins at in + y * in_stride, and has
/// `in_width` pixels; no bytes after them are read. Each row written has taps.num_outputs pixels
/// and four extra bytes. The number of rows written is rounded up to a multiple of kRowGroup.
void resize_across(const std::uint8_t* in, std::size_t in_stride, std::size_t in_width,
                   std::size_t num_rows, const RowTaps& taps, std::uint8_t* out,
                   std::size_t out_stride, AcrossScratch& scratch);

/// Computes the weighted sum of rows of `size` bytes. If `size` is less than 64, 64 bytes of each
/// row must be readable, and 64 bytes of `out` writable.
void blend_rows(const RowPair* pairs, std::size_t num_pairs, std::size_t size, std::uint8_t* out);

/// Splits interleaved RGB into three planes.
void split_row(const std::uint8_t* rgb, std::size_t num_pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue);

/// A block of pixels, as floats from 0 to 255.
struct HueBlock {
  static constexpr std::size_t kPixels = 64;
  alignas(64) float red[kPixels];
  alignas(64) float green[kPixels];
  alignas(64) float blue[kPixels];
};

/// Rotates each pixel's hue by `turns` full circles, as docs/formats/transforms.md specifies. The
/// results are not rounded to integers.
void turn_hues(HueBlock& block, float turns);

}  // namespace shardwise::detail
