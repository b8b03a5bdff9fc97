#pragma once

#include <cstddef>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// Throws the BadField "cannot decode field 'png' as an image (reason)" of the field at `place`.
[[noreturn]] SHARDWISE_EXPORT void throw_bad_field(const Sample& sample, std::size_t place,
                                                   std::string_view type, std::string_view reason);

}  // namespace shardwise::detail
