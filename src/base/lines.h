#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

// Small text files that people write: lists of shards, skip files, headers, tokens. Windows,
// spreadsheets and `find -print0` write them in ways of their own; all are treated alike here.

/// Windows puts it at the front of a text in UTF-8.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// `text` without a byte order mark. Names are bytes: that the rest is UTF-8 is not checked.
/// @param what   for error texts: "the list of shards".
/// @param where  for error texts, as in_quotes() makes it.
/// Errors: InvalidArgument for a text in UTF-16 or UTF-32, or with a NUL.
SHARDWISE_EXPORT std::string_view checked_text(std::string_view text, std::string_view what,
                                               std::string_view where);

/// The lines of checked_text(), without their ends (LF or CRLF); the last may have none. Views into
/// `text`. Errors: as checked_text().
SHARDWISE_EXPORT std::vector<std::string_view> lines_of(std::string_view text,
                                                        std::string_view what,
                                                        std::string_view where);

/// All of a file, pipe or device, whose size need not be known. While a pipe has nothing to read,
/// it hears `cancel` and this thread's CancelScope.
/// @param path  empty: standard input.
/// @param what  for error texts, as above.
/// Errors: InvalidArgument if there are more than `max_bytes`, or `path` is a directory; Cancelled;
///   those of throw_errno().
SHARDWISE_EXPORT std::string read_text(const std::string& path, std::uint64_t max_bytes,
                                       std::string_view what, const CancelToken& cancel = {});

/// How read_text() names that file in its errors, for lines_of().
SHARDWISE_EXPORT std::string name_of_text(const std::string& path);

}  // namespace shardwise::detail

namespace shardwise {
using detail::checked_text;
using detail::lines_of;
using detail::name_of_text;
using detail::read_text;
}  // namespace shardwise
