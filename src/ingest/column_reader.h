#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "index/offset_table.h"
#include "index/sqlite.h"
#include "shardwise/index/index.h"
#include "shardwise/index/query.h"

namespace shardwise {

/// Bytes of a field above which it cannot be metadata.
inline constexpr std::uint64_t kMaxColumnFieldBytes = std::uint64_t{1} << 20;

/// Limits for values without a JSON path: a column holds what queries ask for, not images. JSON
/// text may be as large as the field.
inline constexpr std::uint64_t kMaxBlobValueBytes = std::uint64_t{4} << 10;  // not UTF-8
inline constexpr std::uint64_t kMaxTextValueBytes = std::uint64_t{64} << 10;

/// Takes the values of columns out of fields. One thread.
class ColumnReader {
 public:
  explicit ColumnReader(const std::vector<Index::Column>& columns);

  /// The value of columns[column] in a field's bytes; nothing if the field should hold JSON and
  /// does not. What it points to is valid until the next call, and while `field` is.
  std::optional<MetadataValue> read(std::size_t column, std::string_view field);

  /// Why this field's value for columns[column] is too large to be one; nothing if it is not.
  std::optional<std::string> too_large(std::size_t column, std::string_view field);

 private:
  /// The JSON text of what lies at `path`; valid until the next call.
  std::string_view as_written(std::string_view field, const std::string& path);

  const std::vector<Index::Column>& columns_;
  sqlite::Database db_;
  sqlite::Statement extract_;
  sqlite::Statement write_;
  sqlite::Statement valid_;
  std::string text_;  // of the last value, where SQLite has it not whole
};

}  // namespace shardwise
