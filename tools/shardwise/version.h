#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "order/algorithms.h"

namespace shardwise::tools {

/// "epoch_order": the name of an algorithm in JSON.
std::string json_name(Algorithm algorithm);

/// What decides what this program reads, writes and orders: its version, those of the algorithms
/// and formats, and the libraries that it runs with. To say more of it, add to this object: the
/// text below is made of it.
nlohmann::ordered_json version_json();

/// The same for people: the program's name and version, and then a line for each of the others.
/// `program` is the name; of `json` the first member must be called "version".
std::string version_text(const std::string& program, const nlohmann::ordered_json& json);

}  // namespace shardwise::tools
