#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// True if `bytes` is well-formed UTF-8 (no surrogates, nothing above U+10FFFF, no overlong forms).
SHARDWISE_EXPORT bool is_utf8(std::string_view bytes) noexcept;

/// Returns `bytes` as one printable line: control and invisible characters, backslashes and
/// malformed UTF-8 become `\n`, `\t`, `\\`, or `\xNN` per byte. It is for names in archives, which
/// may contain any bytes.
SHARDWISE_EXPORT std::string escaped(std::string_view bytes);

/// Returns escaped(bytes) in single quotes, cut to about 200 bytes, for error texts.
SHARDWISE_EXPORT std::string in_quotes(std::string_view bytes);

/// Returns two lower-case hexadecimal digits per byte.
SHARDWISE_EXPORT std::string hex(std::string_view bytes);
/// True if `text` contains only lower-case hexadecimal digits.
SHARDWISE_EXPORT bool is_hex(std::string_view text) noexcept;

/// Parses a decimal integer with an optional minus sign. Returns nothing if `text` has any other
/// form, or the number does not fit.
SHARDWISE_EXPORT std::optional<std::int64_t> parse_int64(std::string_view text) noexcept;

/// Formats seconds since the Unix epoch as UTC in ISO 8601, e.g. "2026-11-22T10:45:00Z".
SHARDWISE_EXPORT std::string utc_text(std::int64_t seconds);

/// Formats a size for people, in powers of 1,024, e.g. "1.5 GiB", "831 B".
SHARDWISE_EXPORT std::string human_bytes(std::uint64_t num_bytes);

/// Formats a count for people, e.g. "1,234,567".
SHARDWISE_EXPORT std::string human_count(std::uint64_t count);

}  // namespace shardwise::detail

namespace shardwise {
using detail::escaped;
using detail::hex;
using detail::human_bytes;
using detail::human_count;
using detail::in_quotes;
using detail::is_hex;
using detail::is_utf8;
using detail::parse_int64;
using detail::utc_text;
}  // namespace shardwise
