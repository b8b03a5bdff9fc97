#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Replaces a leading "~" or "~/" by this user's home folder, as a shell does. The home folder is
/// HOME, or else the entry in the system's user list. Other paths are unchanged: "~name" is a file
/// of that name, and "./~" is the folder "~".
/// Errors: InvalidArgument if the user has no home folder.
SHARDWISE_EXPORT std::string at_home(std::string path);
SHARDWISE_EXPORT std::vector<std::string> at_home(std::vector<std::string> paths);

}  // namespace shardwise::detail

namespace shardwise {

using detail::at_home;

/// Resolves "." and ".." in `path` as the kernel does: ".." after a symbolic link is the folder
/// above the link's target. A relative path remains relative, unless such a link has an absolute
/// target. Missing files are not errors.
/// Cost: one lstat(2) per "..". Only symbolic links directly before a ".." are resolved.
std::string normal_path(const std::string& path);

/// Returns the absolute path of this process's working directory.
/// Errors: NotFound if the directory was removed; kIo.
std::string working_directory();

/// Applies at_home() and normal_path(), and makes the path absolute.
/// Errors: those of at_home() and working_directory().
std::string normal_absolute_path(const std::string& path);

/// Returns the path for system calls. A NUL is refused, because a system call would use only the
/// part before it.
/// Errors: InvalidArgument if the path contains a NUL.
const char* c_path(const std::string& path);

}  // namespace shardwise
