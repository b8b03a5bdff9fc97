#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace shardwise::tools {

// The names in the JSON that commands print. A name has one type and one meaning in all commands;
// a test checks their outputs against this list, and cli.md shows it.

enum class JsonType : std::uint8_t {
  kNumber,
  kText,
  kFlag,
  kList,
  kObject,
  kMap,  ///< an object whose names are data, e.g. columns of an index
};

/// "number", "text" ...
std::string_view name_of(JsonType type);

struct JsonName {
  std::string name;
  JsonType type;
  std::string text;          ///< the meaning, in one line
  bool may_be_null = false;  ///< null means that there is none, or that it is not known
};

/// All names, sorted. Bytes that are not UTF-8 have the name with "_hex" appended, as hexadecimal.
const std::vector<JsonName>& json_names();

/// A name that an earlier version printed. Until the next release, the output has both names, with
/// the same value.
struct OldJsonName {
  std::string_view command;
  std::string_view now;
  std::string_view before;
};
std::span<const OldJsonName> old_json_names();

/// Prints one line of JSON with the old names of `command`, e.g. "cache prune".
void print_json(Output& out, std::string_view command, nlohmann::ordered_json json);
/// Returns `json` with the old names of `command` added.
nlohmann::ordered_json with_old_names(std::string_view command, nlohmann::ordered_json json);

}  // namespace shardwise::tools
