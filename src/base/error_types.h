#pragma once

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"

namespace shardwise {

// Errors that users know by their codes alone.
namespace detail {

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

}  // namespace detail

using detail::CorruptIndex;
using detail::OutOfRange;
using detail::Unsupported;
using detail::VersionMismatch;

}  // namespace shardwise
