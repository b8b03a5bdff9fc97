#include "value_kind.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace shardwise::tools {
namespace {

constexpr std::array<std::string_view, 7> kFileTypes = {"INDEX",     "SOURCE", "PART", "FILE",
                                                        "FILE|TEXT", "OUT",    "TOKEN"};

ValueKind kind_of_name(std::string_view name) {
  if (name == "DIR") return ValueKind::kDirectory;
  const bool is_file = std::find(kFileTypes.begin(), kFileTypes.end(), name) != kFileTypes.end();
  return is_file ? ValueKind::kFile : ValueKind::kOther;
}

}  // namespace

ValueKind value_kind(const HelpOption& option) {
  if (!option.choices.empty()) return ValueKind::kChoice;
  return option.type.empty() ? ValueKind::kNone : kind_of_name(option.type);
}

ValueKind argument_kind(const HelpOption& argument) { return kind_of_name(argument.names.front()); }

}  // namespace shardwise::tools
