#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "index/offset_table.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

// Converts fields to SQL values. Metadata columns of an index and columns of a loader both use
// these functions, so that their values are equal.

/// Returns the value of a whole field: an integer or real if it contains only a number and blanks,
/// otherwise a text or blob. An integer that SQL cannot represent is a text.
/// Lifetime: the value's bytes are views into `field`.
[[nodiscard]] SHARDWISE_EXPORT MetadataValue whole_field_value(std::string_view field);

/// Returns the value of a JSON value, as SQLite's json_extract does: true is 1, and objects and
/// arrays are JSON text without blanks.
/// @param json   one valid JSON value, e.g. found by JsonPath::find().
/// @param bytes  memory for the value's bytes.
[[nodiscard]] SHARDWISE_EXPORT MetadataValue json_value(std::string_view json, std::string& bytes);

/// Appends JSON without the blanks between its tokens.
SHARDWISE_EXPORT void append_without_blanks(std::string& out, std::string_view json);

/// A path to a value in a JSON document, in SQLite's syntax: `$`, followed by any number of
/// `.name`, `."name"`, `[N]`, `[#]` and `[#-N]`.
/// Threads: immutable.
class SHARDWISE_EXPORT JsonPath {
 public:
  /// True if `text` is such a path. The whole text is checked; SQLite checks only the steps that it
  /// can follow in a document.
  [[nodiscard]] static bool is_valid(std::string_view text);

  /// REQUIRES: is_valid(text).
  explicit JsonPath(std::string_view text);

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Returns the last key of the path, without quotes; empty if the path has no key.
  [[nodiscard]] std::string_view last_key() const noexcept;

  /// Returns the value at this path, as written, or nothing if the document lacks it. If an object
  /// has a key several times, the last occurrence counts.
  /// Lifetime: a view into `json`.
  /// Errors: JsonFault if `json` is not one valid JSON value.
  /// Cost: O(size of the document).
  [[nodiscard]] std::optional<std::string_view> find(std::string_view json) const;

 private:
  /// A step of the path: a key of an object, or a place in an array.
  struct Step {
    std::optional<std::string> key = std::nullopt;
    bool is_from_end = false;  ///< for `[#-2]`: `number` counts from the end
    std::int64_t number = 0;
  };
  class Search;

  std::string text_;
  std::vector<Step> steps_;
};

}  // namespace shardwise::detail
