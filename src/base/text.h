#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// True if `bytes` is well-formed UTF-8 (no surrogates, nothing above U+10FFFF, no overlong forms).
SHARDWISE_EXPORT bool is_utf8(std::string_view bytes) noexcept;

/// `bytes` as one printable line: control and invisible characters, backslash and what is not UTF-8
/// become `\n`, `\t`, `\\` or `\xNN` a byte. Names in archives are bytes and may hold anything.
SHARDWISE_EXPORT std::string escaped(std::string_view bytes);

/// `escaped(bytes)` in single quotes, cut to about 200 bytes: for error texts.
SHARDWISE_EXPORT std::string in_quotes(std::string_view bytes);

/// Two lower-case hexadecimal digits a byte.
SHARDWISE_EXPORT std::string hex(std::string_view bytes);
/// True if `text` holds nothing but such digits.
SHARDWISE_EXPORT bool is_hex(std::string_view text) noexcept;

/// A whole decimal number with an optional minus sign and nothing else; nothing if `text` is not
/// one or does not fit.
SHARDWISE_EXPORT std::optional<std::int64_t> parse_int64(std::string_view text) noexcept;

/// "2026-11-22T10:45:00Z": a time in seconds since the Unix epoch, in UTC, by ISO 8601.
SHARDWISE_EXPORT std::string utc_text(std::int64_t seconds);

/// "1.5 GiB", "831 B": for people, in powers of 1,024.
SHARDWISE_EXPORT std::string human_bytes(std::uint64_t num_bytes);

/// "1,234,567": for people.
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
