#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// The kind of an error, for programs. Error::what() describes it for people.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< an option or argument is not valid; the text lists the valid values
  kOutOfRange,       ///< a sample, position or rank is outside its half-open range
  kNotFound,         ///< a path, key or field does not exist
  kIo,               ///< a system call failed; the text has the system's reason
  kNoSpace,          ///< the disk, a quota or the limit on file size is exhausted
  kCorruptShard,     ///< a shard violates the tar format or a strict rule of WebDataset
  kUnsupported,      ///< valid, but this version cannot read it (e.g. sparse members)
  kStaleIndex,       ///< a shard is not the one that was indexed
  kCorruptIndex,     ///< an index file is damaged or was tampered with
  kVersionMismatch,  ///< an index or token has another format version
  kBadField,         ///< a field's bytes are not of the requested kind (number, image, ...)
  kMismatch,         ///< a resume token or a part of an index belongs to something else
  kNotExact,         ///< an epoch proof failed
  kCancelled,        ///< the caller asked to stop
  kDistributed,      ///< a process group could not be formed, or a peer was lost
  kFetch,            ///< a remote file could not be fetched
};

/// The name of `code` without its `k`, e.g. "StaleIndex".
SHARDWISE_EXPORT std::string_view error_code_name(ErrorCode code) noexcept;

/// The base class of every exception of this library. `what()` can be understood without context:
///
///     <what failed>: <shard, file or sample>[, <byte offset or member>]; <what to do>
///
/// Names from archives are escaped, so the text is one printable line.
class SHARDWISE_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text);

  /// Joins the three parts as shown above. `where` or `remedy` may be empty.
  Error(ErrorCode code, std::string_view what, std::string_view where, std::string_view remedy);

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

namespace detail {
template <ErrorCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& text) : Error(kCode, text) {}
  ErrorOf(std::string_view what, std::string_view where, std::string_view remedy)
      : Error(kCode, what, where, remedy) {}
};
}  // namespace detail

// Errors that programs handle have a subclass. All other errors are an Error with a code. E.g.
// "Errors: OutOfRange" means an Error with the code ErrorCode::kOutOfRange.

class SHARDWISE_EXPORT InvalidArgument : public detail::ErrorOf<ErrorCode::kInvalidArgument> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT NotFound : public detail::ErrorOf<ErrorCode::kNotFound> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT CorruptShard : public detail::ErrorOf<ErrorCode::kCorruptShard> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT StaleIndex : public detail::ErrorOf<ErrorCode::kStaleIndex> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT BadField : public detail::ErrorOf<ErrorCode::kBadField> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT Mismatch : public detail::ErrorOf<ErrorCode::kMismatch> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT NotExact : public detail::ErrorOf<ErrorCode::kNotExact> {
  using ErrorOf::ErrorOf;
};
class SHARDWISE_EXPORT Cancelled : public detail::ErrorOf<ErrorCode::kCancelled> {
  using ErrorOf::ErrorOf;
};
/// A remote file could not be fetched: the server refused, failed, or sent contradictory answers.
/// The text has the URL without secrets, the HTTP status or the network error, and the number of
/// attempts.
class SHARDWISE_EXPORT FetchError : public detail::ErrorOf<ErrorCode::kFetch> {
  using ErrorOf::ErrorOf;
};

}  // namespace shardwise
