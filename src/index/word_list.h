#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

/// Returns a list of words as a JSON array of strings. A word that is not UTF-8 becomes {"hex":
/// "..."}.
std::string words_to_json(const std::vector<std::string>& words);
/// Parses the result of words_to_json(). Errors: InvalidArgument if `json` is malformed.
std::vector<std::string> words_from_json(std::string_view json);

}  // namespace shardwise
