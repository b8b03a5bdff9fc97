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

  /// The value of columns[column] in a field's bytes: null where nothing lies at the JSON path.
  /// What it points to is valid until the next call, and while `field` is.
  /// Throws JsonFault if the field should hold JSON and does not.
  /// Cost: about 2 ns a byte.
  MetadataValue read(std::size_t column, std::string_view field);

  /// Why this field's value for columns[column] is too large to be one; nothing if it is not.
  std::optional<std::string> too_large(std::size_t column, std::string_view field) const;

 private:
  /// A step of a JSON path: a key of an object, or a number in an array.
  struct Step {
    std::optional<std::string> key = std::nullopt;
    bool is_from_end = false;  ///< `[#-2]`
    std::int64_t number = 0;
  };

  static std::vector<Step> steps_of(std::string_view path);
  /// Moves over the value that `token` begins, and takes what lies at `steps` in it.
  void find(JsonReader& reader, JsonReader::Token token, std::span<const Step> steps);
  void take(JsonReader& reader, JsonReader::Token token);
  void take_number(const JsonReader& reader);

  const std::vector<Index::Column>& columns_;
  std::vector<std::vector<Step>> steps_;  // of each column
  MetadataValue found_;
  std::string text_;  // what it points to, if that is not in the field as it is
};

}  // namespace shardwise
