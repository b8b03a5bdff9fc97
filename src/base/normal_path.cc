#include "base/normal_path.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/errno_error.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace fs = std::filesystem;

namespace {

std::string home_folder() {
  if (const char* const home = std::getenv("HOME"); home != nullptr && home[0] != '\0') return home;
  passwd entry{};
  passwd* found = nullptr;
  char text[4096];
  if (::getpwuid_r(::geteuid(), &entry, text, sizeof text, &found) != 0 || found == nullptr) {
    return {};
  }
  return entry.pw_dir;
}

/// True if no component is empty, "." or "..".
bool is_normal(std::string_view path) {
  if (path.starts_with('/')) path.remove_prefix(1);
  for (;;) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == path.size()) return true;
    path.remove_prefix(end + 1);
  }
}

}  // namespace

std::string detail::at_home(std::string path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const std::string home = home_folder();
  if (home.empty()) {
    throw InvalidArgument("this user has no home folder", in_quotes(path),
                          "set HOME, or write ./~ for a folder named ~");
  }
  return home + path.substr(1);
}

std::vector<std::string> detail::at_home(std::vector<std::string> paths) {
  for (std::string& path : paths) path = at_home(std::move(path));
  return paths;
}

std::string normal_path(const std::string& path) {
  if (is_normal(path)) return path;
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
      if (failed) {  // a dangling link; opening the path reports it
        normal /= part;
        continue;
      }
      normal = std::move(target);
    }
    if (normal.empty() || normal.filename() == "..") {
      normal /= part;
    } else {
      normal = normal.parent_path();  // the parent of "/" is "/"
    }
  }
  return normal.empty() ? "." : normal.string();
}

std::string working_directory() {
  char path[PATH_MAX] = {};
  if (::getcwd(path, sizeof path) == nullptr) {
    throw_errno(errno, "cannot access the working directory", ".");
  }
  return path;
}

std::string normal_absolute_path(const std::string& path) {
  const std::string whole = at_home(path);
  return normal_path(whole.starts_with('/') ? whole : working_directory() + "/" + whole);
}

const char* c_path(const std::string& path) {
  if (path.find('\0') == std::string::npos) return path.c_str();
  throw InvalidArgument("the path has a NUL character", in_quotes(path), "correct the path");
}

}  // namespace shardwise
