#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/text.h"

namespace shardwise {

/// Returns the text member `name`; empty if it is missing or `json` is not an object.
inline std::string json_text(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return {};
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Returns the number member `name`, truncated to an integer; nullopt if it is missing. Accepts an
/// integer in a string. Clamped to 10^15, more than any real time in seconds.
inline std::optional<std::int64_t> json_count(const nlohmann::json& json, const char* name) {
  if (const std::string text = json_text(json, name); !text.empty()) return parse_int64(text);
  if (!json.is_object()) return std::nullopt;
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return static_cast<std::int64_t>(std::clamp(found->get<double>(), -1e15, 1e15));
}

}  // namespace shardwise
