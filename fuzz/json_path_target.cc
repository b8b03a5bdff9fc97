#include <optional>
#include <string>

#include "index/field_values.h"
#include "index_files.h"
#include "targets.h"

namespace shardwise::fuzz {

void json_path_target(std::string_view input) {
  if (input.empty()) return;
  const std::string_view path = input.substr(1, static_cast<unsigned char>(input[0]));
  const std::string_view json = input.substr(1 + path.size());
  if (!detail::JsonPath::is_valid(path)) return;
  const detail::JsonPath parsed(path);
  touch(parsed.last_key());
  std::optional<std::string_view> found;
  bool is_json = true;
  try {
    found = parsed.find(json);
  } catch (const JsonFault&) {
    is_json = false;
  }
  SHARDWISE_FUZZ_REQUIRE(is_json == !json_fault(json).has_value());
  if (!found) return;
  SHARDWISE_FUZZ_REQUIRE(lies_within(*found, json) && !json_fault(*found));
  std::string compact, bytes;
  detail::append_without_blanks(compact, *found);
  SHARDWISE_FUZZ_REQUIRE(!json_fault(compact));
  const MetadataValue value = detail::json_value(*found, bytes);
  if (value.type == ValueType::kText || value.type == ValueType::kBlob) touch(value.bytes);
}

std::vector<std::string> json_path_seeds() {
  const std::string json =
      R"({"a":[1,-2,{"b c":"\u00e9\ud83d\ude00"}],"a.b":{"":null},"a":[[true]], "n" : 1e3})";
  std::vector<std::string> seeds;
  for (const std::string path : {"$", "$.a[0]", "$.a[#-1]", "$.\"a.b\".\"\"", "$.n", "$[#]"}) {
    seeds.push_back(static_cast<char>(path.size()) + path + json);
  }
  return seeds;
}

}  // namespace shardwise::fuzz
