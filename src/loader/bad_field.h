#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// Throws the BadField "cannot decode field 'png' as an image (reason)" of the field at `place`.
[[noreturn]] SHARDWISE_EXPORT void throw_bad_field(const Sample& sample, std::size_t place,
                                                   std::string_view type, std::string_view reason);
/// Throws the BadField of a run that found more bad samples than `max_bad`; `which` names one.
[[noreturn]] SHARDWISE_EXPORT void throw_too_many_bad(std::size_t found, std::uint64_t max_bad,
                                                      const std::string& which);
/// Throws the BadField of a run that found no good sample.
[[noreturn]] void throw_all_bad(const std::string& which, const std::string& first);

}  // namespace shardwise::detail
