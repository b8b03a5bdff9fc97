#pragma once

#include <string>
#include <string_view>

#include "libtorch/image_codec.h"
#include "shardwise/data/sample.h"
#include "shardwise/libtorch/decode.h"

namespace shardwise::libtorch::detail {

/// "cannot decode field 'png' as an image".
std::string decode_action(std::string_view field, std::string_view type);

[[noreturn]] void throw_bad_field(std::string_view action, std::string_view reason,
                                  const std::string& where);

/// Decodes a field of a sample into `scratch`. Errors: NotFound, BadField.
void decode_rgb_field(const Sample& sample, std::string_view field, const ImageOptions& options,
                      RgbImage& scratch);

/// Throws InvalidArgument unless both sides are given, or none.
void require_size(const ImageSize& size);

}  // namespace shardwise::libtorch::detail
