#pragma once

#include <string>
#include <vector>

#include "index/index_files.h"

namespace shardwise {

/// True if the source may stand for several files.
bool is_pattern(const std::string& word);

/// Returns the sources without users, passwords and signatures in their URLs; see unsigned_url(). A
/// brace pattern that contains a secret is replaced by the URLs that it expands to, without
/// secrets.
std::vector<std::string> sources_without_secrets(const std::vector<std::string>& words);

/// Converts SourceList::sources to the form that the index stores: without secrets, and with paths
/// made by url_of_path(). In a pattern, only the path before the first pattern character is
/// changed.
std::vector<std::string> stored_sources_of(const std::string& index_path,
                                           const std::vector<std::string>& words);

/// Returns the stored sources of an index, as paths relative to the working directory.
std::vector<std::string> sources_from_here(const IndexFiles& index);

}  // namespace shardwise
