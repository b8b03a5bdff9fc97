#pragma once

#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// A metadata column of an index: a value of each sample, taken from one of its fields when the
/// shard is indexed, and kept in the index for queries.
///
/// The value is SQLite's: with a JSON path, what json_extract gives (objects and arrays as JSON
/// text); without, an integer or a real if the field holds just that, blanks around it left out,
/// else a text, or a blob if it is not UTF-8. Null if the sample has no such field, or the field no
/// such path. Nothing is cut or rounded: a whole number that does not fit 64 bits is the text of
/// its digits, a number beyond a double's range is its text, and a text with a NUL or a lone
/// surrogate is a blob. Refused are fields above 1 MiB and, without a JSON path, what is not UTF-8
/// above 4 KiB and text that is no JSON above 64 KiB.
struct Column {
  std::string name;       ///< in SQL: letters, digits and _, in lower case
  std::string field;      ///< lower case
  std::string json_path;  ///< as in SQLite, "$.width"; empty: the field as a whole

  friend bool operator==(const Column&, const Column&) = default;
};

/// Reads `[NAME=]FIELD[:JSONPATH]`: "cls", "json:$.width", "w=meta.json:$.size[0]". Without NAME it
/// is the last part of the path, or the field.
/// Errors: InvalidArgument, if the name is none that SQL can use or is one of the index's own
///   (sample, key, shard, ...), or the path is malformed.
SHARDWISE_EXPORT Column parse_column(std::string_view text);
/// "NAME=FIELD" or "NAME=FIELD:JSONPATH": what parse_column reads.
SHARDWISE_EXPORT std::string to_string(const Column& column);

}  // namespace shardwise
