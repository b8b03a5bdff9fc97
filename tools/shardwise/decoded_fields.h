#pragma once

#include <optional>
#include <string>

#include "shardwise/loader/columns.h"

namespace shardwise::tools {

/// A column that decodes what is in a sample, drops it, and says how many images that were: int64
/// [N].
/// @param every_field  each by its name; otherwise the image.
/// @param image_field  its field, "jpg;png"; empty: the sample's one image.
/// @param transform    of the images.
/// Errors, when a sample is loaded: BadField, NotFound.
Column decoded_fields(bool every_field, const std::string& image_field,
                      const std::optional<ImageTransform>& transform);

/// A column that reads all bytes of a sample, and holds their checksum_of(): int64 [N].
Column read_fields();

}  // namespace shardwise::tools
