#include "base/own_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <deque>
#include <utility>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr mode_t kOthersRead = S_IRGRP | S_IROTH;

struct stat status_of(const std::string& path) {
  struct stat st {};
  if (::stat(c_path(path), &st) != 0) throw_errno(errno, "cannot access", path);
  return st;
}

bool is_of_another(const struct stat& st) noexcept {
  return st.st_uid != ::geteuid() && st.st_uid != 0;
}

/// True if another user may change the entry `entry` of `folder`. In a sticky folder such as /tmp,
/// only the owners of the entry and of the folder may change it.
bool may_change_entry(const struct stat& folder, const struct stat& entry) noexcept {
  if (is_of_another(folder)) return true;
  if ((folder.st_mode & kOthersWrite) == 0) return false;
  return (folder.st_mode & S_ISVTX) == 0 || is_of_another(entry);
}

/// Splits a path into names, and drops empty names and ".".
std::deque<std::string> names_of(const std::string& path) {
  std::deque<std::string> names;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    if (!name.empty() && name != ".") names.push_back(name);
    at = end + 1;
  }
  return names;
}

/// Sets the file's mode. A failure is ignored, because a shared file may belong to another user.
void set_mode(const File& file, mode_t mode) noexcept {
  struct stat st {};
  if (::fstat(file.fd(), &st) != 0 || (st.st_mode & 0777) == mode) return;
  static_cast<void>(::fchmod(file.fd(), mode));
}

mode_t mode_in_folder_of(const File& file) {
  struct stat folder {};
  const bool is_shared =
      ::stat(directory_of(file.path()).c_str(), &folder) == 0 && (folder.st_mode & S_IWGRP) != 0;
  return is_shared ? 0660 : 0600;
}

}  // namespace

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
  const struct stat st = status_of(path);
  if (!S_ISDIR(st.st_mode)) {
    refuse_directory(path, purpose, "the path names a file", "name a directory");
  }
  if (st.st_uid != ::geteuid()) {
    refuse_directory(path, purpose, "the directory belongs to another user",
                     "name a directory that you own");
  }
  require_unshared_directory(path, purpose);
}

void require_unshared_directory(const std::string& path, std::string_view purpose) {
  if ((status_of(path).st_mode & kOthersWrite) != 0) {
    refuse_directory(path, purpose, "other users may write to the directory",
                     "run chmod go-w on the directory, or name another directory");
  }
}

bool belongs_to_another(const std::string& path) { return is_of_another(status_of(path)); }

bool may_be_written_by_others(const File& file) {
  struct stat st {};
  if (::fstat(file.fd(), &st) != 0) throw_errno(errno, "cannot access", file.path());
  return is_of_another(st) || (st.st_mode & kOthersWrite) != 0;
}

bool may_be_replaced_by_others(const std::string& path) {
  constexpr int kMaxLinks = 40;  // the kernel's limit
  int links = 0;
  std::string at = "/";
  std::deque<std::string> left =
      names_of((path.starts_with('/') ? "" : working_directory() + "/") + path);
  while (!left.empty()) {
    const std::string name = std::exchange(left.front(), {});
    left.pop_front();
    if (name == "..") {
      at = directory_of(at);
      continue;
    }
    const std::string next = (at == "/" ? at : at + "/") + name;
    struct stat entry {};
    if (::lstat(next.c_str(), &entry) != 0) throw_errno(errno, "cannot access", next);
    if (may_change_entry(status_of(at), entry)) return true;
    if (!S_ISLNK(entry.st_mode)) {
      at = next;
      continue;
    }
    char target[PATH_MAX] = {};
    if (++links > kMaxLinks || ::readlink(next.c_str(), target, sizeof target - 1) < 0) {
      throw_errno(links > kMaxLinks ? ELOOP : errno, "cannot follow the link", next);
    }
    if (target[0] == '/') at = "/";
    const std::deque<std::string> names = names_of(target);
    left.insert(left.begin(), names.begin(), names.end());
  }
  return false;
}

bool is_group_directory(const std::string& path) {
  const struct stat st = status_of(path);
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
  // If true, another process has already made the directory.
  const bool is_there = error == EEXIST || error == ENOTEMPTY;
  if (!is_there) throw_errno(error, "cannot make the directory", path);
}

void share_as_folder(const File& file) { set_mode(file, mode_in_folder_of(file)); }

void share_for_reading(const File& file, const std::string& like) {
  struct stat st {};
  const mode_t readers = ::stat(like.c_str(), &st) == 0 ? st.st_mode & kOthersRead : 0;
  set_mode(file, mode_in_folder_of(file) | readers);
}

void require_no_public_directory(const std::string& path, std::string_view purpose) {
  const struct stat st = status_of(path);
  if (!S_ISDIR(st.st_mode)) {
    refuse_directory(path, purpose, "the path names a file", "name a directory");
  }
  if ((st.st_mode & S_IWOTH) != 0) {
    refuse_directory(path, purpose, "all users may write to the directory",
                     "name another directory; if no untrusted user wrote to this directory, run "
                     "chmod o-w on it");
  }
}

}  // namespace shardwise
