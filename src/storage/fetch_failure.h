#pragma once

#include <string>
#include <string_view>

#include "shardwise/base/error.h"

namespace shardwise {

/// The host's name is not known, or no connection to it came about in time.
class NotReached : public FetchError {
 public:
  using FetchError::FetchError;
};

/// The server does not send parts of a file as it should. The whole may be had.
class BadPart : public FetchError {
 public:
  using FetchError::FetchError;
};

/// Throws BadPart, as throw_fetch_error().
[[noreturn]] void throw_bad_part(std::string_view url, std::string_view reason,
                                 std::string_view remedy);

/// Throws NotReached, as throw_fetch_error().
[[noreturn]] void throw_not_reached(std::string_view url, std::string_view reason,
                                    std::string_view remedy);

/// Throws FetchError "cannot fetch: '<url without secrets>' (<reason>); <remedy>".
[[noreturn]] void throw_fetch_error(std::string_view url, std::string_view reason,
                                    std::string_view remedy);
/// Throws NotFound: the source says that there is no such file.
[[noreturn]] void throw_not_found(std::string_view url, std::string_view reason,
                                  std::string_view remedy);
/// Throws StaleIndex, with the validator that was wanted and the one that the file has ("": none).
/// @param cause  what else may be why; empty: nothing is known.
[[noreturn]] void throw_changed_at_source(std::string_view url, std::string_view wanted,
                                          std::string_view now, std::string_view cause = {});

}  // namespace shardwise
