#pragma once

#include <sys/stat.h>

#include <cerrno>

#include "base/errno_error.h"
#include "base/file.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// Restricts the file to its owner (mode 0600). Call it before writing secrets.
inline void make_private(const File& file) {
  if (::fchmod(file.fd(), S_IRUSR | S_IWUSR) != 0) {
    throw_errno(errno, "cannot restrict the permissions", file.path());
  }
}

/// Gives `file` the mode of `like`.
inline void set_mode_as(const File& like, const File& file) {
  struct stat st {};
  if (::fstat(like.fd(), &st) != 0 || ::fchmod(file.fd(), st.st_mode & 07777) != 0) {
    throw_errno(errno, "cannot set the permissions", file.path());
  }
}

}  // namespace shardwise
