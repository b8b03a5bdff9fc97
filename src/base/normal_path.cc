#include "base/normal_path.h"

#include <filesystem>

#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace fs = std::filesystem;

std::string normal_path(const std::string& path) {
  fs::path normal;
  for (const fs::path& part : fs::path(path)) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      normal /= part;
      continue;
    }
    std::error_code failed;
    if (fs::is_symlink(normal, failed)) {
      fs::path target = fs::canonical(normal, failed);
      if (failed) {  // a dangling link: opening the path will report it
        normal /= part;
        continue;
      }
      normal = std::move(target);
    }
    if (normal.empty() || normal.filename() == "..") {
      normal /= part;
    } else {
      normal = normal.parent_path();  // of "/" itself
    }
  }
  return normal.empty() ? "." : normal.string();
}

std::string normal_absolute_path(const std::string& path) {
  return normal_path(fs::absolute(path).string());
}

const char* c_path(const std::string& path) {
  if (path.find('\0') == std::string::npos) return path.c_str();
  throw InvalidArgument("the path has a NUL character", in_quotes(path), "correct the path");
}

}  // namespace shardwise
