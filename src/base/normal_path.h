#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Replaces a leading "~" or "~/" by this user's home folder, as a shell does: HOME, or the entry
/// in the system's user list. Other paths stay unchanged: "~name" is a file of that name, and "./~"
/// the folder "~".
/// Errors: InvalidArgument if the user has no home folder.
SHARDWISE_EXPORT std::string at_home(std::string path);
SHARDWISE_EXPORT std::vector<std::string> at_home(std::vector<std::string> paths);

}  // namespace shardwise::detail

namespace shardwise {

using detail::at_home;

/// Resolves "." and ".." in `path` as the kernel does: ".." after a symbolic link is the folder
/// above the link's target. A relative path stays relative, unless such a link leads elsewhere.
/// Never throws for missing files.
/// Cost: one lstat(2) per ".."; resolves the links that stand before one.
std::string normal_path(const std::string& path);

/// Calls normal_path() and at_home(), and makes the path absolute.
std::string normal_absolute_path(const std::string& path);

/// Returns the path for system calls, which would stop at a NUL.
/// Errors: InvalidArgument if it holds a NUL.
const char* c_path(const std::string& path);

}  // namespace shardwise
