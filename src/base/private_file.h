#pragma once

#include <sys/stat.h>

#include <cerrno>

#include "base/errno_error.h"
#include "base/file.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// Nobody but its owner may open the file from now on: mode 0600. For what holds secrets, before
/// they are written.
inline void make_private(const File& file) {
  if (::fchmod(file.fd(), S_IRUSR | S_IWUSR) != 0) {
    throw_errno(errno, "cannot restrict who may read", file.path());
  }
}

/// Lets those open the file who may open `like`.
inline void set_mode_as(const File& like, const File& file) {
  struct stat st {};
  if (::fstat(like.fd(), &st) != 0 || ::fchmod(file.fd(), st.st_mode & 07777) != 0) {
    throw_errno(errno, "cannot set who may read", file.path());
  }
}

}  // namespace shardwise
