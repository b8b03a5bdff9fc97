#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "index/offset_table.h"
#include "shardwise/index/index.h"
#include "shardwise/index/query.h"

namespace shardwise {

/// Largest field, in bytes, that can be metadata.
inline constexpr std::uint64_t kMaxColumnFieldBytes = std::uint64_t{1} << 20;

/// Limits for values without a JSON path: columns hold values to query by, not images. JSON text
/// may be as large as the field.
inline constexpr std::uint64_t kMaxBlobValueBytes = std::uint64_t{4} << 10;  // not UTF-8
inline constexpr std::uint64_t kMaxTextValueBytes = std::uint64_t{64} << 10;

/// Extracts column values from fields.
/// Threads: one.
class ColumnReader {
 public:
  explicit ColumnReader(const std::vector<Index::Column>& columns);

  /// Returns the value of columns[column] in a field's bytes, or null if the JSON path matches
  /// nothing. The value's bytes are valid until the next call, and while `field` lives.
  /// Cost: O(bytes of the field).
  /// Errors: JsonFault if the column needs JSON and the field is not JSON.
  MetadataValue read(std::size_t column, std::string_view field);

  /// Returns why this field's value is too large for columns[column], or nothing if it is not.
  std::optional<std::string> too_large(std::size_t column, std::string_view field) const;

 private:
  /// A step of a JSON path: an object's key, or an array's index.
  struct Step {
    std::optional<std::string> key = std::nullopt;
    bool is_from_end = false;  ///< `[#-2]`
    std::int64_t number = 0;
  };

  static std::vector<Step> steps_of(std::string_view path);
  /// Consumes the value that begins with `token`, and sets found_ to the value at `steps` in it.
  void find(JsonReader& reader, JsonReader::Token token, std::span<const Step> steps);
  void take(JsonReader& reader, JsonReader::Token token);
  void take_number(const JsonReader& reader);

  const std::vector<Index::Column>& columns_;
  std::vector<std::vector<Step>> steps_;  // of each column
  MetadataValue found_;
  std::string text_;  // the bytes of found_, if they are not in the field itself
};

}  // namespace shardwise
