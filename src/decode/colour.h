#pragma once

#include <array>
#include <cstdint>

#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

// Colour changes like those of torchvision.transforms.v2 on uint8 tensors. Results differ from
// torchvision's by at most 1 of 255. docs/formats/transforms.md specifies the arithmetic: float32,
// with every operation rounded, so that results are the same on every machine.

namespace shardwise::detail {

/// Multiplies every value by `factor`. REQUIRES (for all functions here): factor >= 0.
SHARDWISE_EXPORT void adjust_brightness(RgbImage& image, float factor);
/// Moves every value away from the image's mean gray if factor > 1, and towards it if factor < 1.
SHARDWISE_EXPORT void adjust_contrast(RgbImage& image, float factor);
/// Moves every pixel away from its own gray if factor > 1, and towards it if factor < 1.
SHARDWISE_EXPORT void adjust_saturation(RgbImage& image, float factor);
/// Rotates the hue by `turns` full circles, in [-0.5, 0.5].
SHARDWISE_EXPORT void adjust_hue(RgbImage& image, float turns);
/// Replaces each pixel by its gray value.
SHARDWISE_EXPORT void make_gray(RgbImage& image);

}  // namespace shardwise::detail
