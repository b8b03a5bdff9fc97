#pragma once

#include <string>
#include <string_view>

#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// Thrown if a host's name cannot be resolved, or no connection was established in time.
class NotReached : public FetchError {
 public:
  using FetchError::FetchError;
};

/// Thrown if a server sends a part of a file incorrectly. Fetching the whole file may work.
class BadPart : public FetchError {
 public:
  using FetchError::FetchError;
};

/// Throws the error "cannot fetch: '<url without secrets>' (<reason>); <remedy>".
/// @tparam E  FetchError, NotReached or BadPart; NotFound if the source says that the file does not
///   exist.
template <class E = FetchError>
[[noreturn]] void throw_fetch_error(std::string_view url, std::string_view reason,
                                    std::string_view remedy) {
  throw E("cannot fetch", in_quotes(redacted_url(url)) + " (" + std::string(reason) + ")", remedy);
}

/// Throws StaleIndex. The text names the requested validator and the file's present one, which may
/// be empty.
/// @param cause  another possible cause; may be empty.
[[noreturn]] void throw_changed_at_source(std::string_view url, std::string_view wanted,
                                          std::string_view now, std::string_view cause = {});

}  // namespace shardwise
