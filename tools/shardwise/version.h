#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "order/algorithms.h"

namespace shardwise::tools {

/// Returns an algorithm's name in JSON, e.g. "epoch_order".
std::string json_name(Algorithm algorithm);

/// Returns everything that determines how this program reads, writes and orders: its version, the
/// versions of algorithms and formats, and its libraries at run time. Add new facts here:
/// version_text() prints the whole object.
nlohmann::ordered_json version_json();

/// Returns the versions for people: the program's name and version, and one line for each other
/// member. REQUIRES: the first member of `json` is "version".
std::string version_text(const std::string& program, const nlohmann::ordered_json& json);

}  // namespace shardwise::tools
