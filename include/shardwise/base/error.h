#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// What went wrong, for programs; `what()` says it for people.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< an option or argument that cannot be meant; the text lists what can
  kOutOfRange,       ///< a sample, position or rank outside its half-open range
  kNotFound,         ///< a path, key or field that does not exist
  kIo,               ///< the operating system refused; the text carries its reason
  kNoSpace,          ///< the disk, a quota or a file-size limit is full
  kCorruptShard,     ///< a shard breaks the tar format, or a strict rule of WebDataset
  kUnsupported,      ///< valid, but not read by this version (compressed or sparse shards)
  kStaleIndex,       ///< a shard is not the one that was indexed
  kCorruptIndex,     ///< an index file is damaged or hostile
  kVersionMismatch,  ///< an index or token of another format version
  kBadField,         ///< a field's bytes are not what was asked for (a number, an image, ...)
  kMismatch,         ///< a resume token or merge part that belongs to something else
  kNotExact,         ///< an epoch proof failed
  kCancelled,        ///< the caller asked to stop
  kDistributed,      ///< a process group could not be formed, or a peer was lost
  kFetch,            ///< a remote file could not be brought
};

/// The name of `code` without its `k`, as "StaleIndex".
SHARDWISE_EXPORT std::string_view error_code_name(ErrorCode code) noexcept;

/// Base of everything this library throws. `what()` stands alone:
///
///     <what failed>: <shard, file or sample>[, <byte offset or member>]; <what to do>
///
/// Names that come from archives are escaped, so the text is one printable line.
class SHARDWISE_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text);

  /// Joins the three parts as above. `where` or `remedy` may be empty.
  Error(ErrorCode code, std::string_view what, std::string_view where, std::string_view remedy);

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Subclasses exist for what callers catch; everything else is an Error with its code.
template <ErrorCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& text) : Error(kCode, text) {}
  ErrorOf(std::string_view what, std::string_view where, std::string_view remedy)
      : Error(kCode, what, where, remedy) {}
};

class SHARDWISE_EXPORT InvalidArgument : public ErrorOf<ErrorCode::kInvalidArgument> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT OutOfRange : public ErrorOf<ErrorCode::kOutOfRange> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT NotFound : public ErrorOf<ErrorCode::kNotFound> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT CorruptShard : public ErrorOf<ErrorCode::kCorruptShard> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT Unsupported : public ErrorOf<ErrorCode::kUnsupported> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT StaleIndex : public ErrorOf<ErrorCode::kStaleIndex> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT CorruptIndex : public ErrorOf<ErrorCode::kCorruptIndex> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT VersionMismatch : public ErrorOf<ErrorCode::kVersionMismatch> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT BadField : public ErrorOf<ErrorCode::kBadField> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT Mismatch : public ErrorOf<ErrorCode::kMismatch> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT NotExact : public ErrorOf<ErrorCode::kNotExact> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT Cancelled : public ErrorOf<ErrorCode::kCancelled> {
  using ErrorOf::ErrorOf;
};
/// A remote file could not be brought: the server refused, failed, or did not keep to its word. The
/// text has the URL without its secrets, the HTTP status or the network's reason, and the attempts.
class SHARDWISE_EXPORT FetchError : public ErrorOf<ErrorCode::kFetch> {
  using ErrorOf::ErrorOf;
};

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

}  // namespace shardwise
