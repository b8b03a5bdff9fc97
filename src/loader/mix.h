#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/rgb_image.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/loader/image_transform.h"

// Mixup and cutmix. Each sample of a batch is mixed with the sample before it, the first one with
// the last. The label of sample i becomes label i with weight lambda, and label i - 1 with the rest
// of the weight. One random draw serves the whole batch. Specified in docs/formats/transforms.md
// (Batches).

namespace shardwise::detail {

struct CutmixPlan {
  Box box{};          ///< the part that is copied from the previous sample
  double lambda = 1;  ///< 1 - the box's share of the area
};

/// Draws lambda in [0, 1] from Beta(alpha, alpha). REQUIRES: alpha is in [0.001, 1000].
/// @param key  batch_key() of the batch.
SHARDWISE_EXPORT double plan_mixup(double alpha, const Hash128& key);
SHARDWISE_EXPORT CutmixPlan plan_cutmix(double alpha, const ImageTransform::Size& size,
                                        const Hash128& key);

/// Number of the sample that is mixed into sample i of n.
constexpr std::size_t mixed_with(std::size_t i, std::size_t n) noexcept {
  return (i == 0 ? n : i) - 1;
}

/// Mixes n samples of `sample_size` values each, in place: lambda * x + (1 - lambda) * y in
/// float32. Rounds bytes to the nearest integer, halves up.
SHARDWISE_EXPORT void mixup(float* batch, std::size_t n, std::size_t sample_size, double lambda);
SHARDWISE_EXPORT void mixup(std::uint8_t* batch, std::size_t n, std::size_t sample_size,
                            double lambda);
/// Copies the box of the previous sample into each sample, in place. Values have 1, 2 or 4 bytes.
/// The batch is [n, 3, height, width] or [n, height, width, 3].
SHARDWISE_EXPORT void cutmix(void* batch, std::size_t n, const ImageTransform::Size& size,
                             ImageTransform::Layout layout, std::size_t value_bytes,
                             const Box& box);

}  // namespace shardwise::detail
