#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns the .npy bytes of one array in a NumPy .npz file, which is a zip archive. The array may
/// be stored (numpy.savez) or deflated (numpy.savez_compressed).
/// @param array      name that was passed to numpy: "tokens" for the member "tokens.npy".
/// @param max_bytes  maximum size of the array, because a small archive may expand to terabytes.
/// Cost: one copy or inflation, and a scan of the archive's entries.
/// Memory: at most twice max_bytes.
/// Errors: DecodeFailure. The text lists the existing arrays, or names an array that occurs twice.
SHARDWISE_EXPORT std::string read_npz(std::string_view bytes, std::string_view array,
                                      std::uint64_t max_bytes);

}  // namespace shardwise::detail
