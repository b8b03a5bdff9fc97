#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

/// True for the files of a directory that it stands for as a source.
bool is_named_like_a_shard(const std::string& path);

/// True for a path or URL that, as a source, is a wids descriptor.
bool is_named_like_a_descriptor(const std::string& path);

/// `a{1..3}b{x,y}` to a1bx, a1by, a2bx, ...; a brace with neither `..` nor `,` stands for itself.
/// Errors: InvalidArgument for a malformed one, or more than 10 million.
std::vector<std::string> expand_braces(const std::string& pattern);

/// A text for error texts that may hold URLs, and not only at its beginning: of these the scheme.
std::string without_urls(const std::string& text);

/// A source that has one of these and does not exist is a glob.
inline constexpr std::string_view kGlobCharacters = "*?[";
/// One that has one of these may be a pattern.
inline constexpr std::string_view kPatternCharacters = "*?[{";

}  // namespace shardwise
