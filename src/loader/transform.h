#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "decode/pixels.h"
#include "decode/rgb_image.h"
#include "loader/sample_random.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/loader/image_transform.h"

namespace shardwise::detail {

/// The steps of a transform for one image, with all random choices drawn.
struct ImagePlan {
  enum class Adjustment : std::uint8_t { kBrightness, kContrast, kSaturation, kHue };
  struct Jitter {
    std::array<Adjustment, 4> order{};
    std::array<double, 4> amounts{};  ///< indexed by Adjustment: three factors; for hue, turns

    friend bool operator==(const Jitter&, const Jitter&) = default;
  };

  Box source{};            ///< the part of the stored image that is used
  ResizedPart part{};      ///< size to which the source is resized, and the visible part
  std::size_t height = 0;  ///< size of the result
  std::size_t width = 0;
  std::size_t top = 0;  ///< place of the part in the result, before flips; padding surrounds it
  std::size_t left = 0;
  Flips flips{};
  std::optional<Jitter> jitter{};
  bool is_gray = false;
  std::optional<Box> erased{};  ///< erased box of the result
};

/// A validated transform, with precomputed tables.
///
/// Threads: safe concurrently. If the transform changes colours, each thread keeps one image as
/// scratch memory.
class SHARDWISE_EXPORT ImageTransformer {
 public:
  /// Errors: InvalidArgument.
  explicit ImageTransformer(const ImageTransform& transform);

  [[nodiscard]] const ImageTransform& transform() const noexcept { return transform_; }
  /// The size of every result. Not set if the size depends on the image.
  [[nodiscard]] std::optional<ImageTransform::Size> fixed_size() const noexcept;
  [[nodiscard]] std::size_t value_bytes() const noexcept;

  /// Plans the transform of one image.
  /// @param key  sample_key() of the sample.
  /// REQUIRES: no side is 0.
  [[nodiscard]] ImagePlan plan(const ImageTransform::Size& stored, const Hash128& key) const;
  /// Whether apply() would copy the pixels of plan.source unchanged.
  [[nodiscard]] bool keeps_pixels(const ImagePlan& plan) const noexcept;
  /// Writes plan.height x plan.width x 3 values to `out`.
  /// REQUIRES: for kUint16, the source was decoded with keep_16_bits.
  /// @param source  the pixels of plan.source only; fewer if they were decoded at a reduced size.
  void apply(const ImagePlan& plan, const RgbView& source, void* out) const;

 private:
  void write(const RgbView& image, const PixelTarget& target, void* out) const;
  void erase(const ImagePlan& plan, void* out) const;

  ImageTransform transform_;
  PixelTable<float> floats_{};
  PixelTable<std::uint16_t> halves_{};
};

}  // namespace shardwise::detail
