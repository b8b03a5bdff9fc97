#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardwise {

/// A list of words as JSON text: an array of strings; a word that is not UTF-8 is {"hex": "..."}.
std::string words_to_json(const std::vector<std::string>& words);
/// Parses what words_to_json() returns. Errors: InvalidArgument if `json` is no such text.
std::vector<std::string> words_from_json(std::string_view json);

}  // namespace shardwise
