#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardwise::detail {

/// The function that gives the weights of a resize, by distance from the centre of the output
/// pixel.
enum class Filter : std::uint8_t {
  kBilinear,  ///< triangle function
  kBicubic    ///< Keys' cubic function with a = -0.5
};

/// The input pixels and weights of each output pixel, in one direction. They are Pillow's, as
/// specified in docs/formats/transforms.md. Weights are integers with 22 fractional bits.
class ResizeTaps {
 public:
  /// Computes the taps of outputs [begin, end) of `out` outputs. Reuses its memory. Returns false
  /// if the same taps were computed before.
  /// REQUIRES: in > 0, begin < end <= out.
  bool compute(std::size_t in, std::size_t out, std::size_t begin, std::size_t end, Filter filter);

  /// Returns the number of weights that are stored per output pixel. Weights at and after count()
  /// are 0.
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
