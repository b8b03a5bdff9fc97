#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// One array of a NumPy .npz file, which is a zip archive of .npy files: its bytes, as
/// parse_npy_header() takes them. numpy.savez() stores them, numpy.savez_compressed() deflates.
/// @param array      as it was saved: "tokens" is the member "tokens.npy".
/// @param max_bytes  a small archive may stand for terabytes of zeros; this is where it ends.
/// Cost: one copy, or one inflation; a look at each array's header. Memory: as the array, never more
/// than twice max_bytes.
/// Errors: DecodeFailure, naming the arrays that there are if there is none of that name; of two of
/// that name none is chosen.
SHARDWISE_EXPORT std::string read_npz(std::string_view bytes, std::string_view array,
                                      std::uint64_t max_bytes);

}  // namespace shardwise::detail
