#pragma once

#include <string>
#include <string_view>

namespace shardwise {

// Directories in which this user keeps what others are neither to write nor to replace. `purpose`
// is what the directory is to be, for error texts: "a shard cache".

/// Throws the InvalidArgument that a directory gets which cannot be what it is to be.
[[noreturn]] void refuse_directory(const std::string& path, std::string_view purpose,
                                   std::string_view why, std::string_view remedy);

/// Makes the directory, with mode 0700, unless it is there.
void make_directory(const std::string& path);
/// As make_directory(), and makes the directories above it that are missing.
void make_directories(const std::string& path);

/// Throws unless it is a directory of this user's to which nobody else may write. A link to one
/// will do: what it leads to is checked.
/// Errors: NotFound, kIo; InvalidArgument.
void require_own_directory(const std::string& path, std::string_view purpose);

}  // namespace shardwise
