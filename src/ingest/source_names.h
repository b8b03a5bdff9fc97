#pragma once

#include <string>
#include <string_view>

namespace shardwise {

/// True for the files of a directory that it stands for as a source.
bool is_named_like_a_shard(const std::string& path);

/// True for a path or URL that, as a source, is a wids descriptor.
bool is_named_like_a_descriptor(const std::string& path);

/// A source that has one of these and does not exist is a glob.
inline constexpr std::string_view kGlobCharacters = "*?[";
/// One that has one of these may be a pattern.
inline constexpr std::string_view kPatternCharacters = "*?[{";

}  // namespace shardwise
