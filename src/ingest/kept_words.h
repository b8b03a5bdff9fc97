#pragma once

#include <string>
#include <vector>

#include "index/index_files.h"

namespace shardwise {

/// True if the word may stand for other files than the one of this name.
bool is_pattern(const std::string& word);

/// How a word of SourceList::sources is kept: as url_of_path, where what comes before the first
/// character of a pattern is a path.
std::string kept_word(const std::string& index_path, const std::string& word);

/// The words that an index was built with, as paths from the working folder.
std::vector<std::string> words_from_here(const IndexFiles& index);

}  // namespace shardwise
