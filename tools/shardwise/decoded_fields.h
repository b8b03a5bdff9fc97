#pragma once

#include <optional>
#include <string>

#include "shardwise/loader/columns.h"

namespace shardwise::tools {

/// A column that decodes fields of a sample, drops the results, and returns the number of images:
/// int64 [N].
/// @param every_field  decode each field by its name; otherwise only the image.
/// @param image_field  the image's field, "jpg;png"; empty means: the sample's one image.
/// @param transform    applied to images.
/// Errors, when a sample is loaded: BadField, NotFound.
Column decoded_fields(bool every_field, const std::string& image_field,
                      const std::optional<ImageTransform>& transform);

/// A column that reads all bytes of a sample and yields checksum_of() of it: int64 [N].
Column read_fields();

}  // namespace shardwise::tools
