#pragma once

#include <cstdint>
#include <string_view>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Told by the first bytes. Errors: DecodeFailure: none of those we read.
Container container_of(std::string_view bytes);

/// Checks what libav would forgive or believe: that the bytes do not end before the boxes, elements
/// or chunks that hold them, and that tables do not promise so many samples that an index of them
/// outgrows the bytes. Errors: DecodeFailure.
void require_plausible(Container container, std::string_view bytes);

}  // namespace shardwise::detail
