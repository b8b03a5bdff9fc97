#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/cancel.h"

namespace shardwise {

/// The text of a small file of settings or credentials, without a byte order mark; nullopt if it
/// cannot be read. A wait for data from a pipe can be cancelled.
/// @param what  names the file in messages: "the file of AWS profiles".
/// Errors: InvalidArgument for a text in UTF-16 or UTF-32, with a NUL, or above 16 MiB; Cancelled.
std::optional<std::string> find_text(const std::string& path, std::string_view what,
                                     const CancelToken& cancel = {});

/// The token in the file at `path`: its first line, trimmed.
/// @param what  names the token in messages: "bearer token".
/// Errors: InvalidArgument if the file cannot be read, or its first line is not a token; Cancelled.
///   No message holds the file's content.
std::string read_token(const std::string& path, std::string_view what,
                       const CancelToken& cancel = {});

}  // namespace shardwise
