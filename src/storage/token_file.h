#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/cancel.h"

namespace shardwise {

/// Reads a small text file of settings or credentials, without its byte order mark; nullopt if it
/// cannot be read. Waiting for data from a pipe can be cancelled.
/// @param what  name of the file in messages, e.g. "the file of AWS profiles".
/// Errors: InvalidArgument if the text is UTF-16 or UTF-32, contains a NUL, or exceeds 16 MiB;
///   Cancelled.
std::optional<std::string> find_text(const std::string& path, std::string_view what,
                                     const CancelToken& cancel = {});

/// Reads the token in the file at `path`: its first line, trimmed.
/// @param what  name of the token in messages, e.g. "bearer token".
/// Errors: InvalidArgument if the file cannot be read, or its first line is not a token; Cancelled.
///   Messages never contain the file's content.
std::string read_token(const std::string& path, std::string_view what,
                       const CancelToken& cancel = {});

}  // namespace shardwise
