#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// Throws BadField for the field at `place`: "cannot decode field 'png' as an image (reason)".
[[noreturn]] SHARDWISE_EXPORT void throw_bad_field(const Sample& sample, std::size_t place,
                                                   std::string_view type, std::string_view reason);
/// Throws BadField: the run found more bad samples than `max_bad`. `which` describes one of these
/// samples.
[[noreturn]] SHARDWISE_EXPORT void throw_too_many_bad(std::size_t found, std::uint64_t max_bad,
                                                      const std::string& which);
/// Throws BadField: the run found no good sample. `which` says which samples are bad, and `first`
/// is the error of the first.
[[noreturn]] void throw_all_bad(const std::string& which, const std::string& first);

}  // namespace shardwise::detail
