#pragma once

#include <string>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"

namespace shardwise {

// Errors that users know by their codes alone.
namespace detail {

/// An option whose value no data could make valid, as a time or a number of threads beyond its
/// range: for the programs wrong usage, for users of the library an InvalidArgument as others.
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

/// Throws the class that belongs to `code`: an error of another process, as it was there.
[[noreturn]] SHARDWISE_EXPORT void throw_error(ErrorCode code, const std::string& text);

}  // namespace detail

using detail::CorruptIndex;
using detail::InvalidOption;
using detail::OutOfRange;
using detail::throw_error;
using detail::Unsupported;
using detail::VersionMismatch;

}  // namespace shardwise
