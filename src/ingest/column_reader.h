#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "index/field_values.h"
#include "index/offset_table.h"
#include "shardwise/index/index.h"
#include "shardwise/index/query.h"

namespace shardwise {

/// Maximum size of a field that can be used as metadata, in bytes.
inline constexpr std::uint64_t kMaxColumnFieldBytes = std::uint64_t{1} << 20;

/// Maximum sizes of values in columns without a JSON path. They are limited because columns are
/// meant for queries, not for images. JSON text may be as large as the field. kMaxBlobValueBytes
/// applies to values that are not UTF-8, kMaxTextValueBytes to all others.
inline constexpr std::uint64_t kMaxBlobValueBytes = std::uint64_t{4} << 10;
inline constexpr std::uint64_t kMaxTextValueBytes = std::uint64_t{64} << 10;

/// Extracts the columns' values from fields.
/// Threads: one.
class ColumnReader {
 public:
  explicit ColumnReader(const std::vector<Index::Column>& columns);

  /// Returns the value of columns[column] in a field's bytes; null if the JSON path matches
  /// nothing. The value's bytes are valid until the next call, as long as `field` exists.
  /// Cost: O(size of the field).
  /// Errors: JsonFault if the column needs JSON and the field is not JSON.
  MetadataValue read(std::size_t column, std::string_view field);

  /// Returns why this field's value is too large for columns[column]; nullopt if it is not too
  /// large.
  std::optional<std::string> too_large(std::size_t column, std::string_view field) const;

 private:
  const std::vector<Index::Column>& columns_;
  std::vector<std::optional<detail::JsonPath>> paths_;  // of each column, if it has one
  std::string bytes_;  // bytes of the last value that are not in the field itself
};

}  // namespace shardwise
