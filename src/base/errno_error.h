#pragma once

#include <string_view>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The process or the system has no free descriptor.
class SHARDWISE_EXPORT NoDescriptor : public ErrorOf<ErrorCode::kIo> {
  using ErrorOf::ErrorOf;
};
/// The file can be opened, but not mapped: the address space is exhausted, the process has reached
/// its limit on mappings, or the file system lacks mmap.
class SHARDWISE_EXPORT CannotMap : public ErrorOf<ErrorCode::kIo> {
  using ErrorOf::ErrorOf;
};

/// Throws the error for `errno_value`: NotFound for ENOENT; kNoSpace for ENOSPC, EDQUOT and EFBIG;
/// NoDescriptor for EMFILE and ENFILE; kIo otherwise.
/// @param action  a verb phrase, e.g. "cannot open".
[[noreturn]] SHARDWISE_EXPORT void throw_errno(int errno_value, std::string_view action,
                                               std::string_view path);

}  // namespace shardwise::detail

namespace shardwise {
using detail::CannotMap;
using detail::NoDescriptor;
using detail::throw_errno;
}  // namespace shardwise
