#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "order/algorithms.h"

namespace shardwise::tools {

/// "epoch_order": the name of an algorithm in JSON.
std::string json_name(Algorithm algorithm);

/// Everything that determines how this program reads, writes and orders: its version, those of
/// algorithms and formats, and its libraries at run time. Add new facts to this object:
/// version_text() prints all of it.
nlohmann::ordered_json version_json();

/// The versions for people: the program's name and version, and one line for each other member. The
/// first member of `json` must be called "version".
std::string version_text(const std::string& program, const nlohmann::ordered_json& json);

}  // namespace shardwise::tools
