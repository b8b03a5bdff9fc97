#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

/// True if a directory that is given as a source includes a file of this name.
bool is_named_like_a_shard(const std::string& path);

/// True if a source of this path or URL is a wids descriptor.
bool is_named_like_a_descriptor(const std::string& path);

/// Expands `a{1..3}b{x,y}` to a1bx, a1by, a2bx, ...; a brace without `..` or `,` stands for itself.
/// Errors: InvalidArgument for a malformed pattern, or one of more than 10 million names.
std::vector<std::string> expand_braces(const std::string& pattern);

/// Returns `text` for error texts. If it has a URL, the rest after the URL's scheme is hidden; a
/// text that is one URL is redacted instead.
std::string without_urls(const std::string& text);

/// A source with one of these that does not exist as a path is a glob.
inline constexpr std::string_view kGlobCharacters = "*?[";
/// A source with one of these may be a pattern.
inline constexpr std::string_view kPatternCharacters = "*?[{";

}  // namespace shardwise
