#pragma once

#include <string>
#include <string_view>

#include "decode/decode_failure.h"
#include "decode/field_kind.h"
#include "decode/image_codec.h"
#include "decode/npy.h"
#include "decode/pixels.h"
#include "shardwise/data/sample.h"
#include "shardwise/libtorch/decode.h"

namespace shardwise::libtorch::detail {

using shardwise::detail::Box;
using shardwise::detail::decode_rgb;
using shardwise::detail::DecodeFailure;
using shardwise::detail::field_kind;
using shardwise::detail::FieldKind;
using shardwise::detail::NpyHeader;
using shardwise::detail::parse_npy_header;
using shardwise::detail::require_resizable;
using shardwise::detail::RgbImage;
using shardwise::detail::write_npy;
using shardwise::detail::write_pixels;

/// Returns e.g. "cannot decode field 'png' as an image".
std::string decode_action(std::string_view field, std::string_view type);

[[noreturn]] void throw_bad_field(std::string_view action, std::string_view reason,
                                  const std::string& where);

/// Throws InvalidArgument if only one of the two sides is given.
void require_size(const ImageSize& size);

}  // namespace shardwise::libtorch::detail
