#include "ingest/kept_words.h"

#include "base/file.h"
#include "base/url.h"
#include "ingest/source_names.h"

namespace shardwise {

bool is_pattern(const std::string& word) {
  return word.find_first_of(kPatternCharacters) != std::string::npos;
}

std::string kept_word(const std::string& index_path, const std::string& word) {
  if (is_fetched_url(word)) return word;
  if (!is_pattern(word)) return url_of_path(index_path, word);
  const std::size_t slash = word.rfind('/', word.find_first_of(kPatternCharacters));
  // The pattern itself stays as it is: "*/.." is not the folder before it.
  const std::string folder = slash == std::string::npos ? "." : word.substr(0, slash + 1);
  const std::string pattern = slash == std::string::npos ? word : word.substr(slash + 1);
  const std::string kept = url_of_path(index_path, folder);
  return kept == "." ? "./" + pattern : kept + (kept.ends_with('/') ? "" : "/") + pattern;
}

std::vector<std::string> words_from_here(const IndexFiles& index) {
  std::vector<std::string> words;
  for (const std::string& word : index.catalogue().meta().sources) {
    words.push_back(resolve_url(directory_of(index.path()), word));
  }
  return words;
}

}  // namespace shardwise
