#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

/// True if a file with this name counts as a shard in a directory that is used as a source.
bool is_named_like_a_shard(const std::string& path);

/// True if a source with this path or URL is a wids descriptor.
bool is_named_like_a_descriptor(const std::string& path);

/// Expands `a{1..3}b{x,y}` to a1bx, a1by, a2bx, ...; a brace without `..` or `,` is literal text.
/// Braces within braces are expanded as in a shell: `{a,b{1..2}}` to a, b1, b2.
/// Errors: InvalidArgument for a malformed pattern, or a pattern of more than 10 million names.
std::vector<std::string> expand_braces(const std::string& pattern);

/// Returns `text` for error texts, without the secrets of its URLs. If the whole text is a URL, the
/// URL is redacted. If it contains a URL, everything after the URL's scheme is removed.
std::string without_urls(const std::string& text);

/// A source that contains one of these characters, and does not exist as a path, is a glob.
inline constexpr std::string_view kGlobCharacters = "*?[";
/// A source that contains one of these characters may be a pattern.
inline constexpr std::string_view kPatternCharacters = "*?[{";

}  // namespace shardwise
