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
/// Cost: one copy or inflation, and a look at each array. Memory: at most twice max_bytes.
/// Errors: DecodeFailure; it names the arrays that there are, or the name that two of them have.
SHARDWISE_EXPORT std::string read_npz(std::string_view bytes, std::string_view array,
                                      std::uint64_t max_bytes);

}  // namespace shardwise::detail
