#include "loader/read_fields.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/expanding_reader.h"
#include "loader/column_maker.h"

namespace shardwise::detail {

std::optional<std::vector<std::string>> whole_fields(std::span<const Column> columns) {
  std::vector<std::string> names;
  for (const Column& column : columns) {
    const ColumnMaker& maker = *column.maker();
    if (!maker.reads_whole_fields()) continue;
    const FieldChoice* const fields = maker.fields();
    if (fields == nullptr || fields->names().empty()) return std::nullopt;
    names.insert(names.end(), fields->names().begin(), fields->names().end());
  }
  return names;
}

std::vector<std::string> fields_in_parts(std::span<const Column> columns) {
  std::vector<std::string> names;
  const auto whole = whole_fields(columns);
  if (!whole) return names;
  for (const Column& column : columns) {
    const ColumnMaker& maker = *column.maker();
    if (maker.reads_whole_fields() || maker.fields() == nullptr) continue;
    for (const std::string& name : maker.fields()->names()) {
      const bool is_compressed = compression_by_suffix(name) != Compression::kNone;
      if (!is_compressed && std::ranges::find(*whole, name) == whole->end()) names.push_back(name);
    }
  }
  return names;
}

}  // namespace shardwise::detail
