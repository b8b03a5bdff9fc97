#pragma once

#include <string>

namespace shardwise {

/// `path` without "." and ".." inside it, as the kernel would go: what is above a symbolic link is
/// the folder above the link's target, not what stands before it in the text. A relative path stays
/// relative, unless such a link leads elsewhere. Never throws for what does not exist.
/// Cost: one readlink(2) for each "..".
std::string normal_path(const std::string& path);

/// As normal_path(), but absolute.
std::string normal_absolute_path(const std::string& path);

/// The path for calls of the operating system, which would read it up to a NUL only.
/// Errors: InvalidArgument if it has one.
const char* c_path(const std::string& path);

}  // namespace shardwise
