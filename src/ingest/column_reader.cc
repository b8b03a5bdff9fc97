#include "ingest/column_reader.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/json.h"
#include "base/text.h"
#include "index/sqlite.h"
#include "shardwise/base/error.h"
#include "shardwise/index/query.h"

namespace shardwise {
namespace {

/// Column names that the virtual tables `samples` and `members` use themselves.
constexpr std::array<std::string_view, 10> kReserved = {
    "sample", "key", "shard", "members", "bytes", "member", "field", "offset", "size", "rowid"};

bool starts_name(char c) { return is_letter(c) || c == '_'; }

bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= 64 && starts_name(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return starts_name(c) || is_digit(c); });
}

}  // namespace

Index::Column parse_column(std::string_view text) {
  const std::string where = in_quotes(text);
  Index::Column column;
  std::string_view rest = text;
  if (const std::size_t equals = rest.find('=');
      equals != std::string_view::npos && is_identifier(rest.substr(0, equals))) {
    column.name = to_lower(rest.substr(0, equals));
    rest.remove_prefix(equals + 1);
  }
  const std::size_t path = rest.find(":$");
  column.field = to_lower(rest.substr(0, path));
  if (column.field.empty() || column.field.find_first_of("/\n") != std::string::npos) {
    throw InvalidArgument(
        "the column names no field", where,
        "write FIELD, FIELD:JSONPATH, or NAME=FIELD:JSONPATH, e.g. cls or json:$.width");
  }
  if (path != std::string_view::npos) {
    column.json_path = rest.substr(path + 1);
    if (!detail::JsonPath::is_valid(column.json_path)) {
      throw InvalidArgument("the JSON path of the column is malformed", where,
                            "write it as in SQLite, e.g. json:$.size.width or json:$.tags[0]");
    }
    if (column.json_path.find('\n') != std::string::npos) {
      throw InvalidArgument("the JSON path of the column has a line break", where,
                            "remove the line break");
    }
  }
  if (column.name.empty()) {
    const std::string_view last =
        column.json_path.empty()
            ? std::string_view(column.field)
            : std::string_view(column.json_path).substr(column.json_path.rfind('.') + 1);
    if (!is_identifier(last)) {
      throw InvalidArgument("the name of the column is not valid in SQL", where,
                            "give the column a name: NAME=" + std::string(rest));
    }
    column.name = to_lower(last);
  }
  if (std::find(kReserved.begin(), kReserved.end(), column.name) != kReserved.end()) {
    throw InvalidArgument("the index reserves this column name", where,
                          "give the column another name: NAME=" + std::string(rest));
  }
  return column;
}

std::string to_string(const Index::Column& column) {
  return column.name + "=" + column.field + (column.json_path.empty() ? "" : ":") +
         column.json_path;
}

ColumnReader::ColumnReader(const std::vector<Index::Column>& columns) : columns_(columns) {
  for (const Index::Column& column : columns) {
    auto& path = paths_.emplace_back();
    if (!column.json_path.empty()) path.emplace(column.json_path);
  }
}

std::optional<std::string> ColumnReader::too_large(std::size_t column,
                                                   std::string_view field) const {
  if (!columns_[column].json_path.empty() || field.size() <= kMaxBlobValueBytes) {
    return std::nullopt;
  }
  const bool is_text = sqlite::is_text(field);
  if (is_text && (field.size() <= kMaxTextValueBytes || !json_fault(field))) return std::nullopt;
  return std::string(is_text ? "a text of more than 64 KiB"
                             : "a value of more than 4 KiB other than text") +
         " cannot be a metadata column";
}

MetadataValue ColumnReader::read(std::size_t column, std::string_view field) {
  if (!paths_[column]) return detail::whole_field_value(field);
  const auto found = paths_[column]->find(field);
  return found ? detail::json_value(*found, bytes_) : MetadataValue{};
}

}  // namespace shardwise
