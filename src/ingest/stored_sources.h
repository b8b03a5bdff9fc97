#pragma once

#include <string>
#include <vector>

#include "index/index_files.h"

namespace shardwise {

/// True if the word may stand for several files.
bool is_pattern(const std::string& word);

/// Returns the words without the users, passwords and signatures of their URLs: see unsigned_url. A
/// brace pattern with a secret inside becomes the URLs that it stands for, stripped.
std::vector<std::string> sources_without_secrets(const std::vector<std::string>& words);

/// Returns the words of SourceList::sources in stored form: without secrets, and with paths made by
/// url_of_path. In a pattern, only the path before its first pattern character is changed.
std::vector<std::string> stored_sources_of(const std::string& index_path,
                                           const std::vector<std::string>& words);

/// The stored sources of an index, as paths from the working folder.
std::vector<std::string> sources_from_here(const IndexFiles& index);

}  // namespace shardwise
