#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/text.h"

namespace shardwise {

/// The text that is called `name` in an object; empty if there is none, or `json` is no object.
inline std::string json_text(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return {};
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The number that is called `name` there, also a whole one in a text, without what follows its
/// point; nothing if there is none. One that is larger than any time is 10^15.
inline std::optional<std::int64_t> json_count(const nlohmann::json& json, const char* name) {
  if (const std::string text = json_text(json, name); !text.empty()) return parse_int64(text);
  if (!json.is_object()) return std::nullopt;
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return static_cast<std::int64_t>(std::clamp(found->get<double>(), -1e15, 1e15));
}

}  // namespace shardwise
