#include "base/normal_path.h"

#include <filesystem>

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

}  // namespace shardwise
