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

// Code shared by the columns of images and of videos.

namespace shardwise::detail {

SHARDWISE_EXPORT DType dtype_of(ImageTransform::Type type) noexcept;

/// Returns [H, W, 3] or [3, H, W].
SHARDWISE_EXPORT std::vector<std::int64_t> image_shape(const ImageTransform& transform,
                                                       std::size_t height, std::size_t width);

/// Whether a size of the transform is ImageTransform::Size::by_group().
SHARDWISE_EXPORT bool has_size_by_group(const ImageTransform& transform) noexcept;

/// Returns the transform of a group whose pictures have `size`.
SHARDWISE_EXPORT ImageTransform with_size(ImageTransform transform,
                                          const ImageTransform::Size& size);

/// Plans the transform of an image of this size. If the result's size depends on the image, limits
/// the result to `max_pixels`, as a malformed image could state a huge size.
/// Errors: DecodeFailure.
SHARDWISE_EXPORT ImagePlan plan_within(const ImageTransformer& transformer,
                                       const ImageTransform::Size& stored, const Hash128& key,
                                       std::uint64_t max_pixels);

/// Throws InvalidArgument: "the images of one batch differ in size".
[[noreturn]] SHARDWISE_EXPORT void throw_other_size(const Sample& sample, std::string_view images,
                                                    const ImageTransform::Size& size,
                                                    const ImageTransform::Size& first);

}  // namespace shardwise::detail
