#pragma once

#include <string>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"

namespace shardwise {

// Error classes that are not public. Users see only their codes.
namespace detail {

/// An option whose value is invalid for any data, e.g. a number of threads out of range. The
/// command-line programs report it as wrong usage. Library users see an InvalidArgument.
class SHARDWISE_EXPORT InvalidOption : public InvalidArgument {
  using InvalidArgument::InvalidArgument;
};
class SHARDWISE_EXPORT OutOfRange : public ErrorOf<ErrorCode::kOutOfRange> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT Unsupported : public ErrorOf<ErrorCode::kUnsupported> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT CorruptIndex : public ErrorOf<ErrorCode::kCorruptIndex> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT VersionMismatch : public ErrorOf<ErrorCode::kVersionMismatch> {
  using ErrorOf::ErrorOf;
};

/// Throws the error class of `code`. It is used for errors that another process sent.
[[noreturn]] SHARDWISE_EXPORT void throw_error(ErrorCode code, const std::string& text);

}  // namespace detail

using detail::CorruptIndex;
using detail::InvalidOption;
using detail::OutOfRange;
using detail::throw_error;
using detail::Unsupported;
using detail::VersionMismatch;

}  // namespace shardwise
