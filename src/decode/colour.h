#pragma once

#include <array>
#include <cstdint>

#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

// Changes of colour, as torchvision.transforms.v2 makes them on uint8 tensors, up to 1 of 255. The
// arithmetic is that of docs/formats/transforms.md: float32, every operation rounded, so that the
// bytes are the same on every machine.

namespace shardwise::detail {

/// Every value times `factor`. REQUIRES: factor >= 0, as for all of these.
SHARDWISE_EXPORT void adjust_brightness(RgbImage& image, float factor);
/// Away from the mean gray (factor > 1), or towards it.
SHARDWISE_EXPORT void adjust_contrast(RgbImage& image, float factor);
/// Away from each pixel's gray, or towards it.
SHARDWISE_EXPORT void adjust_saturation(RgbImage& image, float factor);
/// Turns the hue by `turns` of the circle, in [-0.5, 0.5].
SHARDWISE_EXPORT void adjust_hue(RgbImage& image, float turns);
/// Each pixel becomes its gray.
SHARDWISE_EXPORT void make_gray(RgbImage& image);

}  // namespace shardwise::detail
