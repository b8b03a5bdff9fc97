#include "shardwise/index/sample_name.h"

namespace shardwise {

std::optional<SampleName> split_sample_name(std::string_view name) noexcept {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base || dot + 1 == name.size()) return std::nullopt;
  return SampleName{.key = name.substr(0, dot), .field = name.substr(dot + 1)};
}

}  // namespace shardwise
