#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/cancel.h"

namespace shardwise {

/// The text of a small file of settings or credentials, without a byte order mark; none if it
/// cannot be read. While a pipe has nothing to read, it hears `cancel`.
/// @param what  names the file in texts: "the file of AWS profiles".
/// Errors: InvalidArgument for a text in UTF-16 or UTF-32, with a NUL, or above 16 MiB; Cancelled.
std::optional<std::string> find_text(const std::string& path, std::string_view what,
                                     const CancelToken& cancel = {});

/// The token in the file at `path`: its first line, without the blanks around it.
/// @param what  names the token in texts: "bearer token".
/// Errors: InvalidArgument if the file cannot be read, or its first line is no token. The text
///   holds nothing of the file's content. Cancelled, as above.
std::string read_token(const std::string& path, std::string_view what,
                       const CancelToken& cancel = {});

}  // namespace shardwise
