#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "shardwise/base/file.h"

namespace shardwise {

/// The md5 of all bytes of `file`, 32 lower-case hexadecimal digits: for formats that ask for it.
/// @param bytes_done  called after each piece with how many bytes were read so far; may be empty.
/// Memory: O(1). Errors: kIo; Cancelled if `cancel` is set meanwhile; Unsupported where the
/// system's libcrypto has md5 turned off.
std::string file_md5(const File& file, const std::function<void(std::uint64_t)>& bytes_done,
                     const std::atomic<bool>* cancel);

}  // namespace shardwise
