#include "tar/sample_name.h"

#include <algorithm>

#include "base/ascii.h"

namespace shardwise::detail {

std::optional<SampleName> split_sample_name(std::string_view name) noexcept {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  const SampleName parts{.key = name.substr(0, dot), .field = name.substr(dot + 1)};
  const std::size_t last_dot = parts.key.rfind('.');
  if (last_dot == std::string_view::npos) return parts;
  // WebDataset's pattern requires that the key has no newline before some slash, and no dot after
  // it.
  const std::size_t first_slash = name.find('/', last_dot);
  if (name.substr(0, first_slash).find('\n') != std::string_view::npos) return std::nullopt;
  return parts;
}

bool is_hidden_name(std::string_view name) noexcept {
  return name.substr(name.rfind('/') + 1).starts_with('.');
}

bool is_name_of(std::string_view name, std::string_view key, std::string_view field) noexcept {
  return name.size() == key.size() + 1 + field.size() && name.starts_with(key) &&
         name[key.size()] == '.' && same_field(field, name.substr(key.size() + 1));
}

bool is_meta_name(std::string_view name) noexcept {
  constexpr std::string_view kMark = "__";
  if (!name.starts_with(kMark)) return false;
  const std::size_t slash = name.find('/');
  std::string_view first = name.substr(0, slash);
  const bool whole = slash == std::string_view::npos;
  if (whole && first.ends_with(kMark)) return true;  // true also for `__` and `___`
  if (whole && first.ends_with('\n')) first.remove_suffix(1);
  return first.size() >= 2 * kMark.size() && first.ends_with(kMark);
}

bool same_field(std::string_view lower, std::string_view name) noexcept {
  return lower.size() == name.size() && std::equal(lower.begin(), lower.end(), name.begin(),
                                                   [](char a, char b) { return a == to_lower(b); });
}

}  // namespace shardwise::detail
