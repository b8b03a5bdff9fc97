#include "shardwise/tar/sample_name.h"

#include <algorithm>

#include "base/ascii.h"

namespace shardwise {

std::optional<SampleName> split_sample_name(std::string_view name) noexcept {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base || dot + 1 == name.size()) return std::nullopt;
  return SampleName{.key = name.substr(0, dot), .field = name.substr(dot + 1)};
}

bool same_field(std::string_view lower, std::string_view name) noexcept {
  return lower.size() == name.size() && std::equal(lower.begin(), lower.end(), name.begin(),
                                                   [](char a, char b) { return a == to_lower(b); });
}

}  // namespace shardwise
