#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardwise::detail {

/// How a resize weighs pixels, by their distance from the centre of the output pixel.
enum class Filter : std::uint8_t {
  kBilinear,  ///< a triangle
  kBicubic    ///< Keys' cubic with a = -0.5
};

/// For each output pixel of one direction, the input pixels that it is made of and their weights:
/// Pillow's, as docs/formats/transforms.md has them. Weights are integers of 22 fractional bits.
class ResizeTaps {
 public:
  /// Of `out` output pixels those in [begin, end); the memory is used again. Returns false if they
  /// were here already.
  /// REQUIRES: in > 0, begin < end <= out.
  bool compute(std::size_t in, std::size_t out, std::size_t begin, std::size_t end, Filter filter);

  /// The number of weights of each output pixel. Those beyond count() are 0.
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
  [[nodiscard]] std::size_t first(std::size_t i) const noexcept { return first_[i - range_.begin]; }
  [[nodiscard]] std::size_t count(std::size_t i) const noexcept { return count_[i - range_.begin]; }
  [[nodiscard]] const std::int32_t* weights(std::size_t i) const noexcept {
    return weights_.data() + (i - range_.begin) * stride_;
  }

 private:
  struct Range {
    std::size_t in = 0;
    std::size_t out = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    Filter filter{};

    friend bool operator==(const Range&, const Range&) = default;
  };

  template <class Weight>
  void compute_by(const Range& range);

  Range range_{};
  std::size_t stride_ = 0;
  std::vector<std::size_t> first_;
  std::vector<std::size_t> count_;
  std::vector<std::int32_t> weights_;
  std::vector<double> exact_;
};

}  // namespace shardwise::detail
