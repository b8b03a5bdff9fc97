#include "ingest/stored_sources.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/url.h"
#include "ingest/source_names.h"
#include "shardwise/base/error.h"

namespace shardwise {

bool is_pattern(const std::string& word) {
  return word.find_first_of(kPatternCharacters) != std::string::npos;
}

namespace {

/// Returns the names that a brace pattern expands to; nullopt if it is malformed.
std::optional<std::vector<std::string>> expanded(const std::string& pattern) {
  try {
    return expand_braces(pattern);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

/// Returns the URLs without secrets.
std::vector<std::string> stripped(std::vector<std::string> urls) {
  for (std::string& url : urls) url = unsigned_url(url);
  return urls;
}

/// Applies url_of_path() to a source. In a pattern, only the path before the first pattern
/// character is changed.
std::string kept_word(const std::string& index_path, const std::string& word) {
  if (is_fetched_url(word)) return word;
  if (!is_pattern(word)) return url_of_path(index_path, word);
  const std::size_t slash = word.rfind('/', word.find_first_of(kPatternCharacters));
  // Do not normalise the pattern itself, because "*/.." may match another folder.
  const std::string folder = slash == std::string::npos ? "." : word.substr(0, slash + 1);
  const std::string pattern = slash == std::string::npos ? word : word.substr(slash + 1);
  const std::string kept = url_of_path(index_path, folder);
  return kept == "." ? "./" + pattern : kept + (kept.ends_with('/') ? "" : "/") + pattern;
}

}  // namespace

std::vector<std::string> sources_without_secrets(const std::vector<std::string>& words) {
  std::vector<std::string> plain;
  for (const std::string& word : words) {
    std::string bare = unsigned_url(word);
    const bool holds_urls = word.find("://") != std::string::npos && !is_command_url(word);
    if (!holds_urls || word.find('{') == std::string::npos) {
      plain.push_back(std::move(bare));
      continue;
    }
    const auto urls = expanded(word);
    if (!urls || expanded(bare) == stripped(*urls)) {
      plain.push_back(std::move(bare));
    } else {
      std::ranges::move(stripped(*urls), std::back_inserter(plain));
    }
  }
  return plain;
}

std::vector<std::string> stored_sources_of(const std::string& index_path,
                                           const std::vector<std::string>& words) {
  std::vector<std::string> kept = sources_without_secrets(words);
  for (std::string& word : kept) word = kept_word(index_path, word);
  return kept;
}

std::vector<std::string> sources_from_here(const IndexFiles& index) {
  std::vector<std::string> words;
  for (const std::string& word : index.catalogue().meta().sources) {
    words.push_back(resolve_url(directory_of(index.path()), word));
  }
  return words;
}

}  // namespace shardwise
