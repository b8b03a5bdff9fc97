#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "index/sqlite.h"
#include "shardwise/index/column.h"
#include "shardwise/index/offset_table.h"

namespace shardwise {

/// Fields above this are not taken for metadata.
inline constexpr std::uint64_t kMaxColumnFieldBytes = std::uint64_t{1} << 20;

/// Takes the values of columns out of fields. One thread.
class ColumnReader {
 public:
  explicit ColumnReader(const std::vector<Column>& columns);

  /// The value of columns[column] in a field's bytes; nothing if the field should hold JSON and
  /// does not. What it points to is valid until the next call, and while `field` is.
  std::optional<MetadataValue> read(std::size_t column, std::string_view field);

 private:
  const std::vector<Column>& columns_;
  sqlite::Database db_;
  sqlite::Statement extract_;
};

}  // namespace shardwise
