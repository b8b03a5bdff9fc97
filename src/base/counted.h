#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"

namespace shardwise::detail {

/// A count with its noun, for people: "1 shard", "2,000 shards", "2 misses", "2 deliveries".
inline std::string counted(std::uint64_t count, std::string_view singular) {
  std::string text = human_count(count) + " " + std::string(singular);
  if (count == 1) return text;
  if (singular.ends_with('s')) return text + "es";
  return singular.ends_with('y') ? text.substr(0, text.size() - 1) + "ies" : text + "s";
}

/// A count with its noun and a verb: "1 shard is", "2,000 shards are".
inline std::string counted(std::uint64_t count, std::string_view singular,
                           std::string_view verb_of_one, std::string_view verb_of_many) {
  return counted(count, singular) + " " + std::string(count == 1 ? verb_of_one : verb_of_many);
}

}  // namespace shardwise::detail

namespace shardwise {
using detail::counted;
}  // namespace shardwise
