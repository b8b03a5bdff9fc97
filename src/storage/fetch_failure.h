#pragma once

#include <string>
#include <string_view>

#include "shardwise/base/error.h"

namespace shardwise {

/// The host's name is unknown, or no connection was established in time.
class NotReached : public FetchError {
 public:
  using FetchError::FetchError;
};

/// The server does not send parts of a file as it should. Fetching the whole file may work.
class BadPart : public FetchError {
 public:
  using FetchError::FetchError;
};

/// Throws BadPart, with the text of throw_fetch_error().
[[noreturn]] void throw_bad_part(std::string_view url, std::string_view reason,
                                 std::string_view remedy);

/// Throws NotReached, with the text of throw_fetch_error().
[[noreturn]] void throw_not_reached(std::string_view url, std::string_view reason,
                                    std::string_view remedy);

/// Throws FetchError "cannot fetch: '<url without secrets>' (<reason>); <remedy>".
[[noreturn]] void throw_fetch_error(std::string_view url, std::string_view reason,
                                    std::string_view remedy);
/// Throws NotFound: the source says that there is no such file.
[[noreturn]] void throw_not_found(std::string_view url, std::string_view reason,
                                  std::string_view remedy);
/// Throws StaleIndex, naming the wanted validator and the file's (may be empty).
/// @param cause  another possible cause; may be empty.
[[noreturn]] void throw_changed_at_source(std::string_view url, std::string_view wanted,
                                          std::string_view now, std::string_view cause = {});

}  // namespace shardwise
