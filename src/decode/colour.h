#pragma once

#include <array>
#include <cstdint>

#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

// Colour changes like those of torchvision.transforms.v2 on uint8 tensors, with differences of at
// most 1 of 255. The arithmetic is specified in docs/formats/transforms.md: float32, with every
// operation rounded, so that the bytes are the same on every machine.

namespace shardwise::detail {

/// Multiplies every value by `factor`. REQUIRES: factor >= 0, for all functions here.
SHARDWISE_EXPORT void adjust_brightness(RgbImage& image, float factor);
/// Moves every value away from the mean gray (factor > 1), or towards it.
SHARDWISE_EXPORT void adjust_contrast(RgbImage& image, float factor);
/// Moves every pixel away from its gray (factor > 1), or towards it.
SHARDWISE_EXPORT void adjust_saturation(RgbImage& image, float factor);
/// Rotates the hue by `turns` of the circle, in [-0.5, 0.5].
SHARDWISE_EXPORT void adjust_hue(RgbImage& image, float turns);
/// Replaces each pixel by its gray.
SHARDWISE_EXPORT void make_gray(RgbImage& image);

}  // namespace shardwise::detail
