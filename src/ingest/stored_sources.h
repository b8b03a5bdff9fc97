#pragma once

#include <string>
#include <vector>

#include "index/index_files.h"

namespace shardwise {

/// True if the word may stand for other files than the one of this name.
bool is_pattern(const std::string& word);

/// The words without the users, passwords and signatures of their URLs: see unsigned_url. A pattern
/// in braces that cannot be stripped, since they hold what is secret, becomes the URLs that it
/// stands for.
std::vector<std::string> sources_without_secrets(const std::vector<std::string>& words);

/// How words of SourceList::sources are kept: without what is secret; paths as url_of_path does it,
/// where what comes before the first character of a pattern is a path.
std::vector<std::string> stored_sources_of(const std::string& index_path,
                                           const std::vector<std::string>& words);

/// The words that an index was built with, as paths from the working folder.
std::vector<std::string> sources_from_here(const IndexFiles& index);

}  // namespace shardwise
