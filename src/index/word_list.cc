#include "index/word_list.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

std::string from_hex(const std::string& text) {
  if (text.size() % 2 != 0 || !is_hex(text)) throw InvalidArgument("not hexadecimal text", "", "");
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace

std::string words_to_json(const std::vector<std::string>& words) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& word : words) {
    if (is_utf8(word)) {
      list.push_back(word);
    } else {
      list.push_back({{"hex", hex(word)}});
    }
  }
  return list.dump();
}

std::vector<std::string> words_from_json(std::string_view json) {
  std::vector<std::string> words;
  try {
    const nlohmann::json list = nlohmann::json::parse(json);
    if (!list.is_array()) throw InvalidArgument("not a list of words", "", "");
    for (const nlohmann::json& word : list) {
      words.push_back(word.is_object() ? from_hex(word.at("hex").get<std::string>())
                                       : word.get<std::string>());
    }
  } catch (const nlohmann::json::exception& e) {
    throw InvalidArgument("not a list of words", e.what(), "");
  }
  return words;
}

}  // namespace shardwise
