#include "decode/resize.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/of_thread.h"
#include "base/text.h"
#include "decode/decode_failure.h"
#include "decode/pixel_kernels.h"

namespace shardwise::detail {
namespace {

/// Maximum size of a vector in bytes. Shorter rows are also read and written with this length.
constexpr std::size_t kMinRowBytes = 64;

struct SplitWeights {
  std::uint32_t low;
  std::uint32_t high;
};

/// Splits weights into high * 65536 + low. Both halves are signed 16-bit numbers.
SplitWeights split_pair(std::int32_t first, std::int32_t second) {
  const auto low = [](std::int32_t weight) { return static_cast<std::uint32_t>(weight) & 0xFFFFU; };
  const auto high = [](std::int32_t weight) {
    return static_cast<std::uint32_t>((weight - static_cast<std::int16_t>(weight)) >> 16) & 0xFFFFU;
  };
  return {low(first) | low(second) << 16, high(first) | high(second) << 16};
}

/// Rows [begin, begin + count) of an image.
struct Rows {
  const std::uint8_t* data;
  std::size_t stride;
  std::size_t begin;

  [[nodiscard]] const std::uint8_t* row(std::size_t y) const { return data + (y - begin) * stride; }
};

class Resizer {
 public:
  void run(const RgbView& image, const ResizedPart& part, Filter filter, Flips flips,
           RowSink& sink) {
    const Box& window = part.window;
    const bool is_down = part.height != image.height;
    const bool is_across = part.width != image.width || flips.horizontal;
    Rows rows{image.data + window.left * 3, image.stride, 0};
    if (is_down)
      down_.compute(image.height, part.height, window.top, window.top + window.height, filter);
    // Rows shorter than kMinRowBytes cannot be read from the image in whole vectors.
    if (is_across || (is_down && window.width * 3 < kMinRowBytes)) {
      const std::size_t last = window.top + window.height - 1;
      const std::size_t begin = is_down ? down_.first(window.top) : window.top;
      const std::size_t end = is_down ? down_.first(last) + down_.count(last) : last + 1;
      plan_across(image.width, part.width, window, filter, flips.horizontal);
      rows = resize_rows(image, begin, end);
    }
    row_.resize(std::max(window.width * 3, kMinRowBytes));
    for (std::size_t i = 0; i < window.height; ++i) {
      const std::size_t y = window.top + i;
      if (is_down) blend(rows, y, window.width * 3);
      sink.put(flips.vertical ? window.height - 1 - i : i, is_down ? row_.data() : rows.row(y));
    }
  }

 private:
  void plan_across(std::size_t in, std::size_t out, const Box& window, Filter filter,
                   bool is_mirrored) {
    const bool is_new = across_.compute(in, out, window.left, window.left + window.width, filter);
    if (!is_new && has_row_taps_ && is_mirrored == is_mirrored_) return;
    has_row_taps_ = false;
    scratch_.has_plan = false;
    fill_row_taps(window.left, window.width, is_mirrored);
    is_mirrored_ = is_mirrored;
    has_row_taps_ = true;
  }

  Rows resize_rows(const RgbView& image, std::size_t begin, std::size_t end) {
    const std::size_t stride = std::max(row_taps_.num_outputs * 3 + 4, kMinRowBytes);
    const std::size_t num_rows = (end - begin + kRowGroup - 1) / kRowGroup * kRowGroup;
    if (!is_kept(between_.capacity(), stride * num_rows)) between_ = std::vector<std::uint8_t>();
    between_.resize(stride * num_rows);
    resize_across(image.row(begin), image.stride, image.width, end - begin, row_taps_,
                  between_.data(), stride, scratch_);
    return {between_.data(), stride, begin};
  }

  /// Sets the taps of outputs [left, left + width), in reverse order if the image is mirrored.
  void fill_row_taps(std::size_t left, std::size_t width, bool is_mirrored) {
    constexpr std::size_t kGroup = RowTaps::kOutputGroup;
    row_taps_.num_outputs = (width + kGroup - 1) / kGroup * kGroup;
    row_taps_.num_taps = across_.stride();
    row_taps_.first.resize(row_taps_.num_outputs);
    row_taps_.low_high.resize(row_taps_.num_outputs * row_taps_.pairs() * 2);
    std::uint32_t* to = row_taps_.low_high.data();
    for (std::size_t x = 0; x < row_taps_.num_outputs; ++x) {
      const std::size_t output = std::min(x, width - 1);
      const std::size_t from = left + (is_mirrored ? width - 1 - output : output);
      row_taps_.first[x] = across_.first(from);
      const std::int32_t* weights = across_.weights(from);
      for (std::size_t tap = 0; tap < across_.stride(); tap += 2, to += 2) {
        const std::int32_t second = tap + 1 < across_.stride() ? weights[tap + 1] : 0;
        const SplitWeights split = split_pair(weights[tap], second);
        to[0] = split.low;
        to[1] = split.high;
      }
    }
  }

  void blend(const Rows& rows, std::size_t y, std::size_t row_bytes) {
    const std::int32_t* weights = down_.weights(y);
    const std::size_t count = down_.count(y);
    pairs_.clear();
    for (std::size_t tap = 0; tap < count; tap += 2) {
      const bool is_last = tap + 1 == count;
      const std::uint8_t* row = rows.row(down_.first(y) + tap);
      const SplitWeights split = split_pair(weights[tap], is_last ? 0 : weights[tap + 1]);
      pairs_.push_back({{row, is_last ? row : row + rows.stride}, split.low, split.high});
    }
    blend_rows(pairs_.data(), pairs_.size(), row_bytes, row_.data());
  }

  ResizeTaps across_;
  ResizeTaps down_;
  RowTaps row_taps_;
  bool has_row_taps_ = false;  // row_taps_ was filled from across_, mirrored if is_mirrored_
  bool is_mirrored_ = false;
  AcrossScratch scratch_;
  std::vector<RowPair> pairs_;
  std::vector<std::uint8_t> between_;
  std::vector<std::uint8_t> row_;
};

}  // namespace

void require_resizable(std::size_t height, const Box& window, std::uint64_t max_pixels) {
  constexpr std::uint64_t kUsual = std::uint64_t{1} << 24;
  const std::uint64_t most =
      std::max({kUsual, max_pixels, std::uint64_t{window.height} * window.width});
  if (window.width == 0 || height <= most / window.width) return;
  throw DecodeFailure("resizing needs an intermediate image of " + size_text(height, window.width) +
                      ", more than the limit of " + human_count(most) + " pixels");
}

void resize(const RgbView& image, const ResizedPart& part, Filter filter, Flips flips,
            RowSink& sink) {
  const Box& window = part.window;
  SHARDWISE_ASSERT(image.height > 0 && image.width > 0 && window.height > 0 && window.width > 0);
  SHARDWISE_ASSERT(window.top + window.height <= part.height &&
                   window.left + window.width <= part.width);
  Resizer& resizer = detail::of_thread<Resizer>([] {});
  resizer.run(image, part, filter, flips, sink);
}

}  // namespace shardwise::detail
