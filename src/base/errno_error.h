#pragma once

#include <string_view>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// No descriptor is free, in the process or the system.
class SHARDWISE_EXPORT NoDescriptor : public ErrorOf<ErrorCode::kIo> {
  using ErrorOf::ErrorOf;
};
/// A file that can be opened cannot be mapped: there is no address space for it, the process has
/// all the mappings that it may have, or the file system maps nothing.
class SHARDWISE_EXPORT CannotMap : public ErrorOf<ErrorCode::kIo> {
  using ErrorOf::ErrorOf;
};

/// Throws the error that `errno_value` stands for: NotFound for ENOENT, kNoSpace for ENOSPC, EDQUOT
/// and EFBIG, NoDescriptor for EMFILE and ENFILE, kIo otherwise. `action` is a verb phrase, as
/// "cannot open".
[[noreturn]] SHARDWISE_EXPORT void throw_errno(int errno_value, std::string_view action,
                                               std::string_view path);

}  // namespace shardwise::detail

namespace shardwise {
using detail::CannotMap;
using detail::NoDescriptor;
using detail::throw_errno;
}  // namespace shardwise
