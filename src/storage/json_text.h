#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace shardwise {

/// The text that is called `name` in an object; empty if there is none, or `json` is no object.
inline std::string json_text(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return {};
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace shardwise
