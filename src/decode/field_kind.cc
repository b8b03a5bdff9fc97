#include "decode/field_kind.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"

namespace shardwise::detail {

FieldKind field_kind(std::string_view field) noexcept {
  struct Row {
    std::string_view name;
    FieldKind kind;
  };
  static constexpr std::array<Row, 20> kRows = {{
      {"jpg", FieldKind::kImage},     {"jpeg", FieldKind::kImage},
      {"png", FieldKind::kImage},     {"ppm", FieldKind::kImage},
      {"pgm", FieldKind::kImage},     {"pnm", FieldKind::kImage},
      {"cls", FieldKind::kInteger},   {"cls2", FieldKind::kInteger},
      {"class", FieldKind::kInteger}, {"count", FieldKind::kInteger},
      {"index", FieldKind::kInteger}, {"inx", FieldKind::kInteger},
      {"id", FieldKind::kInteger},    {"txt", FieldKind::kText},
      {"text", FieldKind::kText},     {"transcript", FieldKind::kText},
      {"json", FieldKind::kJson},     {"jsn", FieldKind::kJson},
      {"npy", FieldKind::kNpy},       {"webp", FieldKind::kImage},
  }};
  const std::size_t dot = field.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? field : field.substr(dot + 1);
  const auto equal = [](char a, char b) { return to_lower(a) == b; };
  for (const Row& row : kRows) {
    if (std::equal(last.begin(), last.end(), row.name.begin(), row.name.end(), equal))
      return row.kind;
  }
  return FieldKind::kBytes;
}

}  // namespace shardwise::detail
