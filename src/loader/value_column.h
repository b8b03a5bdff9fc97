#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "index/field_values.h"
#include "loader/column_maker.h"
#include "loader/field_choice.h"

namespace shardwise::detail {

/// The kind of a column of values.
enum class ValueKind : std::uint8_t { kInteger, kNumber, kText, kJson };

/// A value for rows whose sample has none; monostate if such samples are bad. The alternative fits
/// the column's kind: kText and kJson have texts.
using MissingValue = std::variant<std::monostate, std::int64_t, double, std::string>;

template <class T>
[[nodiscard]] MissingValue missing_value(std::optional<T> value) {
  return value ? MissingValue(*std::move(value)) : MissingValue();
}

/// The fields of a column, perhaps with a JSON path, e.g. "json;json.gz:$.caption". The path is the
/// rest of the text after the first ":$", and applies to each of the fields.
struct ValueFields {
  /// Errors: InvalidArgument; those of FieldChoice::readable().
  explicit ValueFields(std::string_view text);

  /// The default name of the column: the last key of the path, otherwise the first field.
  [[nodiscard]] std::string name() const;
  /// Returns e.g. "'json' 'json.gz' at '$.caption'".
  [[nodiscard]] std::string describe() const;

  /// Returns the value at the path in the field at `place`, as written; nothing if the value is
  /// missing or null.
  /// @param json  memory for the result.
  /// REQUIRES: path.
  /// Errors: BadField if the field is not JSON.
  [[nodiscard]] std::optional<std::string_view> find(const RowInput& input, std::size_t place,
                                                     std::string& json) const;
  /// Throws NotFound: find() returned nothing.
  [[noreturn]] void throw_no_value(const Sample& sample, std::size_t place) const;
  /// Throws BadField: the value in the field at `place` is not `type`, e.g. "an integer".
  [[noreturn]] void refuse(const Sample& sample, std::size_t place, std::string_view type,
                           const std::string& reason) const;

  FieldChoice fields;
  std::optional<JsonPath> path;
};

/// Returns e.g. "[3, 224, 224]".
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

/// Returns e.g. "it is [1, 2]", shortened.
[[nodiscard]] std::string shown_json(std::string_view json);

/// Makes the rows of a column of values from fields. A value is missing if the sample has none of
/// the fields, or if the path leads to nothing or to null.
[[nodiscard]] std::shared_ptr<const ColumnMaker> value_of_fields(ValueKind kind, ValueFields fields,
                                                                 MissingValue missing);

/// Makes the rows of a column of numbers from JSON arrays at a path: nested arrays of one shape.
/// @param rank   number of dimensions of each row; nothing if rows may differ.
/// @param shape  of each row; empty for ragged rows.
/// Errors: InvalidArgument for a type that JSON numbers cannot have.
[[nodiscard]] std::shared_ptr<const ColumnMaker> json_array(ValueFields fields, DType dtype,
                                                            std::vector<std::int64_t> shape,
                                                            std::optional<std::size_t> rank);

/// Returns a column of the .npy arrays in a field, with the dtype of this sample's array.
/// @param place  number of the field in the sample.
/// Errors: BadField.
[[nodiscard]] Column array_as_stored(const Sample& sample, std::size_t place);

}  // namespace shardwise::detail
