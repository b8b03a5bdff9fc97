#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

// Readers of small text files that people write: lists of shards, skip files, headers, tokens.
// Windows, spreadsheets and `find -print0` write such files differently; these functions treat the
// differences in one way.

/// The UTF-8 byte order mark, which Windows writes at the front of texts.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Returns `text` without a byte order mark. It does not require UTF-8, because file names may
/// contain any bytes.
/// @param what   for error texts, e.g. "the list of shards".
/// @param where  for error texts, e.g. a result of in_quotes().
/// Errors: InvalidArgument for a text in UTF-16 or UTF-32, or with a NUL.
SHARDWISE_EXPORT std::string_view checked_text(std::string_view text, std::string_view what,
                                               std::string_view where);

/// Splits checked_text() into lines without their ends (LF or CRLF); the last line may lack an end.
/// Lifetime: the views point into `text`.
/// Errors: those of checked_text().
SHARDWISE_EXPORT std::vector<std::string_view> lines_of(std::string_view text,
                                                        std::string_view what,
                                                        std::string_view where);

/// Reads all of a file, pipe or device of unknown size. A wait for a pipe ends when `cancel` or
/// this thread's CancelScope is cancelled.
/// @param path  file to read; empty means standard input.
/// @param what  for error texts, see checked_text().
/// Errors: InvalidArgument if there are more than `max_bytes`, or `path` is a directory; Cancelled;
///   those of throw_errno().
SHARDWISE_EXPORT std::string read_text(const std::string& path, std::uint64_t max_bytes,
                                       std::string_view what, const CancelToken& cancel = {});

/// Returns the name of the file at `path` in the error texts of read_text(). Pass it as `where` to
/// lines_of().
SHARDWISE_EXPORT std::string name_of_text(const std::string& path);

}  // namespace shardwise::detail

namespace shardwise {
using detail::checked_text;
using detail::lines_of;
using detail::name_of_text;
using detail::read_text;
}  // namespace shardwise
