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

/// What a transform does to one image: everything that was random is decided.
struct ImagePlan {
  enum class Adjustment : std::uint8_t { kBrightness, kContrast, kSaturation, kHue };
  struct Jitter {
    std::array<Adjustment, 4> order{};
    std::array<double, 4> amounts{};  ///< by Adjustment: three factors, and turns

    friend bool operator==(const Jitter&, const Jitter&) = default;
  };

  Box source{};            ///< the part of the stored image that is needed
  ResizedPart part{};      ///< what the source is resized to, and the part of that which is shown
  std::size_t height = 0;  ///< of the result
  std::size_t width = 0;
  std::size_t top = 0;  ///< where the part begins in the result, before flips; padding is around it
  std::size_t left = 0;
  Flips flips{};
  std::optional<Jitter> jitter{};
  bool is_gray = false;
  std::optional<Box> erased{};  ///< of the result
};

/// A transform that was checked, with what it needs for every image computed once.
///
/// Threads: safe concurrently; scratch memory of each thread holds one image where colours change.
class SHARDWISE_EXPORT ImageTransformer {
 public:
  /// Errors: InvalidArgument.
  explicit ImageTransformer(const ImageTransform& transform);

  [[nodiscard]] const ImageTransform& transform() const noexcept { return transform_; }
  /// The size of every result; empty if that depends on the image.
  [[nodiscard]] std::optional<ImageTransform::Size> fixed_size() const noexcept;
  [[nodiscard]] std::size_t value_bytes() const noexcept;

  /// @param key  sample_key() of the sample.
  /// REQUIRES: no side is 0.
  [[nodiscard]] ImagePlan plan(const ImageTransform::Size& stored, const Hash128& key) const;
  /// Whether apply() would write the pixels of plan.source as they are.
  [[nodiscard]] bool keeps_pixels(const ImagePlan& plan) const noexcept;
  /// Writes plan.height x plan.width x 3 values to `out`.
  /// REQUIRES: for kUint16, that the source was decoded with keep_16_bits.
  /// @param source  the pixels of plan.source, and nothing else; smaller, if that was decoded at a
  ///   part of its size.
  void apply(const ImagePlan& plan, const RgbView& source, void* out) const;

 private:
  void write(const RgbView& image, const PixelTarget& target, void* out) const;
  void erase(const ImagePlan& plan, void* out) const;

  ImageTransform transform_;
  PixelTable<float> floats_{};
  PixelTable<std::uint16_t> halves_{};
};

}  // namespace shardwise::detail
