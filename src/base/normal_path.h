#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// `path` with this user's home folder in the place of a "~" that stands alone or before a slash,
/// as a shell has it: HOME, or what the system's list of users says. Anything else stays as it is:
/// "~name" is a file of that name, and "./~" the folder "~".
/// Errors: InvalidArgument if there is no home folder.
SHARDWISE_EXPORT std::string at_home(std::string path);
SHARDWISE_EXPORT std::vector<std::string> at_home(std::vector<std::string> paths);

}  // namespace shardwise::detail

namespace shardwise {

using detail::at_home;

/// `path` without "." and ".." inside it, as the kernel would go: what is above a symbolic link is
/// the folder above the link's target, not what stands before it in the text. A relative path stays
/// relative, unless such a link leads elsewhere. Never throws for what does not exist.
/// Cost: one readlink(2) for each "..".
std::string normal_path(const std::string& path);

/// As normal_path(), but absolute, and at_home().
std::string normal_absolute_path(const std::string& path);

/// The path for calls of the operating system, which would read it up to a NUL only.
/// Errors: InvalidArgument if it has one.
const char* c_path(const std::string& path);

}  // namespace shardwise
