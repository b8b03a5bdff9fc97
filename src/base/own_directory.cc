#include "base/own_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {

void refuse_directory(const std::string& path, std::string_view purpose, std::string_view why,
                      std::string_view remedy) {
  throw InvalidArgument(
      "the directory cannot be " + std::string(purpose) + " (" + std::string(why) + ")",
      in_quotes(path), remedy);
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    throw_errno(errno, "cannot make the directory", path);
  }
}

void make_directories(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) return;
  if (const std::string above = directory_of(path); above != path && above != ".") {
    make_directories(above);
  }
  make_directory(path);
}

void require_own_directory(const std::string& path, std::string_view purpose) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) throw_errno(errno, "cannot access", path);
  if (!S_ISDIR(st.st_mode)) {
    refuse_directory(path, purpose, "it is a file", "give a directory of its own");
  }
  if (st.st_uid != ::geteuid()) {
    refuse_directory(path, purpose, "it belongs to another user", "give a directory of your own");
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    refuse_directory(path, purpose, "others may write to it", "chmod 700 it, or give another");
  }
}

}  // namespace shardwise
