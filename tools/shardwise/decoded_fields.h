#pragma once

#include <optional>
#include <string>

#include "shardwise/loader/columns.h"

namespace shardwise::tools {

/// Returns a column that decodes fields of a sample and discards the results. Its values are the
/// numbers of decoded images: int64 [N].
/// @param every_field  decode each field by its name; otherwise only the image.
/// @param image_field  names of the image's field, "jpg;png"; empty means: the sample's only image.
/// @param transform    applied to images. Errors, when a sample is loaded: BadField, NotFound.
Column decoded_fields(bool every_field, const std::string& image_field,
                      const std::optional<ImageTransform>& transform);

/// Returns a column that reads all bytes of a sample. Its values are checksum_of() the samples:
/// int64 [N].
Column read_fields();

}  // namespace shardwise::tools
