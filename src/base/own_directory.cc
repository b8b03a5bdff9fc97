#include "base/own_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/normal_path.h"
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
  if (::mkdir(c_path(path), 0700) != 0 && errno != EEXIST) {
    throw_errno(errno, "cannot make the directory", path);
  }
}

void make_directories(const std::string& path) {
  struct stat st {};
  if (::stat(c_path(path), &st) == 0) return;
  if (const std::string above = directory_of(path); above != path && above != ".") {
    make_directories(above);
  }
  make_directory(path);
}

void require_own_directory(const std::string& path, std::string_view purpose) {
  struct stat st {};
  if (::stat(c_path(path), &st) != 0) throw_errno(errno, "cannot access", path);
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

bool is_group_directory(const std::string& path) {
  struct stat st {};
  if (::stat(c_path(path), &st) != 0) throw_errno(errno, "cannot access", path);
  return S_ISDIR(st.st_mode) && (st.st_mode & S_IWGRP) != 0 && (st.st_mode & S_ISGID) != 0;
}

void make_group_directory(const std::string& path) {
  struct stat st {};
  if (::stat(c_path(path), &st) == 0) return;
  constexpr std::size_t kRandomLength = 12;
  const std::string fresh = path + "." + random_name(kRandomLength);
  make_directory(fresh);
  const bool is_made =
      ::chmod(fresh.c_str(), 02770) == 0 && ::rename(fresh.c_str(), c_path(path)) == 0;
  const int error = errno;
  if (is_made) return;
  ::rmdir(fresh.c_str());
  const bool is_there = error == EEXIST || error == ENOTEMPTY;  // another process was faster
  if (!is_there) throw_errno(error, "cannot make the directory", path);
}

void share_as_folder(const File& file) noexcept {
  struct stat folder {
  }, own{};
  if (::stat(directory_of(file.path()).c_str(), &folder) != 0 || (folder.st_mode & S_IWGRP) == 0) {
    return;
  }
  constexpr mode_t kShared = 0660;
  if (::fstat(file.fd(), &own) != 0 || (own.st_mode & 0777) == kShared) return;
  // Fails for a file of another user's, who shared it.
  static_cast<void>(::fchmod(file.fd(), kShared));
}

void require_no_public_directory(const std::string& path, std::string_view purpose) {
  struct stat st {};
  if (::stat(c_path(path), &st) != 0) throw_errno(errno, "cannot access", path);
  if (!S_ISDIR(st.st_mode)) {
    refuse_directory(path, purpose, "it is a file", "give a directory of its own");
  }
  if ((st.st_mode & S_IWOTH) != 0) {
    refuse_directory(path, purpose, "everybody may write to it",
                     "chmod o-w it, once nobody untrusted wrote to it, or give another");
  }
}

}  // namespace shardwise
