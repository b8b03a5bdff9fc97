#include "decode/pixels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/assert.h"
#include "decode/pixel_kernels.h"

namespace shardwise::detail {
namespace {

/// Computes offsets in a frame's memory, counted in values.
class Frame {
 public:
  explicit Frame(const PixelTarget& target)
      : is_planar_(target.layout == PixelLayout::kChannelsFirst),
        width_(target.width),
        step_(is_planar_ ? 1 : 3),
        plane_(is_planar_ ? target.height * target.width : 1) {}

  [[nodiscard]] bool is_planar() const { return is_planar_; }
  [[nodiscard]] std::size_t step() const { return step_; }
  [[nodiscard]] std::size_t plane() const { return plane_; }
  [[nodiscard]] std::size_t at(std::size_t y, std::size_t x) const {
    return (y * width_ + x) * step_;
  }

 private:
  bool is_planar_;
  std::size_t width_;
  std::size_t step_;   // distance between neighbouring pixels
  std::size_t plane_;  // distance between neighbouring channels
};

class ByteSink : public RowSink {
 public:
  using Value = std::uint8_t;

  ByteSink(const PixelTarget& target, std::uint8_t* out)
      : target_(target), frame_(target), out_(out) {}

  void put(std::size_t y, const std::uint8_t* row) override {
    std::uint8_t* to = out_ + frame_.at(target_.top + y, target_.left);
    const std::size_t width = target_.part.window.width;
    if (frame_.is_planar()) {
      split_row(row, width, to, to + frame_.plane(), to + 2 * frame_.plane());
    } else {
      std::memcpy(to, row, width * 3);
    }
  }

  [[nodiscard]] Value value_of(std::size_t /*channel*/, std::uint8_t byte) const { return byte; }

 private:
  const PixelTarget& target_;
  Frame frame_;
  std::uint8_t* out_;
};

template <class V>
class TableSink : public RowSink {
 public:
  using Value = V;

  TableSink(const PixelTarget& target, const PixelTable<Value>& table, Value* out)
      : target_(target), frame_(target), table_(table), out_(out) {}

  void put(std::size_t y, const std::uint8_t* row) override {
    Value* red = out_ + frame_.at(target_.top + y, target_.left);
    Value* green = red + frame_.plane();
    Value* blue = green + frame_.plane();
    const std::size_t step = frame_.step();
    for (std::size_t x = 0; x < target_.part.window.width; ++x, row += 3) {
      red[x * step] = table_[0][row[0]];
      green[x * step] = table_[1][row[1]];
      blue[x * step] = table_[2][row[2]];
    }
  }

  [[nodiscard]] Value value_of(std::size_t channel, std::uint8_t byte) const {
    return table_[channel][byte];
  }

 private:
  const PixelTarget& target_;
  Frame frame_;
  const PixelTable<Value>& table_;
  Value* out_;
};

/// Writes 16-bit channel values.
class ValueSink {
 public:
  using Value = std::uint16_t;

  ValueSink(const PixelTarget& target, Value* out) : target_(target), frame_(target), out_(out) {}

  void put(std::size_t y, const std::uint8_t* row) const {
    const std::size_t width = target_.part.window.width;
    Value* to = out_ + frame_.at(target_.top + y, target_.left);
    for (std::size_t x = 0; x < width; ++x, to += frame_.step()) {
      std::array<Value, 3> pixel;
      std::memcpy(pixel.data(), row + (target_.flips.horizontal ? width - 1 - x : x) * 6, 6);
      for (std::size_t c = 0; c < 3; ++c) to[c * frame_.plane()] = pixel[c];
    }
  }

  [[nodiscard]] Value value_of(std::size_t /*channel*/, std::uint8_t byte) const { return byte; }

 private:
  const PixelTarget& target_;
  Frame frame_;
  Value* out_;
};

PixelTarget with_part(PixelTarget target) {
  if (target.part.height == 0) target.part = ResizedPart::whole(target.height, target.width);
  return target;
}

/// Fills the area of the frame around the image part.
template <class Sink>
void fill_border(const PixelTarget& target, const Sink& sink, typename Sink::Value* out) {
  const Box& window = target.part.window;
  const Box inside{target.top, target.left, window.height, window.width};
  if (inside == Box{0, 0, target.height, target.width}) return;
  const Frame frame(target);
  for (std::size_t y = 0; y < target.height; ++y) {
    const bool is_beside = y >= inside.top && y < inside.top + inside.height;
    for (std::size_t x = 0; x < target.width; ++x) {
      if (is_beside && x == inside.left) x += inside.width;
      if (x == target.width) break;
      for (std::size_t c = 0; c < 3; ++c) {
        out[frame.at(y, x) + c * frame.plane()] = sink.value_of(c, target.fill[c]);
      }
    }
  }
}

template <class Sink>
void write(const RgbView& image, const PixelTarget& target, Sink&& sink,
           typename std::decay_t<Sink>::Value* out) {
  fill_border(target, sink, out);
  const Box& window = target.part.window;
  if (window.height == 0 || window.width == 0) return;
  resize(image, target.part, target.filter, target.flips, sink);
}

}  // namespace

PixelTable<float> normalizing_table(const std::array<float, 3>& mean,
                                    const std::array<float, 3>& std) {
  PixelTable<float> table;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t value = 0; value < 256; ++value) {
      const float fraction = static_cast<float>(value) / 255.0F;
      table[channel][value] = (fraction - mean[channel]) / std[channel];
    }
  }
  return table;
}

std::uint16_t to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

std::uint16_t to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const float size = std::abs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (size >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (size < 0x1p-14F) {
    // A subnormal is a multiple of 2^-24. Adding 0.5 rounds the value to that precision.
    const std::uint32_t steps = std::bit_cast<std::uint32_t>(size + 0.5F) & 0x7FFFFFU;
    return static_cast<std::uint16_t>(sign | steps);
  }
  const std::uint32_t rebiased = (bits & 0x7FFFFFFFU) - (112U << 23);
  return static_cast<std::uint16_t>(sign | (rebiased + 0xFFFU + (rebiased >> 13 & 1U)) >> 13);
}

void write_pixels(const RgbView& image, const PixelTarget& target, std::uint8_t* out) {
  const PixelTarget whole = with_part(target);
  write(image, whole, ByteSink(whole, out), out);
}

void write_pixels(const RgbView& image, const PixelTarget& target, const PixelTable<float>& table,
                  float* out) {
  const PixelTarget whole = with_part(target);
  write(image, whole, TableSink<float>(whole, table, out), out);
}

void write_pixels(const RgbView& image, const PixelTarget& target,
                  const PixelTable<std::uint16_t>& table, std::uint16_t* out) {
  const PixelTarget whole = with_part(target);
  write(image, whole, TableSink<std::uint16_t>(whole, table, out), out);
}

void copy_pixels(const RgbView& image, const PixelTarget& target, std::uint16_t* out) {
  const PixelTarget whole = with_part(target);
  const ValueSink sink(whole, out);
  fill_border(whole, sink, out);
  const std::size_t height = whole.part.window.height;
  if (whole.part.window.width == 0) return;
  SHARDWISE_ASSERT(image.pixel_bytes == 6 && (height == 0 || height == image.height));
  for (std::size_t y = 0; y < height; ++y) {
    sink.put(whole.flips.vertical ? height - 1 - y : y, image.row(y));
  }
}

}  // namespace shardwise::detail
