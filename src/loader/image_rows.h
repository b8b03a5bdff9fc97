#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "loader/transform.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/sample.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/image_transform.h"

// What columns of images and of videos have in common.

namespace shardwise::detail {

SHARDWISE_EXPORT DType dtype_of(ImageTransform::Type type) noexcept;

/// [H, W, 3] or [3, H, W].
SHARDWISE_EXPORT std::vector<std::int64_t> image_shape(const ImageTransform& transform,
                                                       std::size_t height, std::size_t width);

/// The plan of an image of this size, and whether there is memory for it. Where the size of the
/// result depends on the image, a strange one can make it huge: it is held to `max_pixels`.
/// Errors: DecodeFailure.
SHARDWISE_EXPORT ImagePlan plan_within(const ImageTransformer& transformer,
                                       const ImageTransform::Size& stored, const Hash128& key,
                                       std::uint64_t max_pixels);

/// Errors: InvalidArgument, "the images of one batch differ in size".
[[noreturn]] SHARDWISE_EXPORT void throw_other_size(const Sample& sample, std::string_view images,
                                                    const ImageTransform::Size& size,
                                                    const ImageTransform::Size& first);

}  // namespace shardwise::detail
